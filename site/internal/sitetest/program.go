package sitetest

import (
	"os"
	"strings"
	"syscall"
)

// WriteProgram writes a program that can be run at once. A child that another test forks meanwhile would inherit the open file, and the kernel
// runs nothing that is open for writing.
func WriteProgram(path string, program []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, program, 0o755)
}

// NoNamespace reports whether the output of a command that begins with unshare and mount says that these are not allowed here.
func NoNamespace(out string) bool {
	return strings.Contains(out, "Operation not permitted") || strings.Contains(out, "ermission denied") || strings.Contains(out, "must be superuser")
}
