package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/timespec"
	"github.com/globalrefdb/globalrefdb/refdb"
)

// Moment is the value of --at, which names a past state.
type Moment struct {
	text     string
	position refdb.Position
	isTime   bool
	time     timespec.Time
}

// MomentHelp explains a moment: it completes "TIME is".
const MomentHelp = `a position as printed by
refs log, for the state right after it; or, by the database's clock,
` + timespec.Forms + `.`

// AddFlag adds the flag to a command.
func (m *Moment) AddFlag(cmd *cobra.Command) {
	cmd.Flags().Var(m, "at", "as of this `time`, or right after this position")
	Must(cmd.RegisterFlagCompletionFunc("at", cobra.NoFileCompletions))
}

// Given reports whether the flag was given.
func (m *Moment) Given() bool { return m.text != "" }

func (m *Moment) String() string { return m.text }

func (m *Moment) Type() string { return "time" }

func (m *Moment) Set(text string) error {
	position, ok, err := timespec.ParsePosition(text)
	read := Moment{text: text, position: position, isTime: !ok}
	if read.isTime {
		if read.time, err = timespec.ParseTime(text); err != nil {
			err = errors.New("give a position, " + timespec.Forms)
		}
	}
	if err == nil {
		*m = read
	}
	return err
}

// Resolve returns the position. By then the project's changes up to that moment are complete:
// Resolve waits for transactions in progress, for at most the timeout.
func (m *Moment) Resolve(ctx context.Context, a *Run, db *refdb.DB, project string) (refdb.Position, error) {
	find := m.findPosition
	if m.isTime {
		now, err := a.now(ctx, db)
		if err != nil {
			return 0, err
		}
		t := m.time.Resolve(now)
		if t.After(now) {
			return 0, exit.Usage(fmt.Sprintf("--at %q: that is in the future: it is %s by the database's clock", m.text, now.UTC().Format(time.RFC3339)))
		}
		find = func(ctx context.Context, a *Run, db *refdb.DB, project string) (refdb.Position, *refdb.Change, error) {
			return a.positionAt(ctx, db, project, t)
		}
	}
	patience, cancel := a.Limited(ctx)
	defer cancel()
	for tries := 0; ; tries++ {
		p, late, err := find(ctx, a, db, project)
		if err != nil || late == nil {
			return p, err
		}
		if tries == 20 { // a second
			a.Note("waiting: a transaction that began before position %d has not ended", late.Position)
		}
		if Sleep(patience, 50*time.Millisecond) == nil {
			continue
		}
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		return 0, exit.With(exit.Failed, fmt.Sprintf("--at %q: the history is not complete up to then: a transaction that began before position %d has not ended: "+
			"try again later, or give an earlier moment", m.text, late.Position))
	}
}

// findPosition returns the given position and, if it is not complete yet, a change at or after it.
func (m *Moment) findPosition(ctx context.Context, a *Run, db *refdb.DB, project string) (refdb.Position, *refdb.Change, error) {
	limited, cancel := a.Limited(ctx)
	defer cancel()
	end, err := db.HistoryEnd(limited)
	if err != nil || m.position <= end.Position() {
		return m.position, nil, err
	}
	for c, err := range a.History(ctx, db, project, "") {
		if err != nil || c.Position >= m.position {
			return m.position, &c, err
		}
		break // the position is in the future: the library refuses it
	}
	return m.position, nil, nil
}

// positionAt returns the position at a time and, if a transaction in progress holds it back, a
// change of the project up to that time that is not complete yet.
func (a *Run) positionAt(ctx context.Context, db *refdb.DB, project string, t time.Time) (refdb.Position, *refdb.Change, error) {
	limited, cancel := a.Limited(ctx)
	defer cancel()
	end, err := db.HistoryEnd(limited)
	if err != nil {
		return 0, nil, err
	}
	p, err := db.PositionAt(limited, t)
	if err != nil || p < end.Position() {
		return p, nil, err // changes after p are later than t
	}
	for c, err := range a.History(ctx, db, project, "") {
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

// RequireRecorded fails if the database neither has a project nor has recorded a change of it.
func (a *Run) RequireRecorded(ctx context.Context, db *refdb.DB, project string) error {
	for _, err := range a.History(ctx, db, project, "") {
		return err
	}
	return a.RequireProject(ctx, db, project)
}

// Since parses --since: a time, or an age, which is subtracted from the database's time.
func (a *Run) Since(ctx context.Context, db *refdb.DB, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := timespec.ParseTime(text)
	if err != nil {
		return time.Time{}, exit.Usage(fmt.Sprintf("--since %q: %s", text, err))
	}
	now, err := a.now(ctx, db)
	return t.Resolve(now), err
}

// now returns the database's time.
func (a *Run) now(ctx context.Context, db *refdb.DB) (time.Time, error) {
	limited, cancel := a.Limited(ctx)
	defer cancel()
	return db.Now(limited)
}
