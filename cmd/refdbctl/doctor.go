package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/internal/redact"
	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/presence"
)

const (
	latencyProbes = 5
	// notableSkew is the smallest difference between clocks that is reported as a note.
	notableSkew = 2 * time.Second
)

// The status of a check. A note is information, not a problem.
const (
	checkOK   = "ok"
	checkNote = "note"
	checkFail = "FAIL"
)

// check is one line of the report.
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
		Long: `Check the database, one line per check: whether it is reachable, the version of its schema, its latency, its clock,
the columns, keys and indexes of its tables, the settings that the guarantees of locks and refs depend on, the
privileges that a site needs (on Spanner, as far as they can be determined without a commit), unreachable sites that
would block pushes after a restart of the database, the number of stale and leftover locks, and frozen projects. The
exit status is 1 if a check fails (FAIL).

A "note" is worth knowing but not a failure. A local clock that differs from the database's clock is harmless, because
only the database's clock counts; stale locks are taken over by the next process that requests them; an emulator is
for tests.

Nothing is changed. JSON: an object with "checks", a list of ` + output.Names(checkColumns(output.Palette{})) + `, and "ok".`,
		Example: `  refdbctl doctor
  refdbctl doctor -o json`,
		Args: cobra.NoArgs,
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			if _, err := a.Dialect(); err != nil {
				return err
			}
			palette := a.Palette(a.Out)
			d := &doctor{app: a, report: output.NewReport(a.Out, a.Format, palette, "checks", checkColumns(palette))}
			if err := d.examine(ctx); err != nil {
				return err
			}
			return d.conclude(ctx)
		}),
	}
}

// doctor runs the checks and reports them.
type doctor struct {
	*app
	report *output.Writer[check]
	failed int
}

func (d *doctor) add(name, status, format string, args ...any) {
	if status == checkFail {
		d.failed++
	}
	detail := redact.Text(output.OneLine(fmt.Sprintf(format, args...)), d.URL)
	d.report.Write(check{name, status, detail})
}

func (d *doctor) conclude(ctx context.Context) error {
	err := errors.Join(ctx.Err(), d.report.CloseWith(output.Field{Name: "ok", Value: d.failed == 0}))
	if err == nil && d.failed > 0 {
		return exit.With(exit.Failed, fmt.Sprintf("%s failed", output.Count(d.failed, "check")))
	}
	return err
}

// schema reports the version of the schema. Opening the database has checked that this program
// supports it.
func (d *doctor) schema(ctx context.Context) error {
	return d.WithMigrator(ctx, func(m *migrations.Migrator, dialect migrations.Dialect) error {
		version, _, err := m.Version(ctx)
		switch latest := migrations.Latest(dialect); {
		case err != nil:
			d.add("schema", checkFail, "%s", err)
		case version < latest:
			d.add("schema", checkNote, "version %d, and this program supports %d: run `refdbctl migrate up` once all programs that use the database support it", version, latest)
		case version > latest:
			d.add("schema", checkNote, "version %d, newer than this program's %d but compatible with it: upgrade the program", version, latest)
		default:
			d.add("schema", checkOK, "version %d, the same as this program's", version)
		}
		return nil
	})
}

func (d *doctor) examine(ctx context.Context) error {
	db, err := d.Open(ctx, refdb.Options{})
	switch {
	case errors.Is(err, refdb.ErrInvalid):
		return err // an option is wrong, not the database
	case errors.Is(err, refdb.ErrSchema):
		d.add("connect", checkOK, "%s", redact.Text(d.URL, d.URL))
		d.add("schema", checkFail, "%s", err)
		return nil
	case err != nil:
		d.add("connect", checkFail, "%s", err)
		return nil
	}
	defer db.Close()
	d.add("connect", checkOK, "%s", redact.Text(d.URL, d.URL))
	if err := d.schema(ctx); err != nil {
		return err
	}
	if d.clock(ctx, db) {
		d.settings(ctx, db)
		d.admitted(ctx, db)
		d.locks(ctx, db)
		d.frozen(ctx, db)
	}
	return nil
}

// clock reports how long the database takes to answer, and by how much its clock
// differs from this machine's. It returns false if the database does not answer.
func (d *doctor) clock(ctx context.Context, db *refdb.DB) bool {
	var times []time.Duration
	var skew time.Duration
	for range latencyProbes {
		limited, cancel := d.Limited(ctx)
		start := time.Now()
		now, err := db.Now(limited)
		took := time.Since(start)
		cancel()
		if err != nil {
			d.add("latency", checkFail, "%s", err)
			d.add("settings and locks", checkFail, "not checked, because the database does not respond")
			return false
		}
		if len(times) == 0 || took < slices.Min(times) {
			// The fastest response gives the most accurate time.
			skew = now.Sub(start.Add(took / 2))
		}
		times = append(times, took)
	}
	slices.Sort(times)
	d.add("latency", checkOK, "%s (median of %d)", times[len(times)/2].Round(10*time.Microsecond), len(times))
	if skew.Abs() < notableSkew {
		d.add("clock", checkOK, "the database's clock differs from this machine's by %s", skew.Round(time.Millisecond))
	} else {
		d.add("clock", checkNote, "the database's clock differs from this machine's by %s: harmless to locks, but check which of the two is wrong",
			skew.Round(time.Millisecond))
	}
	return true
}

func (d *doctor) settings(ctx context.Context, db *refdb.DB) {
	limited, cancel := d.Limited(ctx)
	defer cancel()
	diagnoses, err := db.Operator().Diagnose(limited)
	if err != nil {
		d.add("settings", checkFail, "%s", err)
	}
	for _, g := range diagnoses {
		status := checkOK
		switch {
		case !g.OK:
			status = checkFail
		case g.Note:
			status = checkNote
		}
		d.add(g.Name, status, "%s", g.Detail)
	}
}

// admitted reports whether the database may be written.
func (d *doctor) admitted(ctx context.Context, db *refdb.DB) {
	const name = "admitted server"
	a, err := d.admission(ctx, db.Recovery().Admission)
	switch {
	case err != nil:
		d.add(name, checkFail, "%s", err)
	case a.Admitted:
		d.add(name, checkOK, "this one")
		d.unreachable(ctx, db, a)
		d.policy(a)
	default:
		d.add(name, checkFail, "nothing can be written: %s", a.Err())
	}
}

// unreachable reports the sites without which the database's next server would not be admitted.
func (d *doctor) unreachable(ctx context.Context, db *refdb.DB, a driver.Admission) {
	const name = "unreachable sites"
	sites, err := d.app.unreachable(ctx, db, a)
	switch {
	case err != nil:
		d.add(name, checkFail, "%s", err)
	case len(sites) == 0:
		d.add(name, checkOK, "none")
	}
	for _, s := range sites {
		d.add(name, checkNote, "%s", presence.UnreachableAdvice(s))
	}
}

// policy reports for which sites a new server waits, and a promise that the doctor can't check.
func (d *doctor) policy(a driver.Admission) {
	const name = "recovery policy"
	if a.Policy.Policy != driver.Synchronous {
		d.add(name, checkOK, "wait")
		return
	}
	d.add(name, checkNote, "synchronous since %s: a new server does not wait for silent sites: make sure that every failover, and every restored copy, keeps all "+
		"acknowledged commits; this command can't check that", a.Policy.Since.UTC().Format(time.RFC3339))
}

func (d *doctor) locks(ctx context.Context, db *refdb.DB) {
	d.countLocks("stale locks", "refdbctl locks list --stale shows them, locks purge --stale removes them",
		d.app.Locks(ctx, db, refdb.LockFilter{Stale: true}))
	d.countLocks("orphaned markers", "refdbctl locks purge --orphans removes them", cli.WithRowTimeout(ctx, d.app.Run, db.Operator().Orphans))
}

// frozen reports the projects that an operator has frozen, if there are any.
func (d *doctor) frozen(ctx context.Context, db *refdb.DB) {
	const name = "frozen projects"
	limited, cancel := d.Limited(ctx)
	defer cancel()
	rows, err := db.Projects().After(limited, 0)
	if err != nil {
		d.add(name, checkFail, "%s", err)
		return
	}
	var all []string
	for _, p := range rows {
		if p.Freeze != (driver.Freeze{}) {
			all = append(all, p.Project+", "+p.Freeze.String())
		}
	}
	if all != nil {
		slices.Sort(all)
		d.add(name, checkNote, "%s", driver.Enumerate("all pushes to them are refused; refdbctl project unfreeze lifts that", all))
	}
}

func (d *doctor) countLocks(name, advice string, locks iter.Seq2[refdb.LockInfo, error]) {
	n := 0
	for l, err := range locks {
		if err != nil {
			d.add(name, checkFail, "%s", err)
			return
		}
		if !l.Reserved() { // a stale reservation refuses no request
			n++
		}
	}
	if n == 0 {
		d.add(name, checkOK, "none")
	} else {
		d.add(name, checkNote, "%d: %s", n, advice)
	}
}
