package sitetest

import (
	"os"
	"syscall"
)

// WriteProgram writes a program that can be run at once. A child that another test forks meanwhile would inherit the open file, and the kernel
// runs nothing that is open for writing.
func WriteProgram(path string, program []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, program, 0o755)
}
