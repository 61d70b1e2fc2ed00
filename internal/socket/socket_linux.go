package socket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Bind makes the socket at path, for the daemon's own user alone. One that a
// dead daemon left behind is replaced; one that answers is not.
func Bind(path string) (*net.UnixListener, error) {
	l, err := replaceSocket(path)
	if err != nil {
		return nil, fmt.Errorf("making the socket %s: %w", path, err)
	}
	return l, nil
}

func replaceSocket(path string) (*net.UnixListener, error) {
	// The name of a socket has at most 107 bytes: the directory's is longer
	// than its descriptor's.
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	short := filepath.Join("/proc/self/fd", strconv.Itoa(int(dir.Fd())))
	base := filepath.Base(path)
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Mode().Type() != fs.ModeSocket:
		return nil, errors.New("there is something that is not a socket: remove it, or configure another path")
	default:
		d := net.Dialer{Timeout: time.Second}
		conn, err := d.DialContext(context.Background(), "unix", filepath.Join(short, base))
		if err == nil {
			conn.Close()
		}
		if !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist) {
			return nil, errors.New("another process answers there: stop it, or configure another path")
		}
	}
	// Nobody sees it under its name before its mode is right.
	temporary := fmt.Sprintf(".%s.%d", base, os.Getpid())
	if err := os.Remove(filepath.Join(short, temporary)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(short, temporary), Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	err = os.Chmod(filepath.Join(short, temporary), 0o600)
	if err == nil {
		err = os.Rename(filepath.Join(short, temporary), path)
	}
	if err != nil {
		os.Remove(filepath.Join(short, temporary))
		l.Close()
		return nil, err
	}
	return l, nil
}
