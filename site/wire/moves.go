package wire

import (
	"bufio"
	"strconv"
	"strings"
)

// A reader of the list of moves has a connection of its own. It asks for the moves after a place,
// and asks again after it has processed them. Its messages are framed like those of a session.
// docs/SOCKET.md has the rules for both sides.

// MovesVersion is the version of the protocol of the list of moves.
const MovesVersion = 1

// MovesMagic is the beginning of a reader's first message.
const MovesMagic = "refdb-moves "

// RejectUnwritable means that the daemon can't write the list; the reader may ask again. The other
// reasons are those of sessions.
const RejectUnwritable = "unwritable"

// maxPlace is the maximum length of a place.
const maxPlace = 200

type (
	// BeginMoves is a reader's first message. It makes the same request as [After].
	BeginMoves struct {
		Guard string // the guard's ID, as in its sessions
		After string
	}
	// After asks for the moves after a place; "" is the present place. It confirms that all earlier
	// moves were processed.
	After struct{ Place string }
	// Moves is the answer: the moves between the requested place and this one, in order.
	Moves struct {
		Place   string
		Entries []Move
	}
	// Move means that a ref may have moved.
	Move struct {
		Who string // the guard that moved the ref and reported that; "" if it was another process, or is unknown
		Ref string // "" if the repository is new there, is gone, or has replaced another one
		Dir string // the repository's real path
	}
	// Reset is the other answer: the moves after the requested place are unknown. Later moves come
	// after Place.
	Reset struct{ Place string }
)

// ReadBeginMoves reads a reader's first message. Its errors are like those of [ReadBegin].
func ReadBeginMoves(r *bufio.Reader) (BeginMoves, error) {
	head, lines, err := ReadLines(r)
	if err != nil {
		return BeginMoves{}, err
	}
	version, ours := strings.CutPrefix(head, MovesMagic)
	if !ours {
		return BeginMoves{}, malformed("a reader of moves can't begin with " + excerpt(head))
	}
	if version != strconv.Itoa(MovesVersion) {
		return BeginMoves{}, &wrapped{ErrVersion, "the reader speaks version " + excerpt(version) + " of the protocol of moves, the daemon " +
			strconv.Itoa(MovesVersion) + ": install the guard that came with the daemon"}
	}
	if len(lines) != 2 {
		return BeginMoves{}, malformed("a reader's first message has " + strconv.Itoa(len(lines)) + " lines: two are needed, guard and after")
	}
	guard, is := strings.CutPrefix(lines[0], "guard ")
	place, asks := strings.CutPrefix(lines[1], "after ")
	if !is || !asks {
		return BeginMoves{}, malformed("a reader's first message can't hold " + excerpt(lines[0]) + " and " + excerpt(lines[1]))
	}
	m := BeginMoves{guard, unlessDash(place)}
	if place == "" {
		return m, malformed("after nothing: a place or - is needed")
	}
	return m, m.check()
}

// ReadFromReader reads a later message of a reader: [After]. Its errors are like those of
// [ReadBegin].
func ReadFromReader(r *bufio.Reader) (After, error) {
	head, lines, err := ReadLines(r)
	if err != nil {
		return After{}, err
	}
	place, ok := strings.CutPrefix(head, "after ")
	if !ok || place == "" || len(lines) > 0 {
		return After{}, malformed("a message can't be " + excerpt(head))
	}
	m := After{unlessDash(place)}
	return m, m.check()
}

func unlessDash(s string) string {
	if s == "-" {
		return ""
	}
	return s
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func (m Moves) text() (string, []string) {
	lines := make([]string, len(m.Entries))
	for i, e := range m.Entries {
		lines[i] = orDash(e.Who) + " " + orDash(e.Ref) + " " + e.Dir
	}
	return "moves " + m.Place, lines
}

func (m Reset) text() (string, []string) { return "reset " + m.Place, nil }

func (m BeginMoves) check() error {
	if !isGuard(m.Guard) {
		return malformed("guard " + excerpt(m.Guard) + ": 32 lower-case hex digits are needed")
	}
	return After{m.After}.check()
}

func (m After) check() error {
	if m.Place == "" {
		return nil
	}
	return checkPlace(m.Place)
}

func (m Moves) check() error {
	for _, e := range m.Entries {
		switch {
		case e.Who != "" && !isGuard(e.Who):
			return malformed("who " + excerpt(e.Who) + ": 32 lower-case hex digits are needed, or -")
		case e.Ref != "" && (!name(e.Ref) || e.Ref == "-"):
			return malformed("ref " + excerpt(e.Ref))
		case !isPath(e.Dir):
			return malformed("directory " + excerpt(e.Dir) + ": an absolute path without line breaks is needed")
		}
	}
	return checkPlace(m.Place)
}

func (m Reset) check() error { return checkPlace(m.Place) }

// checkPlace returns an error unless s is a single word.
func checkPlace(s string) error {
	if s == "-" || len(s) > maxPlace || !name(s) {
		return malformed("place " + excerpt(s) + ": a word of at most " + strconv.Itoa(maxPlace) + " bytes is needed")
	}
	return nil
}

// isGuard reports whether s may be a guard's ID.
func isGuard(s string) bool { return len(s) == 32 && strings.Trim(s, "0123456789abcdef") == "" }
