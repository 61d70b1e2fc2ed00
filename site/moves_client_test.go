package site_test

import (
	"bufio"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/wire"
	"github.com/globalrefdb/globalrefdb/site/wire/wiretest"
)

// A movesReader reads the list of moves.
type movesReader struct {
	g     *guard
	id    string
	place string // all before it was dealt with
	conn  net.Conn
	r     *bufio.Reader
	asked bool // what follows the place
	marks int
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

// unconnected returns a reader that has said nothing yet.
func (g *guard) unconnected() *movesReader {
	g.tb.Helper()
	m := &movesReader{g: g, id: g.jgit().id}
	m.dial()
	return m
}

// connect asks in a new connection for what follows the reader's place.
func (m *movesReader) connect() {
	m.g.tb.Helper()
	m.dial()
	m.say(wire.BeginMoves{Guard: m.id, After: m.place})
	m.asked = true
}

func (m *movesReader) dial() {
	m.g.tb.Helper()
	conn, err := net.Dial("unix", filepath.Join(m.g.dir, "sock"))
	if err != nil {
		m.g.tb.Fatal(err)
	}
	m.g.tb.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(sitetest.Patience))
	m.conn, m.r = conn, bufio.NewReader(conn)
}

func (m *movesReader) say(message wire.Message) {
	m.g.tb.Helper()
	if err := wiretest.Write(m.conn, message); err != nil {
		m.g.tb.Fatal(err)
	}
}

func (m *movesReader) hear() wire.Message {
	m.g.tb.Helper()
	answer, err := wiretest.ReadMoves(m.r)
	if err != nil {
		m.g.tb.Fatalf("waiting for moves: %v", err)
	}
	m.asked = false
	return answer
}

// next returns what follows the reader's place.
func (m *movesReader) next() []wire.Move {
	m.g.tb.Helper()
	if !m.asked {
		m.say(wire.After{Place: m.place})
	}
	answer, ok := m.hear().(wire.Moves)
	if !ok {
		m.g.tb.Fatalf("the daemon said %+v, want moves", answer)
	}
	m.place = answer.Place
	return answer.Entries
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

// listed reads all that is on the list after the reader's place: "REF", or "REF!" if the guard that moved it has reported it. A ref that moves
// last marks the end.
func (m *movesReader) listed() (seen []string) {
	m.g.tb.Helper()
	m.marks++
	mark := fmt.Sprintf("refs/cache-automerge/mark-%d", m.marks)
	m.g.git("update-ref", mark, m.g.commit[0])
	for {
		for _, e := range m.next() {
			if e.Ref == mark {
				return seen // nothing can have come after it in the same answer
			}
			seen = append(seen, short(m.g, e))
		}
	}
}

// lists checks what was listed since the reader's place.
func (m *movesReader) lists(want ...string) {
	m.g.tb.Helper()
	if got := m.listed(); !slices.Equal(got, want) {
		m.g.tb.Errorf("%q are listed, want %q", got, want)
	}
}

// waits reads until an entry is on the list.
func (m *movesReader) waits(want string) {
	m.g.tb.Helper()
	for {
		for _, e := range m.next() {
			if short(m.g, e) == want {
				return
			}
		}
	}
}
