//go:build unix

package roundtrip

import (
	"net"
	"syscall"
)

// isQuiet reports, without a round trip, whether nothing has arrived on an idle connection: neither
// a last message of the server nor the end of the stream. known is false if this can't be
// determined.
func isQuiet(conn net.Conn) (quiet, known bool) {
	for {
		outer, ok := conn.(interface{ NetConn() net.Conn }) // TLS, or a hiddenAddr
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
	// raw.Read would wait for pgx's background reader, if that is in a read.
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		quiet = err == syscall.EAGAIN || err == syscall.EWOULDBLOCK
	})
	return quiet && err == nil, err == nil
}
