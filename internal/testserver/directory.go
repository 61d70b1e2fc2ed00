package testserver

import (
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// A directory holds what a server writes.
type directory struct {
	path      string
	temporary bool // it goes with the server
}

// newDirectory makes a temporary directory in parent. The default is /tmp and
// not TMPDIR: the path of a socket ends at about 100 bytes, and another user
// must get there.
func newDirectory(parent string) (directory, error) {
	if parent == "" {
		parent = "/tmp"
	}
	path, err := os.MkdirTemp(parent, "testserver-")
	return directory{path, true}, err
}

func (d directory) removeTemporary() {
	if d.temporary {
		os.RemoveAll(d.path)
	}
}

// give makes files belong to that account; nil is our own, as they do already.
func give(as *syscall.Credential, paths ...string) (err error) {
	if as == nil {
		return nil
	}
	for _, path := range paths {
		err = errors.Join(err, os.Chown(path, int(as.Uid), int(as.Gid)))
	}
	return err
}

// unprivileged returns the account for servers that refuse to run as root: nil,
// which is our own, unless that is root.
func unprivileged() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("PostgreSQL refuses to run as root, and there is no user postgres or nobody")
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// FreePort returns a port of the loopback interface that nobody listens on now. It is none of those
// that the system gives out by itself, which others may be given before the port is used.
func FreePort() (port int, err error) {
	const lowest, attempts = 10_000, 100
	for range attempts {
		port = lowest + rand.IntN(ephemeral-lowest)
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, l.Close()
		}
	}
	return 0, err
}

// ephemeral is the first port that Linux gives out by itself, unless it is configured otherwise.
const ephemeral = 32768
