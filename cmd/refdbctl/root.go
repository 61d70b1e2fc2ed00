package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/drivers"
)

// logNothing is above all levels. By default nothing is logged: what the library would
// log, such as the loss of a lock, is also the command's result.
const logNothing = slog.Level(math.MaxInt)

// streams are the standard streams and the environment of a run.
type streams struct {
	in       io.Reader
	out, err io.Writer
	env      func(string) string
}

// app is one run: its streams and the flags that all commands share.
type app struct {
	streams
	openDriver func(ctx context.Context, url string) (refdb.Driver, error)

	// messages writes to err all that is not a result, without passwords.
	messages io.Writer

	user     string // who started this, read before becomeOwner changes the user
	url      string
	site     string
	format   output.Format
	timeout  time.Duration
	logLevel slog.Level

	// started is set when a command's own code runs. An error before that is a
	// mistake in the command line.
	started bool
}

func newApp(s streams) *app {
	a := &app{streams: s, openDriver: drivers.Open, format: output.Table, logLevel: logNothing}
	a.user, a.url = operator(), a.env("REFDB_URL")
	a.messages = &redactor{to: s.err, url: func() string { return a.url }}
	return a
}

// run executes a command line.
func (a *app) run(ctx context.Context, args []string) error {
	root := a.rootCommand()
	root.SetArgs(append([]string{}, args...)) // nil would mean os.Args
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.messages)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && !a.started {
		err = usage(fmt.Sprintf("%s (see %s --help)", err, cmd.CommandPath()))
	}
	return err
}

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "refdbctl",
		Short: "Look after a global ref database",
		Long: `refdbctl looks after a global ref database: one shared SQL database that holds the value of every
Git ref of several sites, and the locks on them.

The database is named by --db or REFDB_URL:

  sqlite:FILE                                         one file, for a single machine
  postgres://USER@HOST/DATABASE                       PostgreSQL
  spanner://projects/P/instances/I/databases/D        Cloud Spanner

REFDB_URL is the better place for an address with a password in it: other users of the machine see
the arguments of commands.

` + exitCodesHelp + `

Environment: REFDB_URL and REFDB_SITE as --db and --site; REFDB_DIGEST_KEY keys the digests that
stand for names in logs, so that the logs of several processes can be matched; NO_COLOR turns
colours off. Colours and progress are shown on a terminal only.`,
		Example: `  export REFDB_URL=sqlite:/var/lib/refdb/refdb.db
  refdbctl migrate up
  refdbctl refs import my/project --repo /srv/git/my/project.git
  refdbctl locks list --stale`,
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noSuchCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags := root.PersistentFlags()
	// No default here: help would print the password of REFDB_URL.
	flags.Func("db", "the database's `URL` (default: REFDB_URL)", func(s string) error { a.url = s; return nil })
	flags.StringVar(&a.site, "site", a.env("REFDB_SITE"), "this site's `name` (default: REFDB_SITE or the host's name)")
	flags.VarP(&a.format, "output", "o", "table, json or csv")
	flags.DurationVar(&a.timeout, "timeout", 30*time.Second, "how long to wait for each answer of the database; 0: for ever")
	flags.Func("log-level", "log on stderr, from this `level` on: debug, info, warn or error (default: nothing)",
		func(s string) error { return a.logLevel.UnmarshalText([]byte(s)) })
	flags.BoolFuncP("verbose", "v", "same as --log-level=debug", func(string) error { a.logLevel = slog.LevelDebug; return nil })
	must(root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(output.Formats[:], cobra.ShellCompDirectiveNoFileComp)))

	root.AddCommand(
		a.migrateCommand(),
		a.doctorCommand(),
		a.recoverCommand(),
		a.locksCommand(),
		a.lockCommand(),
		a.refsCommand(),
		a.watchCommand(),
		a.historyCommand(),
		a.followersCommand(),
		a.projectCommand(),
		a.siteCommand(),
		a.gerritCommand(),
		a.sitesCommand(),
		a.auditCommand(),
		a.versionCommand(),
	)
	return root
}

// group returns a command that only has subcommands.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  noSuchCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, c := range commands {
		cmd.Example += c.Example + "\n"
	}
	cmd.Example = strings.TrimSuffix(cmd.Example, "\n")
	cmd.AddCommand(commands...)
	return cmd
}

// noSuchCommand checks the arguments of a command that only has subcommands: any argument
// is a misspelt subcommand.
func noSuchCommand(cmd *cobra.Command, args []string) error {
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

// body returns do as a cobra command's RunE.
func (a *app) body(do func(ctx context.Context, cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.started = true
		if a.timeout < 0 {
			return usage(fmt.Sprintf("--timeout %s: give how long to wait for an answer, or 0 for as long as it takes", a.timeout))
		}
		ctx := cmd.Context()
		return interruption(ctx, do(ctx, cmd, args))
	}
}

// withDB opens the database, calls do with it, and closes it.
func (a *app) withDB(ctx context.Context, o refdb.Options, do func(*refdb.DB) error) (err error) {
	db, err := a.open(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return do(db)
}

func (a *app) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(a.messages, &slog.HandlerOptions{Level: a.logLevel}))
}

// palette returns a palette with colours if w is a terminal and NO_COLOR is not set.
func (a *app) palette(w io.Writer) output.Palette {
	return output.Palette{On: isTerminal(w) && a.env("NO_COLOR") == "" && a.env("TERM") != "dumb"}
}

// isTerminal reports whether stream, a reader or a writer, is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// must panics on an error: a mistake in this program's own declarations.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// version returns the version of this program.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// build is the one record that "version" prints.
type build struct{}

var buildColumns = []output.Column[build]{
	{Name: "version", Value: func(build) any { return version() }},
	{Name: "go", Value: func(build) any { return runtime.Version() }},
	{Name: "platform", Value: func(build) any { return runtime.GOOS + "/" + runtime.GOARCH }},
	// All kinds of databases have the same versions.
	{Name: "schema", Value: func(build) any { return migrations.Latest(migrations.SQLite) }},
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Long: `Print the version of this program, what it was built with, and the version of the schema that it
needs; "refdbctl migrate version" prints the database's. No database is asked.

Fields: ` + output.Names(buildColumns),
		Example: `  refdbctl version -o json`,
		Args:    cobra.NoArgs,
		RunE: a.body(func(context.Context, *cobra.Command, []string) error {
			return output.One(a.out, a.format, a.palette(a.out), buildColumns, build{})
		}),
	}
}
