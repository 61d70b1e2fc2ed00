//go:build !linux

package socket

import (
	"net"

	"github.com/globalrefdb/globalrefdb/site/pusher"
)

func Bind(string) (*net.UnixListener, error) { return nil, pusher.ErrPlatform }
