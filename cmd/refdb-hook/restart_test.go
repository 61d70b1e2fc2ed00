package main_test

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/site/wire"
)

const stopping = "refused\n" + wire.DaemonStopping + "\n"

// Where git holds no lock, a push waits for the next daemon for longer than for an answer.
func TestAPushWaitsForTheDaemonAfterOneThatStops(t *testing.T) {
	t.Parallel()
	const limit = time.Second
	for name, do := range map[string]func(s *site) *run{
		"pre-receive": func(s *site) *run { return s.preReceive(lines) },
		"update":      func(s *site) *run { return s.update("refs/heads/main", a, b) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			began := time.Now()
			d := s.serveWith(func(_ int, conn net.Conn) {
				if time.Since(began) < 2*limit {
					io.WriteString(conn, stopping)
				} else {
					io.WriteString(conn, "ok\n")
				}
			})
			r := do(s)
			r.limit = limit.String()
			r.do().is(0, wire.DaemonRestarts)
			if strings.Contains(r.stderr, wire.DaemonStopping) || strings.Count(r.stderr, "\n") != 1 {
				t.Errorf("it said %q", r.stderr)
			}
			if n := len(d.requests()); n < 2 || n > 10 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// Git holds locks: others must not wait for these for longer than usual.
func TestATransactionWaitsForTheNextDaemonWithinItsLimit(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.serveWith(func(n int, conn net.Conn) {
		if n == 0 {
			io.WriteString(conn, stopping)
		} else {
			io.WriteString(conn, "ok\n")
		}
	})
	s.transaction("prepared", lines).do().is(0)

	s = newSite(t)
	s.serve(stopping)
	for state, status := range map[string]int{"prepared": 1, "committed": 0} {
		within(t, time.Second, func(limit time.Duration) bool {
			r := s.transaction(state, lines)
			r.limit = limit.String()
			began := time.Now()
			if r.do(); strings.Contains(r.stderr, "no answer within") { // a slow machine
				s.forget()
				return false
			}
			r.is(status, wire.DaemonStopping)
			if took := time.Since(began); took < limit {
				t.Errorf("%s: it gave up after %s", state, took)
			}
			return true
		})
	}
}

func TestIfNoDaemonFollowsOneThatStoppedAPushIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	listener, err := net.Listen("unix", s.address)
	s.must(err)
	s.serveOn(listener, func(_ int, conn net.Conn) {
		listener.Close()
		io.WriteString(conn, stopping)
	})
	r := s.preReceive(lines)
	r.limit = "250ms"
	r.do().is(1, wire.DaemonRestarts, "the site daemon does not answer", "systemctl start refdb-site")
	// The other hooks of the push have waited, too.
	const limit = 20 * time.Minute
	began := time.Now()
	r = s.update("refs/heads/main", a, b)
	r.limit = limit.String()
	r.do().is(1, "the site daemon does not answer")
	if took := time.Since(began); took > limit/2 {
		t.Errorf("another hook of the push waited again, for %s", took)
	}
}

// The daemon has a hook wait, for objects or for the database, and is restarted meanwhile.
func TestAHookThatWasToldToWaitOutlastsARestart(t *testing.T) {
	t.Parallel()
	within(t, time.Second, func(limit time.Duration) bool {
		s := newSite(t)
		s.serveWith(func(n int, conn net.Conn) {
			for began := time.Now(); n == 0 && time.Since(began) < 2*limit; time.Sleep(limit / 10) {
				if wire.Wait(conn, "") != nil {
					return
				}
			}
			if n > 0 {
				io.WriteString(conn, "ok\n")
			}
		})
		r := s.preReceive(lines)
		r.limit = limit.String()
		if r.do(); strings.Contains(r.stderr, "no answer within") { // a slow machine
			return false
		}
		r.is(0)
		return true
	})
}

// A request that each daemon dies of is refused in the end.
func TestAHookDoesNotWaitForOneDaemonAfterAnother(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.serveWith(func(n int, conn net.Conn) {
		for began := time.Now(); time.Since(began) < 300*time.Millisecond; time.Sleep(10 * time.Millisecond) {
			if wire.Wait(conn, "") != nil {
				return
			}
		}
	})
	r := s.preReceive(lines)
	r.limit = "250ms"
	r.do().is(1, "the site daemon does not answer")
}
