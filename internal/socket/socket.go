// Package socket makes the Unix sockets that a daemon listens on.
package socket

import (
	"io/fs"
	"net"
	"os"
)

// Unbind removes the socket that was made, unless another daemon's is there by
// now. Whether somebody answers wouldn't tell: a process that is being started
// has all that its parent listens on, for a moment.
func Unbind(l *net.UnixListener, path string, made fs.FileInfo) {
	if there, err := os.Lstat(path); err == nil && os.SameFile(there, made) {
		os.Remove(path)
	}
	l.Close()
}
