package wire

import (
	"io"
	"strconv"
	"strings"
	"time"
)

// A session is a long-lived connection of a guard: a process that moves refs by itself, with many
// transactions in flight. It consists of messages: a head line, further lines, and an empty line.
// docs/SOCKET.md has the rules for both sides.

// SessionVersion is the version of the protocol of sessions.
const SessionVersion = 1

// SessionMagic is the beginning of a guard's first message. It distinguishes a session from a
// hook's request.
const SessionMagic = "refdb-session "

// MaxMessage is the maximum size of a message of a session, in bytes.
const MaxMessage = 64 << 20

// Kinds of refusals.
const (
	Retry = "retry" // a later attempt may succeed
	Final = "final"
)

// Reasons for rejecting a session.
const (
	RejectVersion   = "version"
	RejectRoot      = "root"
	RejectInstance  = "instance"
	RejectServer    = "server"
	RejectGuard     = "guard"
	RejectNumber    = "number"
	RejectStarting  = "starting" // the guard may try again
	RejectMalformed = "malformed"
)

// A Message is a message of a session, or of the list of moves.
type Message interface {
	// check returns an error that wraps [ErrMalformed] unless the message can be read back from its
	// written form.
	check() error
}

// A DaemonMessage is a message sent by the daemon.
type DaemonMessage interface {
	Message
	// text returns the head line, and the other lines.
	text() (head string, lines []string)
}

type (
	// Begin is a guard's first message.
	Begin struct {
		Guard    string // 32 hex digits, random, one per run of the guarding process
		Number   uint64 // of the session; larger than all earlier ones of this guard
		Name     string // a description, for people
		Root     string // the real path of the directory of its repositories
		Instance string // the server's instance ID; "" if it has none
		Server   string
		Open     []Open
	}
	// Open is a transaction of [Begin] that was granted, and has neither ended nor been settled.
	Open struct {
		TX, Dir string
		Lines   []Line
	}
	// Welcome is the daemon's answer to [Begin].
	Welcome struct {
		Site, Root        string
		LockWait, Timeout time.Duration
		Database          string // the reason why it fails; "" if it answers
		Projects          int    // version of the messages about projects; 0 if unsupported
	}
	// Rejected is the other answer, after which the daemon closes the connection.
	Rejected struct {
		Reason string
		Lines  []string // for people
	}
	// Announce asks whether refs may move.
	Announce struct {
		TX    string
		Limit time.Duration // how long the guard waits for the answer; whole milliseconds
		Dir   string        // the repository's real path
		By    string        // the requester; "" if unknown
		Lines []Line
	}
	// Report means that the guard is finished with a transaction, whatever its outcome.
	Report struct{ TX string }
	// WaitOn tells a guard to wait for another period of its limit.
	WaitOn struct{ TX, Text string }
	// Granted means that every ref of a transaction may move now.
	Granted struct{ TX string }
	// Refused means that no ref may move. It ends the transaction.
	Refused struct {
		TX, Kind, Reason string
		Lines            []string // for the user
	}
	// Settled answers a [Report] with the values in the repository.
	Settled struct {
		TX     string
		Values []RefValue
	}
	// RefValue is the value of a ref; all zeros if the ref is absent.
	RefValue struct{ Value, Ref string }
	// Ping asks for a [Pong].
	Ping struct{}
	Pong struct{}
	// Fault describes a malformed message before the daemon closes the connection.
	Fault struct{ Text string }
)

// WriteMessage sends m, in a single write.
func WriteMessage(w io.Writer, m DaemonMessage) error {
	b, err := AppendMessage(nil, m)
	if err == nil {
		_, err = w.Write(b)
	}
	return err
}

// AppendMessage appends the written form of m. The error wraps [ErrMalformed] or [ErrTooLarge] if m
// could not be read back.
func AppendMessage(b []byte, m DaemonMessage) ([]byte, error) {
	if err := m.check(); err != nil {
		return b, err
	}
	head, lines := m.text()
	size := len(head) + 2
	for _, line := range lines {
		size += len(line) + 1
	}
	if size > MaxMessage {
		return b, tooLargeMessage()
	}
	b = append(append(b, head...), '\n')
	for _, line := range lines {
		b = append(append(b, line...), '\n')
	}
	return append(b, '\n'), nil
}

func tooLargeMessage() error {
	return &wrapped{ErrTooLarge, "a message of more than " + strconv.Itoa(MaxMessage>>20) + " MB"}
}

func (m Welcome) text() (string, []string) {
	database := "ok"
	if m.Database != "" {
		database = m.Database
	}
	lines := []string{"site " + m.Site, "root " + m.Root, "lock-wait " + milliseconds(m.LockWait),
		"timeout " + milliseconds(m.Timeout), "database " + database}
	if m.Projects > 0 {
		lines = append(lines, "projects "+strconv.Itoa(m.Projects))
	}
	return "welcome", lines
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

func (m Rejected) text() (string, []string) { return "rejected " + m.Reason, m.Lines }

func (m WaitOn) text() (string, []string)  { return "wait " + m.TX + " " + m.Text, nil }
func (m Granted) text() (string, []string) { return "ok " + m.TX, nil }
func (m Refused) text() (string, []string) {
	return "refused " + m.TX + " " + m.Kind + " " + m.Reason, m.Lines
}

func (m Settled) text() (string, []string) {
	lines := make([]string, len(m.Values))
	for i, v := range m.Values {
		lines[i] = v.Value + " " + v.Ref
	}
	return "settled " + m.TX, lines
}

func (Ping) text() (string, []string)    { return "ping", nil }
func (Pong) text() (string, []string)    { return "pong", nil }
func (m Fault) text() (string, []string) { return "error " + m.Text, nil }

func (m Begin) check() error {
	switch {
	case !isGuard(m.Guard):
		return malformed("guard " + excerpt(m.Guard) + ": 32 lower-case hex digits are needed")
	case m.Number == 0:
		return malformed("number 0: sessions count from 1")
	case !isText(m.Name):
		return malformed("name " + excerpt(m.Name))
	case !isPath(m.Root):
		return malformed("root " + excerpt(m.Root) + ": an absolute path without line breaks is needed")
	case m.Instance != "" && !isText(m.Instance):
		return malformed("instance " + excerpt(m.Instance))
	case m.Server != "" && !isText(m.Server):
		return malformed("server " + excerpt(m.Server))
	}
	seen := make(map[string]bool, len(m.Open))
	for _, o := range m.Open {
		if err := checkTransaction(o.TX, o.Dir, o.Lines); err != nil {
			return err
		}
		if seen[o.TX] {
			return malformed("transaction " + o.TX + " is open twice")
		}
		seen[o.TX] = true
	}
	return nil
}

func (m Welcome) check() error {
	if !isText(m.Site) || !isPath(m.Root) || m.Database != "" && !isText(m.Database) || m.LockWait < 0 || m.Timeout < 0 || m.Projects < 0 {
		return malformed("a welcome of site " + excerpt(m.Site))
	}
	return nil
}

func (m Rejected) check() error { return checkWords(m.Lines, m.Reason) }

func (m Announce) check() error {
	switch {
	case m.Limit < 0:
		return malformed("a limit of " + milliseconds(m.Limit) + " ms")
	case m.By != "" && !isText(m.By):
		return malformed("by " + excerpt(m.By))
	}
	return checkTransaction(m.TX, m.Dir, m.Lines)
}

func checkTransaction(tx, dir string, lines []Line) error {
	switch {
	case !isTX(tx):
		return malformed("transaction " + excerpt(tx) + ": 1 to 64 letters, digits and dashes are needed")
	case !isPath(dir):
		return malformed("directory " + excerpt(dir) + ": an absolute path without line breaks is needed")
	case len(lines) == 0:
		return malformed("transaction " + tx + " without a ref")
	}
	for _, l := range lines {
		text := l.Old + " " + l.New + " " + l.Ref
		if again, ok := parseLine(text); !ok || again != l {
			return malformed("transaction " + tx + ": " + excerpt(text) + " is not OLD NEW REF")
		}
	}
	return nil
}

func (m Report) check() error  { return checkTX(m.TX) }
func (m Granted) check() error { return checkTX(m.TX) }

func (m WaitOn) check() error {
	if strings.ContainsAny(m.Text, "\n\r") {
		return malformed("wait " + excerpt(m.Text))
	}
	return checkTX(m.TX)
}

func (m Refused) check() error {
	if m.Kind != Retry && m.Kind != Final {
		return malformed("a refusal of kind " + excerpt(m.Kind))
	}
	if err := checkTX(m.TX); err != nil {
		return err
	}
	return checkWords(m.Lines, m.Reason)
}

func (m Settled) check() error {
	for _, v := range m.Values {
		if !value(v.Value) || !name(v.Ref) {
			return malformed(excerpt(v.Value+" "+v.Ref) + " is not VALUE REF")
		}
	}
	return checkTX(m.TX)
}

func (Ping) check() error { return nil }
func (Pong) check() error { return nil }

func (m Fault) check() error {
	if !isText(m.Text) {
		return malformed("error " + excerpt(m.Text))
	}
	return nil
}

func checkTX(tx string) error {
	if !isTX(tx) {
		return malformed("transaction " + excerpt(tx) + ": 1 to 64 letters, digits and dashes are needed")
	}
	return nil
}

// checkWords validates an answer of one word with lines for people.
func checkWords(lines []string, reason string) error {
	if reason == "" || strings.Trim(reason, "abcdefghijklmnopqrstuvwxyz_") != "" {
		return malformed("reason " + excerpt(reason) + ": one word is needed")
	}
	for _, line := range lines {
		if !isText(line) {
			return malformed("line " + excerpt(line))
		}
	}
	return nil
}

// isTX reports whether s is a valid name of a transaction.
func isTX(s string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	return s != "" && len(s) <= 64 && strings.Trim(s, letters+"0123456789-") == ""
}

func isPath(s string) bool {
	return strings.HasPrefix(s, "/") && !strings.ContainsAny(s, "\n\x00")
}

// isText reports whether s is a line and not empty.
func isText(s string) bool { return s != "" && !strings.ContainsAny(s, "\n\r\x00") }
