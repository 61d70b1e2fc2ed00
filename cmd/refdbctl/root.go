package main

import (
	"context"
	"log/slog"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/gerrit"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/manual"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/refs"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/site"
	"github.com/globalrefdb/globalrefdb/migrations"
)

// app has the commands as methods.
type app struct{ *cli.Run }

func newApp(s cli.Streams) *app { return &app{cli.New(s)} }

// run executes a command line.
func (a *app) run(ctx context.Context, args []string) error {
	return a.Execute(ctx, a.rootCommand(), args)
}

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "refdbctl",
		Short: "Manage a global ref database",
		Long: `refdbctl manages a global ref database: one shared SQL database that holds the value of every Git ref of several
sites, and the locks on the refs.

The database is named by --db or REFDB_URL:

  sqlite:FILE                                         one file, for a single machine
  postgres://USER@HOST/DATABASE                       PostgreSQL
  spanner://projects/P/instances/I/databases/D        Cloud Spanner

Pass an address with a password in REFDB_URL rather than in --db: other users of the machine can see the arguments of
commands.

` + exit.Help + `

Environment: REFDB_URL and REFDB_SITE are the defaults of --db and --site. REFDB_DIGEST_KEY is the key of the digests
that replace names in logs, so that the logs of several processes can be matched. NO_COLOR turns colours off. Colours
and progress are only shown on a terminal.`,
		Example: `  export REFDB_URL=sqlite:/var/lib/refdb/refdb.db
  refdbctl migrate up
  refdbctl refs import my/project --repo /srv/git/my/project.git
  refdbctl locks list --stale`,
		Version:       cli.Version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cli.NoSuchCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags := root.PersistentFlags()
	// No default here: help would print the password of REFDB_URL.
	flags.Func("db", "the database's `URL` (default: REFDB_URL)", func(s string) error { a.URL = s; return nil })
	flags.StringVar(&a.Site, "site", a.Env("REFDB_SITE"), "this site's `name` (default: REFDB_SITE or the host's name)")
	flags.VarP(&a.Format, "output", "o", "output format: table, json or csv")
	flags.DurationVar(&a.Timeout, "timeout", 30*time.Second, "how long to wait for each response of the database; 0: no limit")
	flags.Func("log-level", "log messages of this `level` and above on stderr: debug, info, warn or error (default: nothing)",
		func(s string) error { return a.LogLevel.UnmarshalText([]byte(s)) })
	flags.BoolFuncP("verbose", "v", "same as --log-level=debug", func(string) error { a.LogLevel = slog.LevelDebug; return nil })
	cli.Must(root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(output.Formats[:], cobra.ShellCompDirectiveNoFileComp)))

	root.AddCommand(
		a.migrateCommand(),
		a.topCommand(),
		a.doctorCommand(),
		a.recoverCommand(),
		a.locksCommand(),
		a.lockCommand(),
		refs.Command(a.Run),
		refs.WatchCommand(a.Run),
		a.historyCommand(),
		a.followersCommand(),
		a.projectCommand(),
		site.Command(a.Run),
		gerrit.Command(a.Run),
		a.sitesCommand(),
		a.auditCommand(),
		a.tokenCommand(),
		a.accessCommand(),
		a.versionCommand(),
		a.manualCommand(root),
	)
	return root
}

// build is the one record that "version" prints.
type build struct{}

var buildColumns = []output.Column[build]{
	{Name: "version", Value: func(build) any { return cli.Version() }},
	{Name: "go", Value: func(build) any { return runtime.Version() }},
	{Name: "platform", Value: func(build) any { return runtime.GOOS + "/" + runtime.GOARCH }},
	// All kinds of databases have the same versions.
	{Name: "schema", Value: func(build) any { return migrations.Latest(migrations.SQLite) }},
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Long: `Print the version of this program, what it was built with, and the schema version that it needs. "refdbctl migrate
version" prints the schema version of the database. This command does not use the database.

Fields: ` + output.Names(buildColumns),
		Example: `  refdbctl version -o json`,
		Args:    cobra.NoArgs,
		RunE: a.Body(func(context.Context, *cobra.Command, []string) error {
			return output.One(a.Out, a.Format, a.Palette(a.Out), buildColumns, build{})
		}),
	}
}

// manualCommand writes the manual pages for packages of this program: see scripts/packages.sh.
func (a *app) manualCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:     "manual DIRECTORY",
		Example: `  refdbctl manual ./man`,
		Short:   "Write the manual pages of all commands into a directory",
		Args:    cobra.ExactArgs(1),
		Hidden:  true,
		RunE: a.Body(func(_ context.Context, _ *cobra.Command, args []string) error {
			return manual.Write(args[0], root, cli.Version())
		}),
	}
}
