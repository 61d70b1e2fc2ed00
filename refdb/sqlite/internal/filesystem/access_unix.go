//go:build unix

package filesystem

import (
	"errors"
	"syscall"
)

// Writable reports whether this process may write to a file, or the file does not exist. It does
// not open the file: closing it would end the locks that this process has on it.
func Writable(path string) bool {
	const mayWrite = 2 // W_OK
	err := syscall.Access(path, mayWrite)
	return err == nil || errors.Is(err, syscall.ENOENT)
}
