//go:build !unix

package postgres

import "net"

func isQuiet(net.Conn) (quiet, known bool) { return false, false }
