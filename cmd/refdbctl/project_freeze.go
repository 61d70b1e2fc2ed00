package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

func (a *app) projectFreezeCommand() *cobra.Command {
	var why cli.Reason
	var earlier bool
	cmd := &cobra.Command{
		Use:   "freeze PROJECT --reason TEXT",
		Short: "Refuse all pushes to a project, at all sites",
		Long: `Refuse all pushes to a project, at all sites. When the command has returned, no update of a guarded ref is accepted
any more, neither by a push nor by refdbctl refs put or another program that uses this version of the library: the
database refuses it. Pushers read the reason, a line of at most ` + fmt.Sprint(driver.MaxFreezeReason) + ` bytes, with your name and the time. Refs that are
not guarded are not frozen.

Reads continue: fetches, refdbctl site http, sites that catch up, and new copies. Commands that give a copy the
database's values, such as refdbctl site sync, work as usual. A push that was announced before the freeze may still be
accepted; the command prints how many refs have one. refdbctl locks resolve decides about those that do not end.
The project can't be removed, nor its mode be set to log, while it is frozen.

If the project is frozen already, the new reason replaces the earlier one. The command waits for ` + projects.RulesSettle.String() + ` if the project has
changed within the last ten minutes, or if a daemon has started and not reported yet.

The command is refused while the daemon of an earlier version runs, which does not know freezes: within ` + projects.RulesSettle.String() + ` such a
daemon refuses pushes to the project too, with advice to upgrade, but no longer follows the project.
--earlier-sites accepts that, and the command then waits for ` + projects.RulesSettle.String() + `. Programs of an earlier version that use the library
without a daemon are not detected, and move refs in spite of the freeze. So does Gerrit's plugin spanner-refdb.

Fields: ` + output.Names(projectColumns),
		Example: `  refdbctl project freeze my/project --reason "moves to another server until 18:00 UTC"`,
		Args:    cobra.ExactArgs(1),
		RunE: a.Body(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("reason") {
				return exit.Usage("--reason is required: pushers whose pushes are refused read it")
			}
			if err := errors.Join(driver.CheckFreezeReason(string(why)), driver.CheckProject(args[0])); err != nil {
				return err
			}
			return a.WithDB(ctx, refdb.Options{}, func(db *refdb.DB) error { return a.freeze(ctx, db, args[0], why, earlier) })
		}),
	}
	cmd.Flags().BoolVar(&earlier, "earlier-sites", false, "freeze the project even if daemons of an earlier version run")
	why.AddFlag(cmd)
	return cmd
}

// freeze freezes a project, and prints it.
func (a *app) freeze(ctx context.Context, db *refdb.DB, project string, why cli.Reason, earlier bool) error {
	if err := a.RequireRights(ctx, db, "project freeze"); err != nil {
		return err
	}
	p, err := a.project(ctx, db, project)
	if err != nil {
		return err
	}
	what := cli.Act{Action: "project freeze", Project: p.Project, Reason: why}
	if p.Freeze != (driver.Freeze{}) {
		what.Detail = "replaces the freeze: " + p.Freeze.String()
		a.Note("%s was frozen before: %s", output.Escape(p.Project), p.Freeze)
	}
	pending := 0
	err = a.Audited(ctx, db, what, func() (string, error) {
		limited, cancel := a.settling(ctx)
		defer cancel()
		next, frozen, err := projects.Freeze(limited, db, p, projects.Freezing{
			Reason: string(why), By: a.By(), EarlierSites: earlier, Settle: a.Settle,
			Waits: func(left time.Duration, earlier []string) {
				for _, name := range earlier {
					a.Note("site %s runs an earlier version: within %s it refuses all pushes to %s, and it does not follow the project until the site is upgraded or the project is unfrozen", name, projects.RulesSettle, output.Escape(p.Project))
				}
				a.Note("waiting for %s, until no site uses the previous rules any more", left.Round(time.Second))
			},
		})
		if frozen {
			p = next
		}
		switch {
		case errors.Is(err, projects.ErrEarlierSites):
			return "", fmt.Errorf("nothing was done: %w; --earlier-sites freezes the project all the same", err)
		case err != nil && frozen:
			return fmt.Sprintf("frozen, revision %d", p.Revision), fmt.Errorf("%s is frozen, but sites may still accept pushes by its previous rules: run the command again: %w", p.Project, err)
		case err != nil:
			return "", err
		}
		if pending, err = a.pendingIntents(limited, db, p.Project); err != nil {
			return fmt.Sprintf("frozen, revision %d", p.Revision), fmt.Errorf("%s is frozen, but the pushes that were announced before could not be counted: %w", p.Project, err)
		}
		return fmt.Sprintf("frozen, revision %d; %d announced before", p.Revision, pending), nil
	})
	if err != nil {
		return err
	}
	if pending > 0 {
		a.Note("%s with a push announced before the freeze may still change: see refdbctl locks list --intents --project %s", output.Count(pending, "ref"), wire.ShellWord(p.Project))
	}
	return a.printProject(ctx, db, p)
}

// settling is Limited for a request that may also wait until no site uses earlier rules.
func (a *app) settling(ctx context.Context) (context.Context, context.CancelFunc) {
	if a.Timeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, a.Timeout+projects.RulesSettle)
}

// pendingIntents returns how many intents of a project are pending.
func (a *app) pendingIntents(ctx context.Context, db *refdb.DB, project string) (n int, err error) {
	for _, err := range db.Intents().All(ctx, driver.IntentFilter{Project: project}) {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

func (a *app) projectUnfreezeCommand() *cobra.Command {
	var why cli.Reason
	cmd := &cobra.Command{
		Use:   "unfreeze PROJECT",
		Short: "Accept pushes to a frozen project again",
		Long: `Accept pushes to a frozen project again, at all sites: see refdbctl project freeze. The sites do so ` + projects.RulesSettle.String() + ` later, as
after any change of the project. A project that is not frozen is left as it is.

Fields: ` + output.Names(projectColumns),
		Example: `  refdbctl project unfreeze my/project --reason "moved"`,
		Args:    cobra.ExactArgs(1),
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, args []string) error {
			return a.WithDB(ctx, refdb.Options{}, func(db *refdb.DB) error { return a.unfreeze(ctx, db, args[0], why) })
		}),
	}
	why.AddFlag(cmd)
	return cmd
}

// unfreeze lifts a project's freeze, and prints the project.
func (a *app) unfreeze(ctx context.Context, db *refdb.DB, project string, why cli.Reason) error {
	if err := a.RequireRights(ctx, db, "project unfreeze"); err != nil {
		return err
	}
	p, err := a.project(ctx, db, project)
	if err != nil {
		return err
	}
	if p.Freeze == (driver.Freeze{}) {
		a.Note("%s is not frozen", output.Escape(p.Project))
		return a.printProject(ctx, db, p)
	}
	what := cli.Act{Action: "project unfreeze", Project: p.Project, Reason: why, Detail: "was frozen: " + p.Freeze.String()}
	err = a.Audited(ctx, db, what, func() (_ string, err error) {
		limited, cancel := a.Limited(ctx)
		defer cancel()
		p, err = projects.Unfreeze(limited, db, p)
		return fmt.Sprintf("revision %d", p.Revision), err
	})
	if err != nil {
		return err
	}
	a.Note("all sites refuse pushes to %s for another %s, as after any change of a project", output.Escape(p.Project), projects.RulesSettle)
	return a.printProject(ctx, db, p)
}

// refuseFrozen returns an error if a change of a project's row would undo what a freeze promises.
func refuseFrozen(p, next driver.Project) error {
	if p.Freeze == (driver.Freeze{}) || next.Mode == config.Enforce {
		return nil
	}
	return fmt.Errorf("nothing was done: %w; in mode %s sites would accept pushes", &driver.FrozenError{Project: p.Project, Freeze: p.Freeze}, next.Mode)
}

// frozenProjects returns the freezes of the frozen ones among projects.
func frozenProjects(rows []driver.Project) map[string]driver.Freeze {
	frozen := map[string]driver.Freeze{}
	for _, p := range rows {
		if p.Freeze != (driver.Freeze{}) {
			frozen[p.Project] = p.Freeze
		}
	}
	return frozen
}
