package main

import (
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/globalrefdb/globalrefdb/site/wire"
)

const (
	socket      = "refdb/socket" // below the common Git directory; a link to the daemon's
	timeoutVar  = "REFDB_HOOK_TIMEOUT"
	replicaVar  = "REFDB_REPLICA"
	usualLimit  = 5 * time.Second
	retryPeriod = 50 * time.Millisecond
)

// ask lets the daemon decide, and returns the status.
func (c call) ask() int {
	limit, err := timeout()
	if err != nil {
		return c.failed(err.Error())
	}
	deadline := c.began.Add(limit)
	dir, err := enterRepository()
	if err != nil {
		return c.failed(err.Error())
	}
	q := wire.Request{State: c.state, Dir: dir, Replica: os.Getenv(replicaVar) != "", Body: c.body}
	answer, err := exchange(q, deadline)
	if err != nil {
		return c.failed(explain(err, dir, limit))
	}
	if len(answer.Lines) > 0 {
		say(strings.Join(answer.Lines, "\n"))
	}
	if answer.OK || !c.decides() {
		return 0
	}
	if len(answer.Lines) == 0 {
		say("refdb: the site daemon refuses this, and does not say why; nothing was changed")
	}
	return 1
}

func timeout() (time.Duration, error) {
	s := os.Getenv(timeoutVar)
	if s == "" {
		return usualLimit, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < time.Millisecond {
		return 0, errors.New(timeoutVar + "=" + s + " is not a duration such as 5s")
	}
	return d, nil
}

// What is wrong with the socket, in a way that waiting doesn't mend.
var (
	errNoLink   = errors.New("no link")
	errNoSocket = errors.New("no socket")
)

// exchange asks again while the daemon is not there, or goes away without an
// answer: it may be restarting, and each request may be repeated.
func exchange(q wire.Request, deadline time.Time) (wire.Response, error) {
	last := os.ErrDeadlineExceeded
	for time.Now().Before(deadline) {
		q.Limit = max(time.Until(deadline), time.Millisecond)
		answer, err := exchangeOnce(q, deadline)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break // what went wrong before says more
		}
		if err == nil || !again(err) {
			return answer, err
		}
		last = err
		time.Sleep(min(retryPeriod, time.Until(deadline)))
	}
	return wire.Response{}, last
}

func again(err error) bool {
	for _, absent := range []error{
		syscall.ENOENT, syscall.ECONNREFUSED, syscall.EAGAIN, syscall.EINTR, syscall.ECONNRESET, syscall.EPIPE, io.EOF,
	} {
		if errors.Is(err, absent) {
			return true
		}
	}
	return false
}

func exchangeOnce(q wire.Request, deadline time.Time) (wire.Response, error) {
	conn, err := connect()
	if err != nil {
		return wire.Response{}, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(deadline); err != nil {
		return wire.Response{}, err
	}
	sent := q.Write(conn)
	if sent == nil {
		sent = shutdown(conn)
	}
	if sent != nil && !errors.Is(sent, syscall.EPIPE) && !errors.Is(sent, syscall.ECONNRESET) {
		return wire.Response{}, sent
	}
	// A daemon may have answered before it read all.
	return wire.ReadResponse(conn)
}

func connect() (*os.File, error) {
	if _, err := os.Lstat(socket); errors.Is(err, os.ErrNotExist) {
		return nil, errNoLink
	}
	if info, err := os.Stat(socket); err == nil && info.Mode().Type() != os.ModeSocket {
		return nil, errNoSocket
	}
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, err
	}
	syscall.CloseOnExec(fd)
	// It doesn't block, so that the file has deadlines. Connecting then fails with
	// EAGAIN if too many others are waiting.
	err = syscall.SetNonblock(fd, true)
	if err == nil {
		err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: socket})
	}
	if err != nil {
		syscall.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), socket), nil
}

// shutdown ends what is sent; the answer can still be read.
func shutdown(conn *os.File) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = syscall.Shutdown(int(fd), syscall.SHUT_WR) })
	return errors.Join(err, failed)
}

// explain says what happened and what to do.
func explain(err error, dir string, limit time.Duration) string {
	path := dir + "/" + socket
	enable := "ask the administrator to run: refdbctl site enable " + dir
	switch {
	case errors.Is(err, errNoLink):
		return path + " is missing: " + enable
	case errors.Is(err, errNoSocket):
		return path + " is not a socket: " + enable
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return "the site daemon can't be asked by this user (" + path + ": " + err.Error() + "): use the one that it runs as"
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = errors.New("nothing within " + limit.String())
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		err = errors.New("it went away without an answer")
	}
	return "the site daemon does not answer (" + err.Error() + "): ask the administrator to start it: systemctl start refdb-site"
}
