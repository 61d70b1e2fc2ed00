package refs

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// begin stands for the oldest change that the history has, in the place of a cursor.
const begin = "begin"

// watch holds the arguments of "watch".
type watch struct {
	query     refdb.ChangeQuery
	sinceText string
	progress  bool
}

func watchColumns() []output.Column[changeRow] {
	columns := changeFields()
	for i, c := range columns {
		if c.Name == "project" {
			columns[i].Hidden = false
		}
	}
	return append(columns, output.Column[changeRow]{Name: "cursor", Value: func(c changeRow) any { return c.cursor }, Hidden: true})
}

// WatchCommand returns the command.
func WatchCommand(r *cli.Run) *cobra.Command {
	a := &app{r}
	var w watch
	cmd := &cobra.Command{
		Use:   "watch [PROJECT]",
		Short: "Print changes of refs as they happen",
		Long: `Print the changes of all refs, or of a project's refs, as they happen, each once, in order of their positions. The
command runs until it is interrupted, or until its output is no longer read (exit status 0); it waits while the
database is down.

By default it starts with the next change. --since CURSOR starts after a change that was printed earlier: give that
change's cursor, which JSON and CSV contain. No change in between is left out; if some were pruned, or if the database
went back in time, that is an error (exit status 1). --since begin starts with the oldest change in the history.

In JSON each change is an object on its own line. With --progress a line is printed every second even if nothing
happens; it has a cursor and no ref.

Fields: ` + output.Names(watchColumns()) + `
` + changeHelp,
		Example: `  refdbctl watch my/project --prefix refs/heads/ -o json
  refdbctl watch --since begin -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: a.Body(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				w.query.Project = args[0]
				if err := driver.CheckProject(w.query.Project); err != nil {
					return err
				}
			} else if w.query.Prefix != "" {
				return exit.Usage("--prefix selects refs of one project: give the PROJECT, too")
			}
			if w.sinceText == "" && cmd.Flags().Changed("since") {
				return exit.Usage(`--since "": give the cursor of the last change that was read, or ` + begin + ` to start with the oldest change`)
			}
			if w.sinceText != begin {
				var err error
				if w.query.After, err = refdb.ParseCursor(w.sinceText); err != nil {
					return err
				}
			}
			return a.WithDB(ctx, refdb.Options{}, func(db *refdb.DB) error {
				err := whileRead(func() error { return w.run(ctx, a, db) })
				if ctx.Err() != nil && errors.Is(err, context.Canceled) {
					return nil // that is how a watch ends
				}
				return err
			})
		}),
	}
	cmd.Flags().StringVar(&w.query.Prefix, "prefix", "", "only refs of the project that start with `prefix`")
	cmd.Flags().StringVar(&w.sinceText, "since", "", "start after this `cursor`, or with the oldest change: "+begin)
	cmd.Flags().BoolVar(&w.progress, "progress", false, "print a line with a cursor every second even if nothing changes")
	cli.Must(cmd.RegisterFlagCompletionFunc("since", cobra.FixedCompletions([]string{begin}, cobra.ShellCompDirectiveNoFileComp)))
	cli.Must(cmd.RegisterFlagCompletionFunc("prefix", cobra.NoFileCompletions))
	return cmd
}

func (w *watch) run(ctx context.Context, a *app, db *refdb.DB) (err error) {
	if w.sinceText == "" {
		limited, cancel := a.Limited(ctx)
		w.query.After, err = db.HistoryEnd(limited)
		cancel()
		if err != nil {
			return err
		}
	}
	lines := output.NewLines(a.Out, a.Format, a.Palette(a.Out), watchColumns())
	for changes, err := range db.Changes(ctx, w.query) {
		if err != nil {
			return err
		}
		rows := make([]changeRow, len(changes.Changes))
		for i, c := range changes.Changes {
			rows[i] = changeRow{Change: c, cursor: changes.CursorAfter(i).String()}
		}
		if len(rows) == 0 && w.progress {
			rows = []changeRow{{Change: refdb.Change{Position: changes.Cursor.Position()}, cursor: changes.Cursor.String()}}
		}
		if err := lines.Print(rows...); err != nil {
			return err
		}
		if output.Unread(a.Out) {
			return nil
		}
	}
	return nil
}

// whileRead calls do, which prints. If the reader of the output closes it, as "head" does after
// some lines, do ends without an error.
func whileRead(do func() error) error {
	broken := make(chan os.Signal, 1)
	exit.Notify(broken, syscall.SIGPIPE) // otherwise a write would end the program
	defer signal.Stop(broken)
	err := do()
	if errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return err
}
