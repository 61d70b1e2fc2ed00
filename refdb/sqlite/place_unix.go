//go:build unix

package sqlite

import (
	"io/fs"
	"syscall"
)

// identity returns what tells a file from all others of this machine.
func identity(f fs.FileInfo) (device, inode uint64, ok bool) {
	s, ok := f.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return uint64(s.Dev), uint64(s.Ino), true
}
