//go:build linux

package sites

import (
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// A direction is one of the two in which a strait carries.
type direction int

const (
	requests direction = iota
	answers
)

// A strait is a site's way to PostgreSQL. It can be cut, be slow, and hold back
// what goes one way: what is held arrives late, even if its sender has given up.
type strait struct {
	address string // of the database through it
	socket  string
	to      [2]string // network and address

	mu       sync.Mutex
	changed  *sync.Cond
	listener net.Listener // nil while it is cut
	conns    map[net.Conn]bool
	held     [2]bool
	reached  func() error  // nil from when on answers are to be held
	missing  error         // what it said last
	distance time.Duration // delays each piece, either way
	delay    time.Duration // as well
	running  sync.WaitGroup
}

// newStrait starts one of that length to the database at that URL. It ends with the test.
func newStrait(t testing.TB, database string, distance time.Duration) *strait {
	t.Helper()
	server, err := pgx.ParseConfig(database)
	if err != nil {
		t.Fatal(err)
	}
	dir := shortDir(t)
	s := &strait{socket: filepath.Join(dir, ".s.PGSQL.5432"), distance: distance, conns: make(map[net.Conn]bool)}
	s.changed = sync.NewCond(&s.mu)
	port := strconv.Itoa(int(server.Port))
	if s.to = [2]string{"tcp", net.JoinHostPort(server.Host, port)}; filepath.IsAbs(server.Host) {
		s.to = [2]string{"unix", filepath.Join(server.Host, ".s.PGSQL."+port)}
	}
	u := url.URL{Scheme: "postgres", Path: "/" + server.Database, RawQuery: url.Values{
		"host": {dir}, "user": {server.User}, "password": {server.Password}, "sslmode": {"disable"},
	}.Encode()}
	s.address = u.String()
	s.restore(t)
	t.Cleanup(func() {
		s.cut()
		s.calm()
		s.running.Wait()
	})
	return s
}

// cut closes all connections and refuses new ones, until restore.
func (s *strait) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener != nil {
		s.listener.Close()
		s.listener = nil
	}
	for c := range s.conns {
		c.Close()
	}
}

// restore lets connections through.
func (s *strait) restore(t testing.TB) {
	t.Helper()
	if err := os.Remove(s.socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.listener = l
	s.mu.Unlock()
	s.running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial(s.to[0], s.to[1])
			if err != nil {
				client.Close()
				continue
			}
			s.join(l, client, server)
		}
	})
}

func (s *strait) join(l net.Listener, client, server net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener != l { // cut meanwhile
		client.Close()
		server.Close()
		return
	}
	s.conns[client], s.conns[server] = true, true
	s.running.Go(func() { s.carry(server, client, requests) })
	s.running.Go(func() { s.carry(client, server, answers) })
}

// carry brings what comes from one connection to the other, until one of them ends.
func (s *strait) carry(to, from net.Conn, d direction) {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.conns, to)
		delete(s.conns, from)
		to.Close()
		from.Close()
	}()
	for b := make([]byte, 32<<10); ; {
		n, err := from.Read(b)
		if n > 0 {
			s.wait(d)
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// wait returns when something may go through.
func (s *strait) wait(d direction) {
	s.mu.Lock()
	if d == answers && s.reached != nil {
		if s.missing = s.reached(); s.missing == nil {
			s.held[answers], s.reached = true, nil
		}
	}
	for s.held[d] {
		s.changed.Wait()
	}
	delay := s.distance + s.delay
	s.mu.Unlock()
	time.Sleep(delay)
}

// hold keeps back all that goes in that direction from now on.
func (s *strait) hold(d direction) { s.set(func() { s.held[d] = true }) }

// holdOnce keeps back answers once reached returns nil, which is asked before each
// goes through: what leads there, such as a new connection, is not held up.
func (s *strait) holdOnce(reached func() error) {
	s.set(func() { s.reached, s.missing = reached, errors.New("no answer has come") })
}

// holds returns nil once answers are held.
func (s *strait) holds() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[answers] {
		return nil
	}
	return s.missing
}

// slow delays everything by that much from now on.
func (s *strait) slow(by time.Duration) { s.set(func() { s.delay = by }) }

// calm ends hold and slow.
func (s *strait) calm() { s.set(func() { s.held, s.reached, s.delay = [2]bool{}, nil, 0 }) }

func (s *strait) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	s.changed.Broadcast()
}
