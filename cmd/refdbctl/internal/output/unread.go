package output

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Unread reports whether w is a pipe without a reader, which otherwise only a write would reveal.
func Unread(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	look := []unix.PollFd{{Fd: int32(f.Fd())}}
	n, err := unix.Poll(look, 0)
	return n > 0 && err == nil && look[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
}
