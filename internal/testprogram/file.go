package testprogram

import (
	"os"
	"syscall"
)

// Write writes a program that can be run at once. A child that another test forks at the same time would
// inherit the open file, and the kernel runs no file that is open for writing (ETXTBSY).
func Write(path string, program []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, program, 0o755)
}

// AwaitForks waits until each child that another test is forking runs its program. Until then the child
// holds what was open here: a lock, a listener, a file of a file system to unmount.
func AwaitForks() {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
}
