package wire

import (
	"bufio"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"
)

// ReadBegin reads a guard's first message. The error wraps [ErrVersion], [ErrMalformed] or
// [ErrTooLarge] if the guard is at fault; its message is then one line, which can be sent as the
// answer. [io.EOF] means that the connection was closed without data.
func ReadBegin(r *bufio.Reader) (Begin, error) {
	head, lines, err := ReadLines(r)
	if err != nil {
		return Begin{}, err
	}
	version, ours := strings.CutPrefix(head, SessionMagic)
	if !ours {
		return Begin{}, malformed("a session can't begin with " + excerpt(head))
	}
	if version != strconv.Itoa(SessionVersion) {
		return Begin{}, &wrapped{ErrVersion, "the guard speaks version " + excerpt(version) + " of the protocol of sessions, the daemon " +
			strconv.Itoa(SessionVersion) + ": install the guard that came with the daemon"}
	}
	m := Begin{}
	if len(lines) == 0 || lines[len(lines)-1] != "ready" {
		return m, malformed("the first message does not end with ready")
	}
	lines = lines[:len(lines)-1]
	seen := map[string]bool{}
	for i := 0; i < len(lines); i++ {
		key, value, _ := strings.Cut(lines[i], " ")
		ok := true
		switch key {
		case "guard":
			m.Guard = value
		case "number":
			m.Number, ok = parseNumber(value)
		case "name":
			m.Name = value
		case "root":
			m.Root = value
		case "instance":
			m.Instance, ok = value, value != ""
		case "server":
			m.Server, ok = value, value != ""
		case "open":
			var o Open
			o.TX, o.Dir, _ = strings.Cut(value, " ")
			for i+1 < len(lines) {
				l, is := parseLine(lines[i+1])
				if !is {
					break
				}
				o.Lines = append(o.Lines, l)
				i++
			}
			m.Open = append(m.Open, o)
		default:
			ok = false
		}
		if !ok || key != "open" && (seen[key] || len(m.Open) > 0) {
			return m, malformed("a first message can't hold " + excerpt(lines[i]))
		}
		seen[key] = true
	}
	return m, m.check()
}

// ReadFromGuard reads a later message of a guard: [Announce], [Report], [Create], [Deleted], [Ping]
// or [Pong]. Its errors are like those of [ReadBegin].
func ReadFromGuard(r *bufio.Reader) (Message, error) {
	head, lines, err := ReadLines(r)
	if err != nil {
		return nil, err
	}
	verb, rest, _ := strings.Cut(head, " ")
	var m Message
	ok := true
	switch verb {
	case "announce":
		var a Announce
		a, ok = parseAnnounce(rest, lines)
		m = a
	case "report":
		m, ok = Report{rest}, len(lines) == 0
	case "create":
		m, ok = parseCreate(rest, lines)
	case "deleted":
		m, ok = parseDeleted(rest, lines)
	default:
		m, ok = parseLiveness(head, lines)
	}
	return checked(m, ok, head)
}

func parseLiveness(head string, lines []string) (Message, bool) {
	switch {
	case len(lines) > 0:
	case head == "ping":
		return Ping{}, true
	case head == "pong":
		return Pong{}, true
	}
	return nil, false
}

func checked(m Message, ok bool, head string) (Message, error) {
	if !ok {
		return nil, malformed("a message can't be " + excerpt(head))
	}
	if err := m.check(); err != nil {
		return nil, err
	}
	return m, nil
}

func parseAnnounce(fields string, lines []string) (a Announce, ok bool) {
	var limit string
	a.TX, fields, _ = strings.Cut(fields, " ")
	limit, a.Dir, _ = strings.Cut(fields, " ")
	if a.Limit, ok = parseMilliseconds(limit); !ok {
		return a, false
	}
	if len(lines) > 0 {
		if by, is := strings.CutPrefix(lines[0], "by "); is {
			if a.By, lines = by, lines[1:]; by == "" {
				return a, false
			}
		}
	}
	a.Lines = make([]Line, len(lines))
	for i, line := range lines {
		if a.Lines[i], ok = parseLine(line); !ok {
			// check names the line in its error.
			a.Lines[i] = Line{Ref: line}
			break
		}
	}
	return a, true
}

// parseMilliseconds parses the output of [milliseconds], up to 24 days.
func parseMilliseconds(s string) (time.Duration, bool) {
	n, err := strconv.ParseUint(s, 10, 31)
	return time.Duration(n) * time.Millisecond, err == nil && s == strconv.FormatUint(n, 10)
}

func parseNumber(s string) (uint64, bool) {
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil && s == strconv.FormatUint(n, 10)
}

// ReadLines reads a message as lines, up to an empty line, which it omits. [io.EOF] means that the
// other side closed the connection between two messages.
func ReadLines(r *bufio.Reader) (head string, lines []string, err error) {
	size := 0
	for {
		line, err := readLine(r, MaxMessage-size)
		switch {
		case err == io.EOF && line == "" && size == 0:
			return "", nil, io.EOF
		case err == io.EOF:
			return "", nil, malformed("a message that breaks off at " + excerpt(line))
		case err != nil:
			return "", nil, err
		case line == "" && size == 0:
			return "", nil, malformed("an empty line where a message should begin")
		case line == "":
			return head, lines, nil
		case size == 0:
			head = line
		default:
			lines = append(lines, line)
		}
		size += len(line) + 1
	}
}

// readLine reads a line of at most limit bytes, including the line end, which it omits from the
// result.
func readLine(r *bufio.Reader, limit int) (string, error) {
	var b []byte
	for {
		part, err := r.ReadSlice('\n')
		b = append(b, part...)
		if len(b) > limit {
			return "", tooLargeMessage()
		}
		if err == nil {
			return string(b[:len(b)-1]), nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return string(b), err
		}
	}
}
