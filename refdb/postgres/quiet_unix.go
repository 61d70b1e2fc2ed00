//go:build unix

package postgres

import (
	"net"
	"syscall"
)

// isQuiet reports whether nothing has arrived on an idle connection, neither a
// last word of the server nor its end, without a round trip. known is false if
// it can't be told.
func isQuiet(conn net.Conn) (quiet, known bool) {
	for {
		outer, ok := conn.(interface{ NetConn() net.Conn }) // TLS, or a line
		if !ok {
			break
		}
		conn = outer.NetConn()
	}
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return false, false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false, false
	}
	// Not raw.Read: that waits for pgx's background reader, if it is in a read.
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		quiet = err == syscall.EAGAIN || err == syscall.EWOULDBLOCK
	})
	return quiet && err == nil, err == nil
}
