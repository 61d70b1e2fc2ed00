//go:build unix

package filesystem

import (
	"errors"
	"syscall"
)

// Writable reports whether this process may write to a file, or there is none. It does not open the
// file: to close it again would end the locks that this process has on it.
func Writable(path string) bool {
	const mayWrite = 2 // W_OK
	err := syscall.Access(path, mayWrite)
	return err == nil || errors.Is(err, syscall.ENOENT)
}
