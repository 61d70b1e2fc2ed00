package main

import (
	"errors"
	"io"
	"os"
	"syscall"
	"time"
)

// What may be wrong with the socket, where waiting does not help.
var (
	errNoLink   = errors.New("no link")
	errNoSocket = errors.New("no socket")
)

// A connection to the daemon has a deadline. It blocks in system calls: starting the poller of
// package os would take about as long as the exchange.
type connection struct {
	fd       int
	deadline time.Time
}

func connect(deadline time.Time) (*connection, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, err
	}
	c := &connection{fd, deadline}
	err = c.limit(syscall.SO_SNDTIMEO)
	if err == nil {
		err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: socket})
	}
	if err != nil {
		syscall.Close(fd)
		return nil, diagnose(err)
	}
	return c, nil
}

// diagnose looks for the reason why the socket can't be connected to.
func diagnose(err error) error {
	if _, err := os.Lstat(socket); errors.Is(err, os.ErrNotExist) {
		return errNoLink
	}
	if info, err := os.Stat(socket); err == nil && info.Mode().Type() != os.ModeSocket {
		return errNoSocket
	}
	return err
}

// limit ends what the connection does next at the deadline.
func (c *connection) limit(option int) error {
	left := time.Until(c.deadline)
	if left < time.Microsecond {
		return os.ErrDeadlineExceeded
	}
	t := syscall.NsecToTimeval(left.Nanoseconds())
	return syscall.SetsockoptTimeval(c.fd, syscall.SOL_SOCKET, option, &t)
}

func (c *connection) Read(b []byte) (int, error) {
	for {
		if err := c.limit(syscall.SO_RCVTIMEO); err != nil {
			return 0, err
		}
		n, err := syscall.Read(c.fd, b)
		switch {
		case err == nil && n == 0:
			return 0, io.EOF
		case err == nil:
			return n, nil
		case err != syscall.EINTR && err != syscall.EAGAIN:
			return 0, err
		}
	}
}

func (c *connection) Write(b []byte) (written int, err error) {
	for written < len(b) {
		if err := c.limit(syscall.SO_SNDTIMEO); err != nil {
			return written, err
		}
		n, err := syscall.Write(c.fd, b[written:])
		if err != nil && err != syscall.EINTR && err != syscall.EAGAIN {
			return written, err
		}
		written += max(n, 0)
	}
	return written, nil
}
