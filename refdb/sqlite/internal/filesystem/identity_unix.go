//go:build unix

package filesystem

import (
	"io/fs"
	"syscall"
)

// Identity returns the two numbers that distinguish a file from all other files of this machine.
func Identity(f fs.FileInfo) (device, inode uint64, ok bool) {
	s, ok := f.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return uint64(s.Dev), uint64(s.Ino), true
}
