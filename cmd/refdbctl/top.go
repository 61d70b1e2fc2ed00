package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/internal/redact"
	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/overview"
)

// topInterval is the pause between two refreshes on a terminal.
const topInterval = 2 * time.Second

func (a *app) topCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "top [PROJECT...]",
		Short: "Show the state of all sites at a glance",
		Long: `Show the state that an operator needs first: whether the database can be written, and which sites it waits for; the
sites, with their versions, their lag and their repositories that are behind; pushes that sites have announced and not
ended; locks that are held, stale or waited for; the changes of refs within the last minute; and each problem, with
the command to run next. With names of projects, only the locks, pushes and changes of these projects are counted.

On a terminal the display is refreshed every 2 seconds until q or Ctrl-C, which end the command with exit status 0.
Elsewhere, and with -o json or -o csv, the state is printed once. CSV has only the problems.

Only the database is read. A site's daemon records its own state there within a minute; refdbctl site status,
run at the site, has the details. At most ` + fmt.Sprint(overview.MostRows) + ` locks and as many pushes are counted, for each project named.

Whatever can't be read, for lack of a privilege or because the database does not answer, is listed, and the rest is
shown. The exit status is then 1. Problems do not change the exit status: scripts read "problems" of the JSON, a list
of code, detail, command, and site, where the command has to be run. The codes are stable:
lost-changes, not-compared, not-admitted, unreachable, intent-stuck, intent-decided, alarm, site-lags, behind,
lock-awaited, frozen.`,
		Example: `  refdbctl top
  refdbctl top team/app
  refdbctl top -o json`,
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, projects []string) error {
			if _, err := a.Dialect(); err != nil {
				return err
			}
			for _, project := range projects {
				if err := driver.CheckProject(project); err != nil {
					return err
				}
			}
			t := &top{app: a, projects: projects}
			defer t.close()
			if a.Format == output.Table && cli.IsTerminal(a.Out) {
				return t.watch(ctx)
			}
			return t.once(ctx)
		}),
	}
}

// top gathers overviews of one database.
type top struct {
	*app
	projects []string
	db       *refdb.DB // nil: not open yet
	schema   int       // 0: not read yet
}

func (t *top) close() {
	if t.db != nil {
		t.db.Close()
	}
}

// gather returns the present state. An error is a mistake in the command line.
func (t *top) gather(ctx context.Context) (overview.Overview, error) {
	if t.db == nil {
		db, err := t.Open(ctx, refdb.Options{})
		switch {
		case errors.Is(err, refdb.ErrInvalid):
			return overview.Overview{}, err
		case err != nil:
			return t.redacted(overview.Down(err)), nil
		}
		t.db = db
	}
	limited, cancel := t.Limited(ctx)
	defer cancel()
	return t.redacted(overview.Gather(limited, t.db, overview.Options{Projects: t.projects, Schema: t.schemaVersion})), nil
}

// schemaVersion returns the version of the database's schema, which is read once.
func (t *top) schemaVersion(ctx context.Context) (int, error) {
	if t.schema != 0 {
		return t.schema, nil
	}
	err := t.WithMigrator(ctx, func(m *migrations.Migrator, _ migrations.Dialect) error {
		version, _, err := m.Version(ctx)
		t.schema = int(version)
		return err
	})
	return t.schema, err
}

func (t *top) redacted(v overview.Overview) overview.Overview {
	for i := range v.Unread {
		v.Unread[i].Error = redact.Text(v.Unread[i].Error, t.URL)
	}
	return v
}

func (t *top) once(ctx context.Context) error {
	v, err := t.gather(ctx)
	if err != nil || ctx.Err() != nil {
		return errors.Join(err, ctx.Err())
	}
	if t.db != nil {
		for _, project := range t.projects {
			_ = t.NoteIfNoProject(ctx, t.db, project) // what can't be read is in v
		}
	}
	switch t.Format {
	case output.JSON:
		err = output.Document(t.Out, v)
	case output.CSV:
		err = cli.PrintRows(t.Run, problemColumns, cli.All(v.Problems))
	default:
		err = t.show(t.Out, v, topWidth)
	}
	if err != nil || len(v.Unread) == 0 {
		return err
	}
	var failed []string
	for _, u := range v.Unread {
		failed = append(failed, u.What+": "+u.Error)
	}
	return exit.With(exit.Failed, "not everything could be read: "+strings.Join(failed, "; "))
}

// topWidth is the width of lines where there is no terminal.
const topWidth = 110

// show prints an overview for people, with long texts in lines of a width.
func (t *top) show(to io.Writer, v overview.Overview, width int) error {
	p := t.Palette(t.Out)
	if err := output.One(to, output.Table, p, topColumns(p), v); err != nil {
		return err
	}
	var err error
	section := func(n int, print func() error) {
		if n > 0 && err == nil {
			_, err = fmt.Fprintln(to)
		}
		if n > 0 && err == nil {
			err = print()
		}
	}
	section(len(v.Sites), func() error { return printTable(to, p, topSiteColumns(p), v.Sites) })
	if v.Intents != nil {
		section(len(v.Intents.Oldest), func() error { return printTable(to, p, topIntentColumns, v.Intents.Oldest) })
	}
	if v.Locks != nil {
		section(len(v.Locks.Busiest), func() error { return printTable(to, p, topLockColumns, v.Locks.Busiest) })
	}
	section(len(v.Problems)+len(v.Unread), func() error {
		var text strings.Builder
		for _, r := range v.Problems {
			text.WriteString(problemText(p, r, width))
		}
		for _, u := range v.Unread {
			text.WriteString(unreadText(p, u, width))
		}
		_, err := io.WriteString(to, text.String())
		return err
	})
	return err
}

func printTable[T any](to io.Writer, p output.Palette, columns []output.Column[T], records []T) error {
	w := output.NewWriter(to, output.Table, p, columns)
	for _, r := range records {
		w.Write(r) // Close returns its error, too
	}
	return w.Close()
}

const (
	// enterScreen switches to the terminal's second screen, without a cursor, where long lines are cut.
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	leaveScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	homeCursor  = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
)

// watch shows the state again and again until the user types q or Ctrl-C, or ctx ends, neither of
// which is an error.
func (t *top) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	fmt.Fprint(t.Out, enterScreen)
	defer fmt.Fprint(t.Out, leaveScreen)
	if in, ok := t.In.(*os.File); ok && cli.IsTerminal(in) {
		before, err := term.MakeRaw(int(in.Fd()))
		if err != nil {
			return err
		}
		defer term.Restore(int(in.Fd()), before)
		go quitAtKey(in, cancel)
	}
	tick := time.NewTicker(topInterval)
	defer tick.Stop()
	for {
		v, err := t.gather(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		if err := t.draw(v); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// quitAtKey calls quit when the user types q, Ctrl-C or Ctrl-D. A read from a terminal can't be
// interrupted: it may last until the program ends.
func quitAtKey(in io.Reader, quit func()) {
	key := make([]byte, 1)
	for {
		if n, err := in.Read(key); err != nil || n == 1 && strings.ContainsRune("qQ\x03\x04", rune(key[0])) {
			quit()
			return
		}
	}
}

// draw replaces what the terminal shows, in one write.
func (t *top) draw(v overview.Overview) error {
	var text, frame bytes.Buffer
	width, most := topWidth, 1<<20
	if out, ok := t.Out.(*os.File); ok {
		if w, h, err := term.GetSize(int(out.Fd())); err == nil && w > 1 && h > 1 {
			width, most = w, h-1
		}
	}
	if err := t.show(&text, v, width); err != nil {
		return err
	}
	frame.WriteString(homeCursor)
	n := 0
	for line := range strings.Lines(text.String()) {
		if n++; n > most {
			break
		}
		frame.WriteString(strings.TrimSuffix(line, "\n") + clearLine + "\r\n")
	}
	frame.WriteString("q ends" + clearLine + clearBelow)
	_, err := t.Out.Write(frame.Bytes())
	return err
}
