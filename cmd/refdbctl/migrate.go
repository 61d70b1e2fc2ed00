package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb"
)

func (a *app) migrateCommand() *cobra.Command {
	return cli.Group("migrate", "Create, upgrade or remove the database's schema",
		a.migrateUpCommand(), a.migrateDownCommand(), a.migrateVersionCommand(), a.migrateForceCommand())
}

func (a *app) migrateUpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "up",
		Short: "Upgrade the schema to the version that this program needs",
		Long: `Upgrade the schema to the version that this program needs, or create it. On Spanner, tables that Gerrit's
spanner-refdb plugin made are adopted with their contents, and the plugin can continue to use them. Any other table in
the way is an error, and nothing is changed. If the schema is up to date, nothing is done. If several migrations run
at once, the others wait for the first.`,
		Example: `  refdbctl migrate up --db sqlite:/var/lib/refdb/refdb.db`,
		Args:    cobra.NoArgs,
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			return a.WithMigrator(ctx, func(m *migrations.Migrator, d migrations.Dialect) error {
				before, _, err := a.schemaVersion(ctx, m)
				if err != nil {
					return err
				}
				if err := m.Up(ctx); err != nil {
					return err
				}
				return a.printVersions(ctx, m, d, before)
			})
		}),
	}
}

func (a *app) migrateDownCommand() *cobra.Command {
	var d downgrade
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Undo the last step of the schema, or all steps",
		Long: `Undo the last step of the schema, or --steps of them, or --all. Everything that the undone versions added to the
tables is lost. Below version 1 the tables themselves are dropped, with every ref and lock in them; tables that were
adopted from Gerrit's plugin stay with their contents, and lose what was added.

The command is refused with exit status 3 while a process holds a fresh lock, as a site's running daemon does:
otherwise two processes could hold the same lock. --force overrides that, except for a lock that stands for an intent:
see refdbctl locks resolve. On PostgreSQL and SQLite no process can take a lock between the check and the step. On
Spanner a running program can: stop all programs that use the database.

Fields with --dry-run: ` + output.Names(planColumns),
		Example: `  refdbctl migrate down --dry-run
  refdbctl migrate down --all --yes`,
		Args: cobra.NoArgs,
		RunE: a.Body(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			if d.steps < 1 {
				return exit.Usage(fmt.Sprintf("--steps %d: at least 1 is needed", d.steps))
			}
			if err := d.Check(a.Run); err != nil {
				return err
			}
			return a.WithMigrator(ctx, func(m *migrations.Migrator, dialect migrations.Dialect) error {
				return d.run(ctx, a, m, dialect)
			})
		}),
	}
	cmd.Flags().IntVar(&d.steps, "steps", 1, "number of `versions` to go down")
	cmd.Flags().BoolVar(&d.all, "all", false, "remove the whole schema")
	cmd.Flags().BoolVar(&d.force, "force", false, "ignore fresh locks, but not intents")
	cmd.MarkFlagsMutuallyExclusive("steps", "all")
	d.AddFlags(cmd)
	return cmd
}

// downgrade holds the flags of "migrate down".
type downgrade struct {
	cli.Confirmation
	steps      int
	all, force bool
}

func (d *downgrade) run(ctx context.Context, a *app, m *migrations.Migrator, dialect migrations.Dialect) error {
	before, dirty, err := a.schemaVersion(ctx, m)
	if err != nil {
		return err
	}
	if dirty || before > migrations.Latest(dialect) {
		return fmt.Errorf("migrate down: %w", migrations.Check(dialect, migrations.Record{Version: before, Dirty: dirty, Exists: true}))
	}
	after := before - min(before, uint(d.steps))
	if d.all {
		after = 0
	}
	if before == after {
		return a.printVersions(ctx, m, dialect, before)
	}
	guard, down := migrations.FreshLocks, m.Down
	if d.force {
		guard, down = migrations.IntentLocks, m.DownForced
	}
	if err := a.refuseUnderLocks(ctx, m, guard); err != nil {
		return err
	}
	a.Note("%s", describeDown(dialect, before, after))
	if !d.Yes {
		if err := a.noteCensus(ctx, m); err != nil {
			return err
		}
	}
	if d.DryRun {
		return a.printPlan(plan{before, after})
	}
	question := fmt.Sprintf("Bring the schema down to version %d?", after)
	if after == 0 {
		err = d.ConfirmByName(ctx, a.Run, question, cli.DatabaseName(a.URL))
	} else {
		err = d.Confirm(ctx, a.Run, question)
	}
	if err != nil {
		return err
	}
	if err := lockedError(down(ctx, int(before-after))); err != nil {
		return err
	}
	return a.printVersions(ctx, m, dialect, before)
}

// refuseUnderLocks fails if there are locks for which the migration itself would fail.
func (a *app) refuseUnderLocks(ctx context.Context, m *migrations.Migrator, guard migrations.LockPolicy) error {
	ctx, cancel := a.Limited(ctx)
	defer cancel()
	return lockedError(withContextError(ctx, m.CheckLocks(ctx, guard)))
}

// lockedError converts a *migrations.HeldError to a *refdb.LockedError, as all commands report it.
func lockedError(err error) error {
	var held *migrations.HeldError
	if !errors.As(err, &held) {
		return err
	}
	return fmt.Errorf("nothing was done: %w", &refdb.LockedError{Holders: held.Locks})
}

// noteCensus prints how much is in the tables.
func (a *app) noteCensus(ctx context.Context, m *migrations.Migrator) error {
	ctx, cancel := a.Limited(ctx)
	defer cancel()
	n, err := m.Counts(ctx)
	if err != nil {
		return withContextError(ctx, err)
	}
	a.Note("the database has %s in %s, deleted ones included, and %s of %s",
		output.Count(int(n.Refs), "ref"), output.Count(int(n.Projects), "project"), output.Count(int(n.Locks), "lock"), output.Count(int(n.Holders), "holder"))
	return nil
}

func describeDown(d migrations.Dialect, before, after uint) string {
	lost := "what newer versions added to the tables is lost; locks held by running processes end"
	switch {
	case after == 0 && d == migrations.Spanner:
		lost = "the tables are dropped, unless they were adopted: ALL REFS AND LOCKS in them are lost"
	case after == 0:
		lost = "the tables are dropped: ALL REFS AND LOCKS of all projects are lost"
	}
	return fmt.Sprintf("schema version %d -> %d: %s", before, after, lost)
}

func (a *app) migrateVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the schema's version, and the one that this program needs",
		Long: `Print the version of the schema, 0 if there is none, and the version that this program needs. A dirty schema was left
half-way by an interrupted migration.

Fields: ` + output.Names(versionColumns),
		Example: `  refdbctl migrate version -o json`,
		Args:    cobra.NoArgs,
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			return a.WithMigrator(ctx, func(m *migrations.Migrator, d migrations.Dialect) error {
				v, err := a.versions(ctx, m, d)
				if err != nil {
					return err
				}
				return output.One(a.Out, a.Format, a.Palette(a.Out), versionColumns, v)
			})
		}),
	}
}

func (a *app) migrateForceCommand() *cobra.Command {
	var c cli.Confirmation
	cmd := &cobra.Command{
		Use:   "force VERSION",
		Short: "Record the actual version of a half-migrated schema",
		Long: `Record that the schema has VERSION and is not dirty, and change nothing else. Use it on a database that an interrupted
migration left dirty, when no migration is running any more. Upward steps can be repeated, so the version before the
interrupted one is a safe choice; run "refdbctl migrate up" afterwards.

Fields with --dry-run: ` + output.Names(planColumns),
		Example: `  refdbctl migrate force 1`,
		Args:    cobra.ExactArgs(1),
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, args []string) error {
			version, err := strconv.ParseUint(args[0], 10, 31)
			if err != nil {
				return exit.Usage(fmt.Sprintf("VERSION %q is not a version number", args[0]))
			}
			if err := c.Check(a.Run); err != nil {
				return err
			}
			return a.WithMigrator(ctx, func(m *migrations.Migrator, d migrations.Dialect) error {
				before, dirty, err := a.schemaVersion(ctx, m)
				if err != nil {
					return err
				}
				if latest := migrations.Latest(d); uint(version) > latest {
					return fmt.Errorf("force schema version %d: the latest is %d", version, latest)
				}
				a.Note("the schema is recorded as version %d, dirty: %t", before, dirty)
				if c.DryRun {
					return a.printPlan(plan{before, uint(version)})
				}
				if err := c.Confirm(ctx, a.Run, fmt.Sprintf("Record it as version %d, not dirty?", version)); err != nil {
					return err
				}
				if err := m.Force(ctx, uint(version)); err != nil {
					return err
				}
				return a.printVersions(ctx, m, d, before)
			})
		}),
	}
	c.AddFlags(cmd)
	return cmd
}

// plan is the change of version that a dry run describes.
type plan struct{ database, target uint }

var planColumns = []output.Column[plan]{
	{Name: "database_version", Value: func(p plan) any { return p.database }},
	{Name: "target_version", Value: func(p plan) any { return p.target }},
	{Name: "dry_run", Value: func(plan) any { return true }},
}

// printPlan prints the plan for programs. A note has already told people.
func (a *app) printPlan(p plan) error {
	if a.Format == output.Table {
		return nil
	}
	return output.One(a.Out, a.Format, output.Palette{}, planColumns, p)
}

// versions is what "migrate version" prints.
type versions struct {
	database, program uint
	dirty             bool
}

var versionColumns = []output.Column[versions]{
	{Name: "database_version", Value: func(v versions) any { return v.database }},
	{Name: "program_version", Value: func(v versions) any { return v.program }},
	{Name: "dirty", Value: func(v versions) any { return v.dirty }},
}

func (a *app) versions(ctx context.Context, m *migrations.Migrator, d migrations.Dialect) (versions, error) {
	version, dirty, err := a.schemaVersion(ctx, m)
	return versions{database: version, program: migrations.Latest(d), dirty: dirty}, err
}

func (a *app) schemaVersion(ctx context.Context, m *migrations.Migrator) (version uint, dirty bool, err error) {
	ctx, cancel := a.Limited(ctx)
	defer cancel()
	version, dirty, err = m.Version(ctx)
	return version, dirty, withContextError(ctx, err)
}

// withContextError wraps ctx's error around err, because some drivers report the end of
// ctx as an error of their own.
func withContextError(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return err
}

// printVersions prints the versions after a migration.
func (a *app) printVersions(ctx context.Context, m *migrations.Migrator, d migrations.Dialect, before uint) error {
	v, err := a.versions(ctx, m, d)
	if err != nil {
		return err
	}
	change := fmt.Sprintf("is at version %d already", v.database)
	if before != v.database {
		change = fmt.Sprintf("version %d -> %d", before, v.database)
	}
	return cli.PrintOne(a.Run, versionColumns, v, "schema "+change)
}
