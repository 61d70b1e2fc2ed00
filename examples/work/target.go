package main

import (
	"fmt"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// A State says what is to be done about a target.
type State string

const (
	Active State = "active" // there is work left
	Done   State = "done"
	Parked State = "parked" // it can't be worked on until somebody looks at it
)

// maxNoteBytes keeps a target's row small: larger results belong elsewhere, with a name in the note.
const maxNoteBytes = 1000

// Progress is what a target's ref holds.
type Progress struct {
	State State
	Note  string // of an active target how far the work has come, of a parked one the reason
}

// value returns the ref's value, such as "active 3". The error wraps refdb.ErrInvalid.
func (p Progress) value() (refdb.Value, error) {
	if len(p.Note) > maxNoteBytes {
		return refdb.Unknown, fmt.Errorf("%w note of %d bytes: keep it below %d, and store the rest elsewhere", refdb.ErrInvalid, len(p.Note), maxNoteBytes+1)
	}
	return refdb.Value(strings.TrimSuffix(string(p.State)+" "+p.Note, " ")), nil
}

// parse is the reverse of Progress.value.
func parse(v refdb.Value) Progress {
	state, note, _ := strings.Cut(string(v), " ")
	return Progress{State(state), note}
}
