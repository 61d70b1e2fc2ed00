package sessions

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/serving"
	"github.com/globalrefdb/globalrefdb/site/wire"
	"github.com/globalrefdb/globalrefdb/site/wire/wiretest"
)

// pair returns a session, and its guard's end of the connection.
func pair(t *testing.T, limits Limits) (*session, *net.UnixConn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "session")
		conn, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		t.Cleanup(func() { conn.Close() })
		ends[i] = conn.(*net.UnixConn)
	}
	return newSession(ends[0], limits), ends[1]
}

// What was queued is sent in its order, also what a session that ends has queued, and nothing after
// that.
func TestWhatWasQueuedIsSentBeforeASessionEnds(t *testing.T) {
	t.Parallel()
	s, conn := pair(t, Limits{Silence: time.Hour, Write: time.Hour})
	done := make(chan struct{})
	if !s.send(wire.Settled{TX: "t1"}) || !s.send(wire.Settled{TX: "t2"}) {
		t.Error("a message was not taken")
	}
	s.close()
	if s.send(wire.Settled{TX: "t3"}) {
		t.Error("a message was taken after the end")
	}
	if s.listen() {
		t.Error("the session goes on after its end")
	}
	go func() { defer close(done); s.write(); s.conn.Close() }()
	r := bufio.NewReader(conn)
	for _, tx := range []string{"t1", "t2"} {
		m, err := wiretest.ReadFromDaemon(r)
		if settled, _ := m.(wire.Settled); err != nil || settled.TX != tx {
			t.Errorf("the guard reads %+v, %v, want %s", m, err, tx)
		}
	}
	if m, err := wiretest.ReadFromDaemon(r); err == nil {
		t.Errorf("then it reads %+v", m)
	}
	<-done
}

// A guard that reads nothing holds up nobody: its session ends when too much waits for it, or when
// it has read nothing for some time.
func TestASessionWhoseGuardReadsNothingEnds(t *testing.T) {
	t.Parallel()
	large := wire.Fault{Text: strings.Repeat("x", 1<<20)}
	t.Run("too much waits", func(t *testing.T) {
		t.Parallel()
		s, _ := pair(t, Limits{Silence: time.Hour, Write: time.Hour})
		sent := 0
		for s.send(large) {
			if sent += len(large.Text); sent > maxQueued {
				t.Fatalf("%d bytes are queued", sent)
			}
		}
		if sent == 0 {
			t.Error("nothing was queued")
		}
		if _, err := s.conn.Read(make([]byte, 1)); !os.IsTimeout(err) {
			t.Errorf("it still listens: %v", err)
		}
	})
	t.Run("for long", func(t *testing.T) {
		t.Parallel()
		s, _ := pair(t, Limits{Silence: time.Hour, Write: time.Millisecond})
		for range 4 {
			s.send(large)
		}
		s.write() // returns
		if s.send(wire.Pong{}) {
			t.Error("a message is taken")
		}
	})
}

// A testGuards is guards without a database, one of which has a session.
func testGuards(t *testing.T) (gs *Guards, s *session, conn *net.UnixConn) {
	t.Helper()
	s, conn = pair(t, Limits{Silence: time.Hour, Write: time.Hour})
	gs = &Guards{Deps: Deps{State: serving.New(&config.Config{}, nil), Logger: slog.New(slog.DiscardHandler)}}
	g := &guard{id: pusher.Guard{ID: "one"}, session: s, transactions: map[string]*transaction{}}
	gs.all = map[pusher.Guard]*guard{g.id: g}
	s.guard = g
	return gs, s, conn
}

func TestAGuardHasNoMoreThanSoManyTransactions(t *testing.T) {
	t.Parallel()
	for name, fill := range map[string]func(*guard){
		"in number": func(g *guard) {
			for i := range maxTransactions {
				g.transactions[fmt.Sprint(i)] = &transaction{}
			}
		},
		"in bytes": func(g *guard) { g.announced = maxAnnounced },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gs, s, conn := testGuards(t)
			fill(s.guard)
			before := len(s.guard.transactions)
			if !gs.handle(s, wire.Announce{TX: "more", Dir: "/r", Lines: []wire.Line{{Old: "a", New: "b", Ref: "refs/heads/x"}}}) {
				t.Error("the session ends")
			}
			if len(s.guard.transactions) != before {
				t.Error("the transaction is open")
			}
			go func() { s.write(); s.conn.Close() }()
			m, err := wiretest.ReadFromDaemon(bufio.NewReader(conn))
			if refused, _ := m.(wire.Refused); err != nil || refused.TX != "more" || refused.Kind != wire.Final || refused.Reason != "too_many" {
				t.Errorf("the guard reads %+v, %v", m, err)
			}
			s.close()
		})
	}
}

// A later session of the guard takes the place of an earlier one, to which nobody listens any more.
func TestAnEarlierSessionIsNotHeard(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*guard){
		"there is a later one": func(g *guard) { g.session = &session{} },
		"the guard has died":   func(g *guard) { g.dead = true },
	} {
		gs, s, _ := testGuards(t)
		if !gs.handle(s, wire.Ping{}) {
			t.Fatal("the session is not heard")
		}
		change(s.guard)
		if gs.handle(s, wire.Ping{}) {
			t.Errorf("%s: the session is heard", name)
		}
	}
}

// An alarm is raised once about a guard that lives, has open transactions, and no session for too
// long.
func TestAlarmAboutASilentGuard(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(gs *Guards, g *guard, s *session)
		alarms uint64
	}{
		"silent":          {func(*Guards, *guard, *session) {}, 1},
		"not for so long": {func(_ *Guards, g *guard, _ *session) { g.since = g.since.Add(time.Second) }, 0},
		"in a session":    {func(_ *Guards, g *guard, s *session) { g.session = s }, 0},
		"idle":            {func(_ *Guards, g *guard, _ *session) { clear(g.transactions) }, 0},
		"dead":            {func(_ *Guards, g *guard, _ *session) { g.dead = true }, 0},
	} {
		gs, s, _ := testGuards(t)
		now := time.Unix(1_000_000, 0)
		gs.Now = func() time.Time { return now }
		g := s.guard
		g.session, g.since = nil, now.Add(-silenceLimit-time.Nanosecond)
		g.transactions["t"] = &transaction{}
		c.change(gs, g, s)
		gs.RaiseSilence(t.Context())
		gs.RaiseSilence(t.Context())
		if n := gs.State.Counts.Alarms.Load(); n != c.alarms {
			t.Errorf("%s: %d alarms, want %d", name, n, c.alarms)
		}
	}
}
