package refs

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/timespec"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// changeRow is a change that is printed. Without a Ref it only reports the position of a watch.
type changeRow struct {
	refdb.Change
	back   int    // the number of later changes, in the log of one ref
	cursor string // after the change
}

// changeFields are the columns of all lists of changes.
func changeFields() []output.Column[changeRow] {
	text := func(name string, of func(refdb.Change) string) output.Column[changeRow] {
		return output.Optional(name, func(c changeRow) string { return of(c.Change) })
	}
	value := func(name string, of func(refdb.Change) refdb.Value) output.Column[changeRow] {
		column := text(name, func(c refdb.Change) string { return string(of(c)) })
		column.Text = func(c changeRow) string { return abbreviate(of(c.Change)) }
		return column
	}
	hidden := func(column output.Column[changeRow]) output.Column[changeRow] {
		column.Hidden = true
		return column
	}
	return []output.Column[changeRow]{
		{Name: "position", Value: func(c changeRow) any { return int64(c.Position) }},
		{Name: "time", Value: func(c changeRow) any { return output.OrNil(c.Ref != "", c.Time) },
			Text: func(c changeRow) string {
				return output.OrDash(c.Ref != "", c.Time.UTC().Format("2006-01-02 15:04:05Z"))
			}},
		text("by", func(c refdb.Change) string { return c.By }),
		text("owner", func(c refdb.Change) string { return c.Owner }),
		hidden(text("project", func(c refdb.Change) string { return c.Project })),
		value("old", func(c refdb.Change) refdb.Value { return c.Old }),
		value("new", func(c refdb.Change) refdb.Value { return c.New }),
		text("ref", func(c refdb.Change) string { return c.Ref }),
		hidden(text("op", func(c refdb.Change) string { return c.Op })),
	}
}

const changeHelp = `(position: its place in the order of all changes, for --at; by: who requested it, if known; owner: the site and the
process that made it; old, new: null for a ref that the database does not know, a zero ID for a deleted ref; op: the
operation that the change was part of)`

// abbreviate returns a value as tables of changes show it, with enough digits of an object ID for a
// large repository.
func abbreviate(v refdb.Value) string {
	const digits = 12
	switch {
	case v == refdb.Unknown:
		return "-"
	case v.IsDeleted():
		return "deleted"
	case v.IsObjectID():
		return string(v[:digits])
	default:
		return output.Escape(string(v))
	}
}

// refLogColumns are those of a single ref's log.
func refLogColumns() []output.Column[changeRow] {
	return append(changeFields(), output.Column[changeRow]{Name: "back",
		Value: func(c changeRow) any { return c.back }, Text: func(c changeRow) string { return fmt.Sprintf("@{%d}", c.back) }})
}

// refLog holds the arguments of "refs log".
type refLog struct {
	project, ref string // ref may be ""
	most         int
	sinceText    string
}

func (a *app) logCommand() *cobra.Command {
	var l refLog
	cmd := &cobra.Command{
		Use:   "log PROJECT [REF]",
		Short: "List the changes of a project's refs, or of one ref",
		Long: `List the recorded changes of a project's refs, or of one ref, newest first: when, by whom, and the old and new values.
Changes are printed as they are read, back to where the history was pruned or began. A project that does not exist is
an error (exit status 1).

--since is ` + timespec.Forms + `.

For one ref, BACK counts the later changes. As in git's reflog, REF@{1} is the value before the ref's last change: see
refs rollback.

Fields: ` + output.Names(refLogColumns()) + `
` + changeHelp,
		Example: `  refdbctl refs log my/project refs/heads/main
  refdbctl refs log my/project --since "2h ago" -o json`,
		Args: cobra.RangeArgs(1, 2),
		RunE: a.Body(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			l.project = args[0]
			check := driver.CheckProject(l.project)
			if len(args) == 2 {
				l.ref = args[1]
				check = driver.CheckKey(l.project, l.ref)
			}
			if check != nil {
				return check
			}
			if l.most < 1 && cmd.Flags().Changed("number") {
				return exit.Usage(fmt.Sprintf("--number %d: must be at least 1", l.most))
			}
			return a.WithDB(ctx, refdb.Options{}, func(db *refdb.DB) error {
				return whileRead(func() error { return l.run(ctx, a, db) })
			})
		}),
	}
	cmd.Flags().IntVarP(&l.most, "number", "n", 0, "at most `N` changes")
	cmd.Flags().StringVar(&l.sinceText, "since", "", "only changes since this `time`")
	for _, name := range []string{"number", "since"} { // no files
		cli.Must(cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions))
	}
	return cmd
}

func (l *refLog) run(ctx context.Context, a *app, db *refdb.DB) error {
	since, err := a.Since(ctx, db, l.sinceText)
	if err != nil {
		return err
	}
	end, err := a.beforeAll(ctx, db, since)
	if err != nil {
		return err
	}
	columns := changeFields()
	if l.ref != "" {
		columns = refLogColumns()
	}
	w := output.NewWriter(a.Out, a.Format, a.Palette(a.Out), columns)
	seen, printed := 0, 0
	for c, err := range a.History(ctx, db, l.project, l.ref) {
		if err != nil {
			return err
		}
		seen++
		if c.Position <= end || l.most > 0 && printed == l.most {
			break
		}
		if !c.Time.Before(since) {
			if err := w.Write(changeRow{Change: c, back: seen - 1}); err != nil {
				return err
			}
			printed++
		}
	}
	if err := w.Close(); err != nil || seen > 0 {
		return err
	}
	return l.explainEmpty(ctx, a, db)
}

// beforeAll returns a position up to which all changes are earlier than a time: a reader that goes
// back can stop there. It can't stop at the first earlier change, because times don't have the
// order of positions.
func (a *app) beforeAll(ctx context.Context, db *refdb.DB, t time.Time) (refdb.Position, error) {
	if t.IsZero() {
		return math.MinInt64, nil
	}
	limited, cancel := a.Limited(ctx)
	defer cancel()
	p, err := db.PositionAt(limited, t.Add(-time.Microsecond)) // databases have microseconds
	if errors.Is(err, refdb.ErrPruned) {
		return math.MinInt64, nil
	}
	return p, err
}

// explainEmpty explains why there is no change: the project's name may be misspelt.
func (l *refLog) explainEmpty(ctx context.Context, a *app, db *refdb.DB) error {
	if err := a.RequireProject(ctx, db, l.project); err != nil {
		return err
	}
	limited, cancel := a.Limited(ctx)
	defer cancel()
	s, err := db.HistoryState(limited)
	if err == nil {
		begins := s.Epochs[0].Began
		if begins.Before(s.PrunedTime) {
			begins = s.PrunedTime
		}
		what := "any of its refs"
		if l.ref != "" {
			what = l.ref
		}
		a.Note("%s: the history has no change of %s; it begins at %s", l.project, what, begins.UTC().Format(time.RFC3339))
	}
	return err
}
