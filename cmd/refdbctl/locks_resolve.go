package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/refs"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/refvalue"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/presence"
)

func (a *app) locksResolveCommand() *cobra.Command {
	var r resolution
	cmd := &cobra.Command{
		Use:   "resolve (PROJECT REF | --project P | --site S) --keep-old|--take-new --reason TEXT",
		Short: "Resolve intents of a site that can't resolve them itself",
		Long: `Resolve intents: pushes that a site announced and did not end, because the site is gone. Their refs stay locked at all
sites until an operator decides whether they keep the old value or take the new one.

A site that runs, or comes back soon, resolves its own intents: it knows what its repository has. This command is only
for a site that does not come back. That site may have shown its readers the value that is decided against here; when
it comes back, it takes the database's value. The command is therefore refused with exit status 3 if the site's daemon
is alive, unless --force is given.

The decisions are shown first. On a terminal the command asks for confirmation; elsewhere --yes is required. An intent
that its site ends meanwhile is not changed. Who decided, and why, stays recorded until the site has applied the
decision. A project that does not exist is an error (exit status 1).

Gerrit's counters, refs/sequences/*, take the new value even with --keep-old: the numbers that the site has taken from
them are in use, and must not be handed out again.

With --take-new, make sure that another site has the objects: refdbctl site sync shows whether it does.

Fields: ` + output.Names(output.WithResult(decidedColumns)) + `
(result: resolved; ended, if the site ended the intent meanwhile; or, with --dry-run, would_resolve)`,
		Example: `  refdbctl locks resolve my/project refs/heads/main --keep-old --reason "eu-1 lost its disk"
  refdbctl locks resolve --site eu-1 --take-new --reason "eu-1 is gone, all was replicated" --yes`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 0 && len(args) != 2 {
				return errors.New("give both PROJECT and REF, or --project, or --site")
			}
			return nil
		},
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, args []string) error {
			if err := r.check(a, args); err != nil {
				return err
			}
			return a.WithDB(ctx, refdb.Options{}, func(db *refdb.DB) error { return r.run(ctx, a, db) })
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&r.Project, "project", "", "all intents of this `project`")
	// This hides the global flag --site, the site at which a command runs.
	flags.StringVar(&r.Owner, "site", "", "all intents of this `site`")
	flags.BoolVar(&r.keepOld, "keep-old", false, "the refs keep their old values")
	flags.BoolVar(&r.takeNew, "take-new", false, "the refs take the announced values")
	flags.StringVar(&r.reason, "reason", "", "the reason, a `text` that is recorded with the decision")
	flags.StringVar(&r.by, "by", "", "`name` of the person who decides (default: user@host)")
	flags.BoolVar(&r.force, "force", false, "even for intents of a site that is alive")
	cli.Must(cmd.MarkFlagRequired("reason"))
	cmd.MarkFlagsOneRequired("keep-old", "take-new")
	cmd.MarkFlagsMutuallyExclusive("keep-old", "take-new")
	r.Confirmation.AddFlags(cmd)
	return cmd
}

// resolution holds the arguments of the command.
type resolution struct {
	driver.IntentFilter
	cli.Confirmation
	keepOld, takeNew bool
	reason, by       string
	force            bool
}

func (r *resolution) check(a *app, args []string) error {
	switch {
	case len(args) == 2 && r.Project != "":
		return exit.Usage("PROJECT REF names one intent: leave out --project")
	case len(args) == 2:
		if err := driver.CheckKey(args[0], args[1]); err != nil {
			return err
		}
		r.Project, r.Ref = args[0], args[1]
	case r.Project == "" && r.Owner == "":
		return exit.Usage("specify intents: PROJECT REF, --project or --site")
	}
	if strings.TrimSpace(r.reason) == "" {
		return exit.Usage("--reason: give a reason: it is recorded with the decision")
	}
	if r.by == "" {
		r.by = cli.Operator()
	}
	return r.Confirmation.Check(a.Run)
}

// decision returns the decision on an intent. A counter always takes the new value: see
// [refs.IsCounter].
func (r *resolution) decision(in driver.Intent) driver.Decision {
	if r.keepOld && !refs.IsCounter(in.Ref) {
		return driver.KeepOld
	}
	return driver.TakeNew
}

// decided is an intent with the decision on it.
type decided struct {
	driver.Intent
	decision driver.Decision
}

var decidedColumns = []output.Column[decided]{
	{Name: "project", Value: func(d decided) any { return d.Project }},
	{Name: "ref", Value: func(d decided) any { return d.Ref }},
	{Name: "owner", Value: func(d decided) any { return d.Owner }},
	{Name: "age_seconds", Heading: "AGE", Value: func(d decided) any { return output.Seconds(d.Age) },
		Text: func(d decided) string { return output.Ago(d.Age) }},
	{Name: "old", Value: func(d decided) any { return output.OrNil(!d.Old.IsAbsent(), string(d.Old)) },
		Text: func(d decided) string { return output.Escape(refvalue.Abbreviated(d.Old)) }},
	{Name: "new", Value: func(d decided) any { return output.OrNil(!d.New.IsAbsent(), string(d.New)) },
		Text: func(d decided) string { return output.Escape(refvalue.Abbreviated(d.New)) }},
	{Name: "decision", Value: func(d decided) any { return string(d.decision) }},
}

func (r *resolution) run(ctx context.Context, a *app, db *refdb.DB) error {
	intents, err := cli.Collect(cli.WithRowTimeout(ctx, a.Run, func(ctx context.Context) iter.Seq2[driver.Intent, error] {
		return db.Intents().All(ctx, r.IntentFilter)
	}))
	if err != nil {
		return err
	}
	if r.Ref != "" && len(intents) == 0 {
		return exit.With(exit.Failed, fmt.Sprintf("there is no intent on %s %s", r.Project, r.Ref))
	}
	if r.Project != "" && len(intents) == 0 {
		if err := a.RequireProject(ctx, db, r.Project); err != nil {
			return err
		}
	}
	if !r.force {
		if err := a.refuseAlive(ctx, db, intents); err != nil {
			return err
		}
	}
	rows := make([]decided, len(intents))
	for i, in := range intents {
		rows[i] = decided{in, r.decision(in)}
	}
	return lockChange[decided]{
		act: r.act(intents), rows: rows,
		columns:  func(output.Palette) []output.Column[decided] { return decidedColumns },
		show:     func() error { return showDecisions(a, rows) },
		question: r.question(len(rows)),
		noun:     "intent", verb: "resolve", done: "resolved",
		kept: "ended", why: "%d were ended meanwhile by their site",
		change: func(ctx context.Context) ([]decided, error) { return r.resolve(ctx, db, rows) },
	}.run(ctx, a, db, r.Confirmation)
}

// resolve carries out the decisions, and returns those that it carried out.
func (r *resolution) resolve(ctx context.Context, db *refdb.DB, rows []decided) (done []decided, err error) {
	for _, decision := range []driver.Decision{driver.KeepOld, driver.TakeNew} {
		var intents []driver.Intent
		for _, d := range rows {
			if d.decision == decision {
				intents = append(intents, d.Intent)
			}
		}
		if len(intents) == 0 {
			continue
		}
		resolved, err := db.Intents().Resolve(ctx, intents, decision, r.by, r.reason)
		for _, in := range resolved {
			done = append(done, decided{in, decision})
		}
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

func showDecisions(a *app, rows []decided) error {
	plan := make([]output.Result[decided], len(rows))
	for i, d := range rows {
		plan[i] = output.Result[decided]{Record: d, Result: "would_resolve"}
	}
	return cli.ShowTable(a.Run, output.WithResult(decidedColumns), plan)
}

func (r *resolution) question(intents int) string {
	refs := output.Count(intents, "ref")
	if r.keepOld {
		return fmt.Sprintf("Let %s keep the old value, or take the new one where the table says so?", refs)
	}
	return fmt.Sprintf("Let %s take the new value?", refs)
}

// act returns the resolution's entry in the audit.
func (r *resolution) act(intents []driver.Intent) cli.Act {
	names := make([]string, len(intents))
	for i, in := range intents {
		names[i] = fmt.Sprintf("%s %s of %s: %s to %s", in.Project, in.Ref, in.Owner, refvalue.Describe(in.Old), refvalue.Describe(in.New))
	}
	choice := " --keep-old"
	if r.takeNew {
		choice = " --take-new"
	}
	return cli.Act{Action: "locks resolve" + choice + cli.ForceSuffix(r.force), Project: r.Project, Detail: "by " + r.by + ": " + output.Enumerate(names), Reason: cli.Reason(r.reason)}
}

// refuseAlive fails if the daemon of one of the intents' sites is running: the daemon resolves
// them.
func (a *app) refuseAlive(ctx context.Context, db *refdb.DB, intents []driver.Intent) error {
	ctx, cancel := a.Limited(ctx)
	defer cancel()
	var sites []string
	for _, i := range intents {
		sites = append(sites, siteOf(i.Owner))
	}
	slices.Sort(sites)
	var alive []refdb.LockInfo
	for _, name := range slices.Compact(sites) {
		l, err := presence.LockOf(ctx, db, name)
		if err != nil {
			return err
		}
		if l != nil {
			alive = append(alive, *l)
		}
	}
	if len(alive) == 0 {
		return nil
	}
	return fmt.Errorf("nothing was resolved: the daemon of site %s is alive (last seen %s ago), and resolves its own intents; "+
		"--force overrides this check: %w", siteOf(alive[0].Owner), output.Ago(alive[0].Age), &refdb.LockedError{Holders: alive})
}
