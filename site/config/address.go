package config

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// CheckAddress returns an error unless value is an address to listen at: a host and a port, or the absolute path of a
// socket.
func CheckAddress(value string) error {
	if strings.HasPrefix(value, "/") {
		return nil
	}
	host, port, err := net.SplitHostPort(value)
	if n, perr := strconv.Atoi(port); err != nil || perr != nil || n < 1 || n > 65535 {
		return fmt.Errorf("%q is not an address: give a host and a port, such as 127.0.0.1:9464, or the absolute path of a socket", value)
	}
	if host == "" {
		return fmt.Errorf("%q has no host: give 127.0.0.1:%s, or 0.0.0.0:%s if all of the machine's networks may connect", value, port, port)
	}
	return nil
}
