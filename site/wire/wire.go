// Package wire implements the protocols of the daemon's socket: the requests of hooks (one per
// connection), the sessions of guards, and the list of moves. It has almost no dependencies,
// because a hook starts several times per push.
package wire

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"
)

// Version is the version of the hooks' protocol. Daemons still accept requests of earlier versions,
// because hooks are replaced after them. A request of version 1 names no process; a hook of version
// 2 does not know [Wait].
const (
	Version        = 3
	impatient      = 2
	withoutProcess = 1
)

// The states of requests. A daemon of an earlier version refuses states that it does not know.
const (
	// The states of Git's reference-transaction hook, and its pre-receive and update hooks.
	StatePrepared   = "prepared"
	StateCommitted  = "committed"
	StateAborted    = "aborted"
	StatePreReceive = "pre-receive"
	StateUpdate     = "update"

	StateStatus   = "status"   // the daemon's status
	StateMaintain = "maintain" // maintain a repository
	StateFollow   = "follow"   // compare a repository as a whole, if it is to follow
	StateCatchUp  = "catch-up" // bring some refs of a repository to what the database holds
	StateRead     = "read"     // the daemon's mark of a repository (D23)
	StateGuards   = "guards"   // whether a guard may have lock files in a repository
)

// The daemon's answers to [StateGuards].
const (
	GuardsMayWork = "guards may work there"
	NoGuardsWork  = "no guard works there"
)

// DefaultLimit is how long hooks and commands wait for the daemon's answer, unless [LimitVariable]
// is set.
const DefaultLimit = 5 * time.Second

// LimitVariable is the environment variable that overrides [DefaultLimit].
const LimitVariable = "REFDB_HOOK_TIMEOUT"

// Limit returns how long a process with this environment waits for the daemon's answer.
func Limit(getenv func(string) string) (time.Duration, error) {
	s := getenv(LimitVariable)
	if s == "" {
		return DefaultLimit, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < time.Millisecond {
		return 0, errors.New(NotADuration(LimitVariable, s))
	}
	return d, nil
}

// Limits of what is read, in bytes.
const (
	MaxHeader = 1 << 20
	MaxBody   = 64 << 20 // also the limit of a response
)

var (
	// ErrVersion means that the other side speaks another version of the protocol. The message
	// names both.
	ErrVersion = errors.New("different versions of refdb-hook and the site daemon")
	// ErrMalformed means that a message is not of this protocol, or incomplete.
	ErrMalformed = errors.New("malformed message")
	// ErrTooLarge means that a message exceeds its limit.
	ErrTooLarge = errors.New("too large")
)

const magic = "refdb-hook "

// wrapped adds details to one of the errors above. Package fmt would make up half of the hook's
// size.
type wrapped struct {
	err     error
	details string
}

func (w *wrapped) Error() string { return w.err.Error() + ": " + w.details }
func (w *wrapped) Unwrap() error { return w.err }

func malformed(details string) error { return &wrapped{ErrMalformed, details} }

// excerpt quotes the beginning of s.
func excerpt(s string) string {
	if len(s) > 100 {
		return strconv.Quote(s[:100]) + "…"
	}
	return strconv.Quote(s)
}

// readAll reads to the end, at most limit bytes.
func readAll(r io.Reader, limit int64, what string) ([]byte, error) {
	var b bytes.Buffer
	n, err := b.ReadFrom(io.LimitReader(r, limit+1))
	if err == nil && n > limit {
		err = &wrapped{ErrTooLarge, what + " of more than " + strconv.FormatInt(limit>>20, 10) + " MB"}
	}
	return b.Bytes(), err
}

// A Request is a question or a report of a hook to the daemon.
type Request struct {
	State string
	// Dir is the absolute real path of the common Git directory; empty if the request is about the
	// daemon.
	Dir string
	// Process is what the hook knew of itself when it started; nil in requests of version 1.
	Process *Process
	// Limit is how long the hook will still wait, in whole milliseconds; zero if unknown.
	Limit time.Duration
	// Body contains the lines that [ParseLines] reads.
	Body []byte

	// impatient means that the hook does not know [Wait].
	impatient bool
}

// Patient reports whether the hook keeps waiting when it is told to: see [Wait].
func (q Request) Patient() bool { return !q.impatient && q.Process != nil }

// A Process is a hook's process, and its parent.
type Process struct {
	PID, Parent int
	ParentStart string // in the kernel's own unit; "-" if unknown
}

func (p *Process) parse(value string) bool {
	fields := strings.Split(value, " ")
	if len(fields) != 3 || fields[2] == "" {
		return false
	}
	var err1, err2 error
	p.PID, err1 = strconv.Atoi(fields[0])
	p.Parent, err2 = strconv.Atoi(fields[1])
	p.ParentStart = fields[2]
	return err1 == nil && err2 == nil && p.PID > 0 && p.Parent >= 0
}

// Write sends the request, in a single write. The caller then closes the writing half of the
// connection, which ends the body.
func (q Request) Write(w io.Writer) error {
	if err := q.check(); err != nil {
		return err
	}
	b := make([]byte, 0, 128+len(q.Dir)+len(q.Body))
	b = append(b, magic...)
	b = strconv.AppendInt(b, q.version(), 10)
	b = append(b, "\nstate "+q.State+"\n"...)
	if q.Dir != "" {
		b = append(b, "dir "+q.Dir+"\n"...)
	}
	if p := q.Process; p != nil {
		b = append(b, "process "+strconv.Itoa(p.PID)+" "+strconv.Itoa(p.Parent)+" "+p.ParentStart+"\n"...)
	}
	if q.Limit > 0 {
		b = append(b, "limit "...)
		b = strconv.AppendInt(b, q.Limit.Milliseconds(), 10)
		b = append(b, '\n')
	}
	b = append(b, '\n')
	_, err := w.Write(append(b, q.Body...))
	return err
}

func (q Request) version() int64 {
	switch {
	case q.Process == nil:
		return withoutProcess
	case q.impatient:
		return impatient
	}
	return Version
}

// ReadRequest reads a request up to the end of r. The error wraps [ErrVersion], [ErrMalformed] or
// [ErrTooLarge] if the other side is at fault; its message can then be sent as the answer.
func ReadRequest(r io.Reader) (Request, error) {
	b, err := readAll(r, MaxHeader+MaxBody, "a request")
	if err != nil {
		return Request{}, err
	}
	head := string(b[:min(len(b), MaxHeader)])
	first, rest, complete := strings.Cut(head, "\n")
	version, ours := strings.CutPrefix(first, magic)
	if !ours || !complete {
		return Request{}, malformed("a request can't begin with " + excerpt(first))
	}
	number, err := strconv.Atoi(version)
	if err != nil || number < withoutProcess || number > Version || version != strconv.Itoa(number) {
		return Request{}, &wrapped{ErrVersion, "the hook speaks version " + excerpt(version) + " of the protocol, the daemon " +
			strconv.Itoa(Version) + ": install the hook that came with the daemon (refdbctl site enable)"}
	}
	q := Request{impatient: number == impatient}
	seen := map[string]bool{}
	for {
		line, more, complete := strings.Cut(rest, "\n")
		if !complete && len(head) < len(b) {
			return Request{}, &wrapped{ErrTooLarge, "a header of more than 1 MB"}
		}
		if !complete {
			return Request{}, malformed("the header ends early")
		}
		rest = more
		if line == "" {
			break
		}
		key, value, _ := strings.Cut(line, " ")
		if seen[key] || !q.set(key, value) {
			return Request{}, malformed("a header can't hold " + excerpt(line))
		}
		seen[key] = true
	}
	q.Body = b[len(head)-len(rest):]
	return q, q.check()
}

// set parses a line of the header, and reports whether it is valid.
func (q *Request) set(key, value string) bool {
	switch key {
	case "state":
		q.State = value
	case "dir":
		q.Dir = value
		return value != ""
	case "process":
		q.Process = new(Process)
		return q.Process.parse(value)
	case "limit":
		ms, err := strconv.ParseUint(value, 10, 31)
		q.Limit = time.Duration(ms) * time.Millisecond
		return err == nil
	default:
		return false
	}
	return true
}

// check validates a request, both before it is sent and after it was received.
func (q Request) check() error {
	switch {
	case q.State == "" || strings.ContainsAny(q.State, " \n\x00"):
		return malformed("state " + excerpt(q.State))
	case q.Dir != "" && (q.Dir[0] != '/' || strings.ContainsAny(q.Dir, "\n\x00") || len(q.Dir) > MaxHeader/2):
		return malformed("directory " + excerpt(q.Dir) + ": an absolute path without line breaks is needed")
	case len(q.Body) > MaxBody:
		return &wrapped{ErrTooLarge, TransactionTooLarge}
	}
	return nil
}

// A Response is the daemon's answer.
type Response struct {
	OK bool
	// Lines are addressed to the pusher, or contain the requested data.
	Lines []string
}

// Stopping reports whether the daemon stops, and leaves the request to the next one. Hooks of earlier
// versions take this for a refusal.
func (p Response) Stopping() bool {
	return !p.OK && len(p.Lines) == 1 && p.Lines[0] == DaemonStopping
}

// Write sends the response, in a single write. Closing the connection ends it.
func (p Response) Write(w io.Writer) error {
	first := "refused\n"
	if p.OK {
		first = "ok\n"
	}
	b := []byte(first)
	for _, line := range p.Lines {
		b = append(append(b, line...), '\n')
	}
	_, err := w.Write(b)
	return err
}

// wait is the prefix of a line before the answer.
const wait = "wait "

// Wait tells a hook, in a single write, that the answer takes longer. The hook then waits for
// another period of its limit. The text, a single line, is for the pusher, unless it is "".
func Wait(w io.Writer, text string) error {
	_, err := w.Write([]byte(wait + text + "\n"))
	return err
}

// ReadResponse reads a response up to the end of r. An answer that breaks off in its first line is
// an error, and so is a failure to read r to its end. If r is empty, the daemon went away, and the
// error is [io.EOF]. Waiting is called for each [Wait] of the daemon.
func ReadResponse(r io.Reader, waiting func(text string)) (Response, error) {
	b, err := readAnswer(r, waiting)
	if err != nil {
		return Response{}, err
	}
	if len(b) == 0 {
		return Response{}, io.EOF
	}
	first, rest, complete := strings.Cut(string(b), "\n")
	if !complete || first != "ok" && first != "refused" {
		return Response{}, malformed("an answer can't begin with " + excerpt(first))
	}
	p := Response{OK: first == "ok"}
	for line := range strings.Lines(rest) {
		p.Lines = append(p.Lines, strings.TrimSuffix(line, "\n"))
	}
	return p, nil
}

// readAnswer reads up to the end of r, and returns the data after the lines of [Wait].
func readAnswer(r io.Reader, waiting func(text string)) ([]byte, error) {
	var b []byte
	buffer := make([]byte, 4096)
	for {
		n, err := r.Read(buffer)
		b = append(b, buffer[:n]...)
		for {
			line, rest, complete := bytes.Cut(b, []byte("\n"))
			text, waits := strings.CutPrefix(string(line), wait)
			if !complete || !waits {
				break
			}
			b = rest
			waiting(text)
		}
		switch {
		case len(b) > MaxBody:
			return nil, &wrapped{ErrTooLarge, "an answer of more than " + strconv.FormatInt(MaxBody>>20, 10) + " MB"}
		case err == io.EOF:
			return b, nil
		case err != nil:
			return nil, err
		}
	}
}
