// Package cli is one run of refdbctl: its streams, the flags that all commands share, the database,
// and the steps that commands have in common: asking for confirmation, recording acts in the audit,
// reading rows within the timeout, and printing results and errors.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/internal/redact"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/drivers"
)

// logNothing is above all levels. By default nothing is logged: whatever the library logs, such as
// the loss of a lock, also is in the command's result.
const logNothing = slog.Level(math.MaxInt)

// Streams are the standard streams and the environment of a run.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	Env      func(string) string
}

// A Run is one run: its streams and the flags that all commands share. Packages of commands embed
// it.
type Run struct {
	Streams
	OpenDriver func(ctx context.Context, url string) (refdb.Driver, error)

	// Messages writes to Err, without passwords. Everything except results is written to it.
	Messages io.Writer

	User     string // the user, read before a command switches to another user
	URL      string
	Site     string
	Format   output.Format
	Timeout  time.Duration
	LogLevel slog.Level

	// DaemonPatience, unless zero, is how long commands wait for the site's daemon.
	DaemonPatience time.Duration

	// Settle, unless zero, is how long a site may use a project's earlier rules: see projects.Freezing.
	Settle time.Duration

	// started is set when a command's own code runs. An earlier error is a usage error.
	started bool
}

// New returns a run, and reads the environment.
func New(s Streams) *Run {
	a := &Run{Streams: s, OpenDriver: drivers.Open, Format: output.Table, LogLevel: logNothing}
	a.User, a.URL = Operator(), a.Env("REFDB_URL")
	a.Messages = &redact.Writer{To: s.Err, URLs: func() []string { return []string{a.URL} }}
	return a
}

// Execute executes a command line of a program whose commands are below root.
func (a *Run) Execute(ctx context.Context, root *cobra.Command, args []string) error {
	explainArguments(root)
	a.complete(root)
	root.SetHelpCommand(helpCommand(root))
	root.SetArgs(append([]string{}, args...)) // nil would mean os.Args
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Messages)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && !a.started {
		err = exit.Usage(fmt.Sprintf("%s (see %s --help)", err, cmd.CommandPath()))
	}
	return err
}

// Group returns a command that only has subcommands.
func Group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  NoSuchCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },

		Annotations: map[string]string{groupAnnotation: ""},
	}
	for _, c := range commands {
		cmd.Example += c.Example + "\n"
	}
	cmd.Example = strings.TrimSuffix(cmd.Example, "\n")
	cmd.AddCommand(commands...)
	return cmd
}

const groupAnnotation = "group"

// IsGroup reports whether cmd only has subcommands.
func IsGroup(cmd *cobra.Command) bool {
	_, is := cmd.Annotations[groupAnnotation]
	return is
}

// NoSuchCommand checks the arguments of a command that only has subcommands: any argument is a
// misspelt subcommand.
func NoSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	message := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
	cmd.SuggestionsMinimumDistance = 2
	if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
		message += ", did you mean " + strings.Join(similar, " or ") + "?"
	}
	return errors.New(message)
}

// Body returns do as a cobra command's RunE.
func (a *Run) Body(do func(ctx context.Context, cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.started = true
		if a.Timeout < 0 {
			return exit.Usage(fmt.Sprintf("--timeout %s: must be positive, or 0 for no limit", a.Timeout))
		}
		ctx := cmd.Context()
		return exit.Interruption(ctx, do(ctx, cmd, args))
	}
}

// WithDB opens the database, calls do with it, and closes it.
func (a *Run) WithDB(ctx context.Context, o refdb.Options, do func(*refdb.DB) error) (err error) {
	db, err := a.Open(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return do(db)
}

// Logger returns a logger to standard error, at the level of --log-level.
func (a *Run) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(a.Messages, &slog.HandlerOptions{Level: a.LogLevel}))
}

// Palette returns a palette with colours if w is a terminal and NO_COLOR is not set.
func (a *Run) Palette(w io.Writer) output.Palette {
	return output.Palette{On: IsTerminal(w) && a.Env("NO_COLOR") == "" && a.Env("TERM") != "dumb"}
}

// IsTerminal reports whether stream, a reader or a writer, is a terminal.
func IsTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// AwaitDaemon returns how long to wait for the site's daemon: usual, unless DaemonPatience is set.
func (a *Run) AwaitDaemon(usual time.Duration) time.Duration { return cmp.Or(a.DaemonPatience, usual) }

// Must panics on an error, which is a bug in this program's declarations.
func Must(err error) {
	if err != nil {
		panic(err)
	}
}

// Version returns the version of this program.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
