package refusal

import (
	"errors"
	"strings"

	"github.com/globalrefdb/globalrefdb/site/wire"
)

// Rejected is why a session does not begin. Its text is for people.
type Rejected struct {
	Reason string
	Err    error
}

func (r Rejected) Error() string { return r.Err.Error() }

func (r Rejected) Unwrap() error { return r.Err }

// Rejection returns the answer to a first message that err forbids.
func Rejection(err error) wire.Rejected {
	reason := wire.RejectMalformed
	var why Rejected
	switch {
	case errors.As(err, &why):
		reason = why.Reason
	case errors.Is(err, wire.ErrVersion):
		reason = wire.RejectVersion
	}
	return wire.Rejected{Reason: reason, Lines: TextOf(err)}
}

// KindOf says whether time mends what refuses a transaction.
func KindOf(err error) string {
	switch ReasonOf(err) {
	case Changed, Behind, Locked, Undecided:
		return wire.Retry
	}
	return wire.Final
}

// TextOf returns lines as a message can hold them.
func TextOf(err error) []string {
	var lines []string
	for _, line := range LinesOf(err) {
		if line = strings.ToValidUTF8(wire.OneLine(strings.ReplaceAll(line, "\x00", " ")), "\uFFFD"); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}
