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
	retryPeriod = 50 * time.Millisecond
	// A daemon that stops is asked less often: it waits until nobody asks.
	stoppingPeriod = 500 * time.Millisecond
	// restarts is how many limits a push waits for the next daemon.
	restarts = 6
	// earlierFollower is set in the environment of a git by which a daemon of an earlier version
	// follows the database. If a daemon of this version has replaced that daemon, it would take the
	// move for a push, which could bring an earlier value back.
	earlierFollower = "REFDB_REPLICA"
)

// ask lets the daemon decide, and returns the status.
func (c call) ask() int {
	limit, err := wire.Limit(os.Getenv)
	if err != nil {
		return c.failed(err.Error())
	}
	deadline := c.began.Add(limit)
	dir, err := enterRepository()
	if err != nil {
		return c.failed(err.Error())
	}
	if c.state != wire.StateCommitted { // what git has done is told in any case
		if reason, ok := remembered(c.process); ok {
			return c.failed(reason)
		}
	}
	if os.Getenv(earlierFollower) != "" && c.state == wire.StatePrepared {
		return c.failed(wire.FollowsForEarlier)
	}
	q := wire.Request{State: c.state, Dir: dir, Process: &c.process, Body: c.body}
	answer, err := exchange(q, deadline, limit)
	if os.Getenv(earlierFollower) != "" && c.state == wire.StateCommitted {
		// The earlier daemon has allowed this. The database may hold another value by now.
		exchange(wire.Request{State: wire.StateFollow, Dir: dir, Process: &c.process}, deadline, limit)
	}
	if err != nil {
		reason := explain(err, dir, limit)
		if !time.Now().Before(deadline) { // an answer that comes at once may be another one next time
			remember(c.process, reason)
		}
		return c.failed(reason)
	}
	if len(answer.Lines) > 0 {
		say(strings.Join(answer.Lines, "\n"))
	}
	if answer.OK || !c.decides() {
		return 0
	}
	if len(answer.Lines) == 0 && c.state != wire.StateUpdate { // of a ref git says itself that it was declined
		say(wire.RefusedWithoutReason)
	}
	return 1
}

// exchange asks again while the daemon is not there, stops, or goes away without an answer: it may be
// restarting, and each request may be repeated. If git holds no locks and the daemon is known to stop,
// the deadline is a later one.
func exchange(q wire.Request, deadline time.Time, limit time.Duration) (wire.Response, error) {
	var stops wire.Response
	last := os.ErrDeadlineExceeded
	told, renewed := false, false
	for time.Now().Before(deadline) {
		q.Limit = max(time.Until(deadline), time.Millisecond)
		answer, waited, err := exchangeOnce(q, deadline, limit)
		pause := retryPeriod
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return stops, last // what went wrong before says more
		case err == nil && answer.Stopping():
			stops, last, pause = answer, nil, stoppingPeriod
			if q.State == wire.StatePreReceive || q.State == wire.StateUpdate {
				deadline = time.Now().Add(restarts * limit)
				if !told {
					say(wire.DaemonRestarts)
				}
				told = true
			}
		case err == nil || !isRetryable(err):
			return answer, err
		default:
			stops, last = wire.Response{}, err
			if waited && !renewed { // once: the daemon may have died of this request
				renewed = true
				if later := time.Now().Add(limit); later.After(deadline) {
					deadline = later
				}
			}
		}
		time.Sleep(min(pause, time.Until(deadline)))
	}
	return stops, last
}

func isRetryable(err error) bool {
	for _, absent := range []error{
		syscall.ENOENT, syscall.ECONNREFUSED, syscall.EAGAIN, syscall.EINTR, syscall.ECONNRESET, syscall.EPIPE, io.EOF,
	} {
		if errors.Is(err, absent) {
			return true
		}
	}
	return false
}

// exchangeOnce waits until the deadline and, each time that the daemon says so, for limit from then on.
func exchangeOnce(q wire.Request, deadline time.Time, limit time.Duration) (answer wire.Response, waited bool, err error) {
	conn, err := connect(deadline)
	if err != nil {
		return answer, false, err
	}
	defer syscall.Close(conn.fd)
	sent := q.Write(conn)
	if sent == nil {
		sent = syscall.Shutdown(conn.fd, syscall.SHUT_WR)
	}
	if sent != nil && !errors.Is(sent, syscall.EPIPE) && !errors.Is(sent, syscall.ECONNRESET) {
		return answer, false, sent
	}
	// A daemon may have answered before it read all.
	answer, err = wire.ReadResponse(conn, func(text string) {
		waited = true
		conn.deadline = time.Now().Add(limit)
		if text != "" {
			say("refdb: " + text)
		}
	})
	return answer, waited, err
}

// explain says what happened and what to do.
func explain(err error, dir string, limit time.Duration) string {
	path := dir + "/" + socket
	switch {
	case errors.Is(err, errNoLink):
		return wire.SocketMissing(path, dir)
	case errors.Is(err, errNoSocket):
		return wire.NotASocket(path, dir)
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return wire.SocketForbidden(path, err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return wire.NoAnswer(wire.NothingWithin(limit))
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return wire.NoAnswer(wire.ClosedWithoutAnswer)
	}
	return wire.NoAnswer(err.Error())
}
