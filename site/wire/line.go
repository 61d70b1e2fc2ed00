package wire

import (
	"bytes"
	"strconv"
	"strings"
)

// A Line is one ref of a transaction, in the format of Git's hooks. Old and New are object IDs in
// lower-case hex; all zeros means "absent" and, as Old, also "any value". For a symbolic ref they
// are "ref:" and its target.
type Line struct {
	Old, New, Ref string // Ref is bytes, not necessarily UTF-8
}

// OldZero reports whether the line has no old value: the ref is created, or its old value is not
// checked.
func (l Line) OldZero() bool { return zero(l.Old) }

// NewZero reports whether the line has no new value: the ref is deleted.
func (l Line) NewZero() bool { return zero(l.New) }

// Symbolic reports whether the ref is, or becomes, a symbolic one.
func (l Line) Symbolic() bool {
	return strings.HasPrefix(l.Old, symbolic) || strings.HasPrefix(l.New, symbolic)
}

const symbolic = "ref:"

func zero(value string) bool { return strings.Trim(value, "0") == "" }

// ParseLines reads the lines "OLD NEW REF". The error wraps [ErrMalformed] and names the first
// invalid line. ParseLines does not check whether Git allows the name REF.
func ParseLines(b []byte) ([]Line, error) {
	lines := make([]Line, 0, bytes.Count(b, []byte{'\n'}))
	for line := range strings.Lines(string(b)) {
		text, complete := strings.CutSuffix(line, "\n")
		l, ok := parseLine(text)
		if !ok || !complete {
			return nil, malformed("line " + strconv.Itoa(len(lines)+1) + ", " + excerpt(text) + ", is not OLD NEW REF")
		}
		lines = append(lines, l)
	}
	return lines, nil
}

func parseLine(s string) (Line, bool) {
	before, rest, _ := strings.Cut(s, " ")
	after, ref, _ := strings.Cut(rest, " ")
	l := Line{Old: before, New: after, Ref: ref}
	sameHash := len(before) == len(after) || l.Symbolic()
	return l, value(before) && value(after) && sameHash && name(ref)
}

func value(s string) bool {
	if target, ok := strings.CutPrefix(s, symbolic); ok {
		return name(target)
	}
	return (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}

// name reports whether s may be a ref's name in a line.
func name(s string) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f }) < 0
}
