package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	latencyProbes = 5
	// skewNoted is from when on a doctor mentions that clocks differ.
	skewNoted = 2 * time.Second
)

// A check's status: note is worth knowing, and nothing wrong.
const (
	checkOK   = "ok"
	checkNote = "note"
	checkFail = "FAIL"
)

// check is one line of a doctor's report.
type check struct {
	name, status, detail string
}

func checkColumns(p output.Palette) []output.Column[check] {
	return []output.Column[check]{
		{
			Name:  "status",
			Value: func(c check) any { return c.status },
			Text: func(c check) string {
				switch c.status {
				case checkOK:
					return p.Green(c.status)
				case checkNote:
					return p.Yellow(c.status)
				default:
					return p.Red(c.status)
				}
			},
		},
		{Name: "check", Value: func(c check) any { return c.name }},
		{Name: "detail", Value: func(c check) any { return c.detail }},
	}
}

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check the database and its settings",
		Long: `Check the database, a line for each thing: that it can be reached, its schema's version, how fast it
answers, its clock, the settings that the promises of locks and refs rest on, the privileges that a
site needs (on PostgreSQL), and how many locks are stale or left over. The status is 1 if anything is
wrong (FAIL). A "note" is worth knowing: a local clock that differs from the database's harms nothing,
because only the database's counts; stale locks are taken over by the next who wants them; an emulator
is for tests.

Nothing is changed. JSON: an object with "checks", a list of ` + output.Names(checkColumns(output.Palette{})) + `, and "ok".`,
		Example: `  refdbctl doctor
  refdbctl doctor -o json`,
		Args: cobra.NoArgs,
		RunE: a.body(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			if _, err := a.dialect(); err != nil {
				return err
			}
			palette := a.palette(a.out)
			d := &doctor{app: a, report: output.NewReport(a.out, a.format, palette, "checks", checkColumns(palette))}
			if err := d.examine(ctx); err != nil {
				return err
			}
			return d.conclude(ctx)
		}),
	}
}

// doctor goes through the checks.
type doctor struct {
	*app
	report *output.Writer[check]
	failed int
	err    error // of printing
}

func (d *doctor) say(name, status, format string, args ...any) {
	if status == checkFail {
		d.failed++
	}
	detail := redact(oneLine(fmt.Sprintf(format, args...)), d.url)
	d.err = errors.Join(d.err, d.report.Write(check{name, status, detail}))
}

func (d *doctor) conclude(ctx context.Context) error {
	err := errors.Join(d.err, ctx.Err(), d.report.CloseWith(output.Field{Name: "ok", Value: d.failed == 0}))
	if err == nil && d.failed > 0 {
		return &status{exitError, fmt.Sprintf("%s failed", count(d.failed, "check"))}
	}
	return err
}

func (d *doctor) examine(ctx context.Context) error {
	db, err := d.open(ctx, refdb.Options{})
	switch {
	case errors.Is(err, refdb.ErrInvalid):
		return err // an option, not the database
	case errors.Is(err, refdb.ErrSchema):
		d.say("connect", checkOK, "%s", redact(d.url, d.url))
		d.say("schema", checkFail, "%s", err)
		return nil
	case err != nil:
		d.say("connect", checkFail, "%s", err)
		return nil
	}
	defer db.Close()
	d.say("connect", checkOK, "%s", redact(d.url, d.url))
	// Opening has checked that the schema's version is this program's.
	dialect, err := d.dialect()
	if err != nil {
		return err
	}
	d.say("schema", checkOK, "version %d, as this program needs", migrations.Latest(dialect))
	if d.clock(ctx, db) {
		d.settings(ctx, db)
		d.locks(ctx, db)
	}
	return nil
}

// clock measures how long the database takes to answer, and by how much its
// clock differs from ours. It returns false if it does not answer.
func (d *doctor) clock(ctx context.Context, db *refdb.DB) bool {
	var times []time.Duration
	var skew time.Duration
	for range latencyProbes {
		limited, cancel := d.limited(ctx)
		start := time.Now()
		now, err := db.Now(limited)
		took := time.Since(start)
		cancel()
		if err != nil {
			d.say("latency", checkFail, "%s", err)
			return false
		}
		if len(times) == 0 || took < slices.Min(times) {
			// The quickest answer tells the time best.
			skew = now.Sub(start.Add(took / 2))
		}
		times = append(times, took)
	}
	slices.Sort(times)
	d.say("latency", checkOK, "%s (median of %d)", times[len(times)/2].Round(10*time.Microsecond), len(times))
	if skew.Abs() < skewNoted {
		d.say("clock", checkOK, "the database's differs from ours by %s", skew.Round(time.Millisecond))
	} else {
		d.say("clock", checkNote, "the database's differs from ours by %s: that harms no lock, but look which of the two is wrong",
			skew.Round(time.Millisecond))
	}
	return true
}

func (d *doctor) settings(ctx context.Context, db *refdb.DB) {
	limited, cancel := d.limited(ctx)
	defer cancel()
	diagnoses, err := db.Diagnose(limited)
	if err != nil {
		d.say("settings", checkFail, "%s", err)
	}
	for _, g := range diagnoses {
		status := checkOK
		switch {
		case !g.OK:
			status = checkFail
		case g.Name == "server" && d.env(emulatorVariable) != "":
			status = checkNote // an emulator is for tests
		}
		d.say(g.Name, status, "%s", g.Detail)
	}
}

func (d *doctor) locks(ctx context.Context, db *refdb.DB) {
	d.tally("stale locks", "refdbctl locks list --stale shows them, locks purge --stale removes them",
		d.app.locks(ctx, db, refdb.LockFilter{Stale: true}))
	d.tally("orphaned markers", "refdbctl locks purge --orphans removes them", paced(ctx, d.app, db.Orphans))
}

func (d *doctor) tally(name, advice string, locks iter.Seq2[refdb.LockInfo, error]) {
	n := 0
	for _, err := range locks {
		if err != nil {
			d.say(name, checkFail, "%s", err)
			return
		}
		n++
	}
	if n == 0 {
		d.say(name, checkOK, "none")
	} else {
		d.say(name, checkNote, "%d: %s", n, advice)
	}
}
