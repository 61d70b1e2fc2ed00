package site_test

import (
	"bufio"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// A movesReader reads the list of moves.
type movesReader struct {
	g     *guard
	id    string
	place string // all before it was dealt with
	conn  net.Conn
	r     *bufio.Reader
}

// reader returns a reader for a guard whose ID is random, at the present place.
func (g *guard) reader() *movesReader {
	g.tb.Helper()
	return g.jgit().reader()
}

// reader returns the reader of the guard, at the present place.
func (j *jgit) reader() *movesReader {
	j.g.tb.Helper()
	m := &movesReader{g: j.g, id: j.id}
	m.connect()
	if at, ok := m.hear().(wire.Moves); !ok || len(at.Entries) > 0 {
		m.g.tb.Fatalf("the daemon said %+v, want a place", at)
	} else {
		m.place = at.Place
	}
	return m
}

// connect asks in a new connection for what follows the reader's place.
func (m *movesReader) connect() {
	m.g.tb.Helper()
	conn, err := net.Dial("unix", filepath.Join(m.g.dir, "sock"))
	if err != nil {
		m.g.tb.Fatal(err)
	}
	m.g.tb.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(sitetest.Patience))
	m.conn, m.r = conn, bufio.NewReader(conn)
	m.say(wire.BeginMoves{Guard: m.id, After: m.place})
}

func (m *movesReader) say(message wire.Message) {
	m.g.tb.Helper()
	if err := wire.WriteMessage(m.conn, message); err != nil {
		m.g.tb.Fatal(err)
	}
}

func (m *movesReader) hear() wire.Message {
	m.g.tb.Helper()
	answer, err := wire.ReadMoves(m.r)
	if err != nil {
		m.g.tb.Fatalf("waiting for moves: %v", err)
	}
	return answer
}

// next returns what follows the reader's place.
func (m *movesReader) next() []wire.Move {
	m.g.tb.Helper()
	m.say(wire.After{Place: m.place})
	return m.heard()
}

func (m *movesReader) heard() []wire.Move {
	m.g.tb.Helper()
	answer, ok := m.hear().(wire.Moves)
	if !ok {
		m.g.tb.Fatalf("the daemon said %+v, want moves", answer)
	}
	m.place = answer.Place
	return answer.Entries
}

// read reads until it has seen a ref of the test's repository, and returns all before that, as "REF" or, of moves that a guard has reported, "REF!".
func (m *movesReader) until(ref string) (seen []string) {
	m.g.tb.Helper()
	for first := true; ; first = false {
		if !first {
			m.say(wire.After{Place: m.place})
		}
		for _, e := range m.heard() {
			if e.Dir == m.g.repo && e.Ref == ref {
				return seen
			}
			seen = append(seen, short(m.g, e))
		}
	}
}

// short is how tests say an entry.
func short(g *guard, e wire.Move) string {
	s := e.Ref
	if s == "" {
		s = "-"
	}
	if e.Dir != g.repo {
		s += " " + strings.TrimPrefix(e.Dir, g.dir)
	}
	if e.Who != "" {
		s += "!"
	}
	return s
}

// listed reads all that is on the list after the reader's place. A ref that is moved past all guards marks the end.
func (m *movesReader) listed() []string {
	m.g.tb.Helper()
	m.say(wire.After{Place: m.place})
	mark := "refs/unguarded/mark"
	m.g.git("update-ref", mark, m.g.commit[0])
	m.g.git("update-ref", "-d", mark)
	seen := m.until(mark)
	// It is there twice.
	m.say(wire.After{Place: m.place})
	m.conn.SetReadDeadline(time.Now().Add(sitetest.Patience))
	seen = append(seen, m.until(mark)...)
	return slices.DeleteFunc(seen, func(s string) bool { return s == mark })
}

// lists checks what has been listed since the reader's place.
func (m *movesReader) lists(want ...string) {
	m.g.tb.Helper()
	if got := m.listed(); !slices.Equal(got, want) {
		m.g.tb.Errorf("listed is %q, want %q", got, want)
	}
}
