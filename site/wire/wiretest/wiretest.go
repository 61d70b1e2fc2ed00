// Package wiretest is the other side of sessions and of the list of moves, for tests: it sends what
// a guard or a reader of moves sends, and reads what a daemon sends.
package wiretest

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/site/wire"
)

// ReadWelcome reads the answer to [wire.Begin]: [wire.Welcome] or [wire.Rejected].
func ReadWelcome(r *bufio.Reader) (wire.Message, error) {
	head, lines, err := wire.ReadLines(r)
	if err != nil {
		return nil, err
	}
	if reason, ok := strings.CutPrefix(head, "rejected "); ok {
		return checked(wire.Rejected{Reason: reason, Lines: lines}, true, head)
	}
	if head != "welcome" {
		return nil, malformed(head)
	}
	var w wire.Welcome
	for _, line := range lines {
		key, value, _ := strings.Cut(line, " ")
		ok := true
		switch key { // unknown ones are of a later daemon
		case "site":
			w.Site = value
		case "root":
			w.Root = value
		case "lock-wait":
			w.LockWait, ok = milliseconds(value)
		case "timeout":
			w.Timeout, ok = milliseconds(value)
		case "database":
			if w.Database = value; value == "ok" {
				w.Database = ""
			}
		case "projects":
			n, err := strconv.ParseUint(value, 10, 16)
			w.Projects, ok = int(n), err == nil && n > 0 && value == strconv.FormatUint(n, 10)
		}
		if !ok {
			return nil, malformed(line)
		}
	}
	return checked(w, true, head)
}

// ReadFromDaemon reads a later message of a session: [wire.WaitOn], [wire.Granted], [wire.Refused],
// [wire.Settled], [wire.Ping], [wire.Pong] or [wire.Fault].
func ReadFromDaemon(r *bufio.Reader) (wire.Message, error) {
	head, lines, err := wire.ReadLines(r)
	if err != nil {
		return nil, err
	}
	verb, rest, _ := strings.Cut(head, " ")
	var m wire.DaemonMessage
	ok := true
	switch verb {
	case "wait":
		tx, text, _ := strings.Cut(rest, " ")
		m, ok = wire.WaitOn{TX: tx, Text: text}, len(lines) == 0
	case "ok":
		m, ok = wire.Granted{TX: rest}, len(lines) == 0
	case "refused":
		fields := strings.Split(rest, " ")
		if ok = len(fields) == 3; ok {
			m = wire.Refused{TX: fields[0], Kind: fields[1], Reason: fields[2], Lines: lines}
		}
	case "settled":
		s := wire.Settled{TX: rest}
		for _, line := range lines {
			value, ref, _ := strings.Cut(line, " ")
			s.Values = append(s.Values, wire.RefValue{Value: value, Ref: ref})
		}
		m = s
	case "ping":
		m, ok = wire.Ping{}, head == "ping" && len(lines) == 0
	case "pong":
		m, ok = wire.Pong{}, head == "pong" && len(lines) == 0
	default:
		m, ok = fault(verb, rest, lines)
	}
	return checked(m, ok, head)
}

// ReadMoves reads an answer about moves: [wire.Moves], [wire.Reset], [wire.Rejected] or
// [wire.Fault].
func ReadMoves(r *bufio.Reader) (wire.Message, error) {
	head, lines, err := wire.ReadLines(r)
	if err != nil {
		return nil, err
	}
	verb, rest, _ := strings.Cut(head, " ")
	var m wire.DaemonMessage
	ok := true
	switch verb {
	case "moves":
		moves := wire.Moves{Place: rest}
		for _, line := range lines {
			who, line, _ := strings.Cut(line, " ")
			ref, dir, _ := strings.Cut(line, " ")
			if who == "" || ref == "" {
				ok = false
			}
			moves.Entries = append(moves.Entries, wire.Move{Who: unlessDash(who), Ref: unlessDash(ref), Dir: dir})
		}
		m = moves
	case "reset":
		m, ok = wire.Reset{Place: rest}, len(lines) == 0
	case "rejected":
		m = wire.Rejected{Reason: rest, Lines: lines}
	default:
		m, ok = fault(verb, rest, lines)
	}
	return checked(m, ok, head)
}

func fault(verb, rest string, lines []string) (wire.DaemonMessage, bool) {
	return wire.Fault{Text: rest}, verb == "error" && len(lines) == 0
}

// checked returns an error for a message that no daemon sends.
func checked(m wire.DaemonMessage, ok bool, head string) (wire.Message, error) {
	if !ok {
		return nil, malformed(head)
	}
	if _, err := wire.AppendMessage(nil, m); err != nil {
		return nil, err
	}
	return m, nil
}

// Write sends a message of either side, in a single write. The error wraps [wire.ErrMalformed] or
// [wire.ErrTooLarge] if the other side could not read it.
func Write(w io.Writer, m wire.Message) error {
	if m, is := m.(wire.DaemonMessage); is {
		return wire.WriteMessage(w, m)
	}
	head, lines, read := text(m)
	b := []byte(head + "\n")
	for _, line := range lines {
		b = append(append(b, line...), '\n')
	}
	b = append(b, '\n')
	got, err := read(bufio.NewReader(bytes.NewReader(b)))
	if err == nil && !reflect.DeepEqual(got, m) {
		err = fmt.Errorf("%w: it would be read as %+v", wire.ErrMalformed, got)
	}
	if err == nil {
		_, err = w.Write(b)
	}
	return err
}

// text returns the head and the lines of a message that a daemon reads, and what it reads the
// message with.
func text(m wire.Message) (head string, lines []string, read func(*bufio.Reader) (wire.Message, error)) {
	switch m := m.(type) {
	case wire.Begin:
		lines := []string{"guard " + m.Guard, fmt.Sprint("number ", m.Number), "name " + m.Name, "root " + m.Root}
		if m.Instance != "" {
			lines = append(lines, "instance "+m.Instance)
		}
		if m.Server != "" {
			lines = append(lines, "server "+m.Server)
		}
		for _, o := range m.Open {
			lines = append(append(lines, "open "+o.TX+" "+o.Dir), moved(o.Lines)...)
		}
		return fmt.Sprint(wire.SessionMagic, wire.SessionVersion), append(lines, "ready"), readBegin
	case wire.BeginMoves:
		return fmt.Sprint(wire.MovesMagic, wire.MovesVersion), []string{"guard " + m.Guard, "after " + cmp.Or(m.After, "-")}, readBeginMoves
	case wire.After:
		return "after " + cmp.Or(m.Place, "-"), nil, readAfter
	case wire.Announce:
		if m.By != "" {
			lines = append(lines, "by "+m.By)
		}
		return fmt.Sprint("announce ", m.TX, " ", m.Limit.Milliseconds(), " ", m.Dir), append(lines, moved(m.Lines)...), wire.ReadFromGuard
	case wire.Report:
		return "report " + m.TX, nil, wire.ReadFromGuard
	case wire.Create:
		return fmt.Sprint("create ", m.TX, " ", m.Limit.Milliseconds(), " ", m.Dir), nil, wire.ReadFromGuard
	case wire.Deleted:
		return fmt.Sprint("deleted ", m.TX, " ", m.Limit.Milliseconds(), " ", m.Dir), []string{"id " + m.ID}, wire.ReadFromGuard
	}
	panic(fmt.Sprintf("nobody sends %T", m))
}

func moved(lines []wire.Line) (all []string) {
	for _, l := range lines {
		all = append(all, l.Old+" "+l.New+" "+l.Ref)
	}
	return all
}

func readBegin(r *bufio.Reader) (wire.Message, error)      { return wire.ReadBegin(r) }
func readBeginMoves(r *bufio.Reader) (wire.Message, error) { return wire.ReadBeginMoves(r) }
func readAfter(r *bufio.Reader) (wire.Message, error)      { return wire.ReadFromReader(r) }

func malformed(line string) error {
	return fmt.Errorf("%w: a daemon does not send %.80q", wire.ErrMalformed, line)
}

func milliseconds(s string) (time.Duration, bool) {
	n, err := strconv.ParseUint(s, 10, 31)
	return time.Duration(n) * time.Millisecond, err == nil && s == strconv.FormatUint(n, 10)
}

func unlessDash(s string) string {
	if s == "-" {
		return ""
	}
	return s
}
