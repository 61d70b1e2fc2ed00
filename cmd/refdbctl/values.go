package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/past"
	"github.com/globalrefdb/globalrefdb/refdb"
)

// age is the value of a flag: a positive duration, which may be given in days.
type age time.Duration

func (a *age) String() string {
	if *a == 0 {
		return ""
	}
	return time.Duration(*a).String()
}

func (a *age) Type() string { return "age" }

func (a *age) Set(s string) error {
	d, err := past.Age(s)
	if err == nil {
		*a = age(d)
	}
	return err
}

// none stands for an absent value on the command line and in messages.
const none = "none"

// parseValue reads a value from the command line: a full object ID, in upper or
// lower case, or "ref: NAME". With any it takes other strings, too.
func parseValue(s string, any bool) (refdb.Value, error) {
	v := refdb.Value(s)
	if lower := refdb.Value(strings.ToLower(s)); lower.IsObjectID() {
		return lower, nil
	}
	_, symbolic := v.Target()
	switch {
	case s == "":
		return "", usage("an empty value can't be stored")
	case !any && !symbolic:
		return "", usage(fmt.Sprintf("value %q is neither a full object ID (40 or 64 hex digits; abbreviations can't be stored) "+
			`nor "ref: NAME": --string takes it as it is`, s))
	}
	return v, refdb.CheckValue(v)
}

// parseOld reads the value that a ref is expected to hold; "none" is no value.
func parseOld(s string, any bool) (refdb.Value, error) {
	if s == none {
		return refdb.Unknown, nil
	}
	return parseValue(s, any)
}

// describe returns a value as messages show it.
func describe(v refdb.Value) string {
	if v.IsAbsent() {
		return none
	}
	return string(v)
}

// refState says in one word whether a ref with this value exists.
func refState(v refdb.Value) string {
	switch {
	case v == refdb.Unknown:
		return "unknown"
	case v.IsDeleted():
		return "deleted"
	default:
		return "present"
	}
}

// moment is the value of --at: a state of the past.
type moment struct {
	text     string
	position refdb.Position
	isTime   bool
	time     past.Time
}

const momentHelp = `right after a position, as
refs log prints it, or, by the database's clock, at
` + past.Forms + `.`

func (m *moment) addFlag(cmd *cobra.Command) {
	cmd.Flags().Var(m, "at", "as they were at this `time`, or right after this position")
	must(cmd.RegisterFlagCompletionFunc("at", cobra.NoFileCompletions))
}

func (m *moment) given() bool { return m.text != "" }

func (m *moment) String() string { return m.text }

func (m *moment) Type() string { return "time" }

func (m *moment) Set(text string) error {
	position, ok, err := past.ParsePosition(text)
	read := moment{text: text, position: position, isTime: !ok}
	if read.isTime {
		if read.time, err = past.ParseTime(text); err != nil {
			err = errors.New("give a position, " + past.Forms)
		}
	}
	if err == nil {
		*m = read
	}
	return err
}

// resolve returns the position. All changes of the project up to that moment are complete then: it waits for
// transactions that have not ended, as long as for an answer of the database.
func (m *moment) resolve(ctx context.Context, a *app, db *refdb.DB, project string) (refdb.Position, error) {
	find := m.findPosition
	if m.isTime {
		now, err := a.now(ctx, db)
		if err != nil {
			return 0, err
		}
		t := m.time.Resolve(now)
		if t.After(now) {
			return 0, usage(fmt.Sprintf("--at %q: that is in the future: it is %s by the database's clock", m.text, now.UTC().Format(time.RFC3339)))
		}
		find = func(ctx context.Context, a *app, db *refdb.DB, project string) (refdb.Position, *refdb.Change, error) {
			return a.positionAt(ctx, db, project, t)
		}
	}
	patience, cancel := a.limited(ctx)
	defer cancel()
	for tries := 0; ; tries++ {
		p, late, err := find(ctx, a, db, project)
		if err != nil || late == nil {
			return p, err
		}
		if tries == 20 { // a second
			a.note("waiting: a transaction that began before position %d has not ended", late.Position)
		}
		if sleep(patience, 50*time.Millisecond) == nil {
			continue
		}
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		return 0, &status{exitError, fmt.Sprintf("--at %q: the history is not complete up to then: a transaction that began before position %d has not ended: "+
			"try again later, or give an earlier moment", m.text, late.Position)}
	}
}

// findPosition returns the position that was given and, if that is not complete yet, the change at it or after it.
func (m *moment) findPosition(ctx context.Context, a *app, db *refdb.DB, project string) (refdb.Position, *refdb.Change, error) {
	limited, cancel := a.limited(ctx)
	defer cancel()
	end, err := db.HistoryEnd(limited)
	if err != nil || m.position <= end.Position() {
		return m.position, nil, err
	}
	for c, err := range a.history(ctx, db, project, "") {
		if err != nil || c.Position >= m.position {
			return m.position, &c, err
		}
		break // it is in the future, and refused as such
	}
	return m.position, nil, nil
}

// positionAt returns the position at a time and, if a transaction that is under way holds that back, a change of the
// project up to that time which is not complete yet.
func (a *app) positionAt(ctx context.Context, db *refdb.DB, project string, t time.Time) (refdb.Position, *refdb.Change, error) {
	limited, cancel := a.limited(ctx)
	defer cancel()
	end, err := db.HistoryEnd(limited)
	if err != nil {
		return 0, nil, err
	}
	p, err := db.PositionAt(limited, t)
	if err != nil || p < end.Position() {
		return p, nil, err // what comes after p is later than t
	}
	for c, err := range a.history(ctx, db, project, "") {
		if err != nil {
			return 0, nil, err
		}
		if c.Position <= p {
			break
		}
		if !c.Time.After(t) {
			return p, &c, nil
		}
	}
	return p, nil, nil
}

// requireRecorded fails if the database neither has a project nor has recorded a change of it.
func (a *app) requireRecorded(ctx context.Context, db *refdb.DB, project string) error {
	for _, err := range a.history(ctx, db, project, "") {
		return err
	}
	return a.requireProject(ctx, db, project)
}
