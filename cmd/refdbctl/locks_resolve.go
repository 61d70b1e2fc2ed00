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
	"github.com/globalrefdb/globalrefdb/site/presence"
)

func (a *app) locksResolveCommand() *cobra.Command {
	var r resolution
	cmd := &cobra.Command{
		Use:   "resolve (PROJECT REF | --project P | --site S) --keep-old|--take-new --reason TEXT",
		Short: "Resolve intents of a site that can't resolve them itself",
		Long: `Resolve intents: pushes that a site announced and did not end, because the site is gone. Their refs stay locked at all
sites until somebody decides whether they keep the old value or take the new one.

A site that runs, or comes back soon, resolves its own intents: it knows what its repository has. This command is only
for a site that does not come back. That site may have shown its readers the value that is decided against here; when
it comes back, it takes the database's value. The command is therefore refused with exit status 3 if the site's daemon
is alive, unless --force is given.

The decisions are shown first. On a terminal the command asks for confirmation; elsewhere --yes is required. An intent
that its site ends meanwhile is left alone. Who decided, and why, stays recorded until the site has applied the
decision. A project that does not exist is an error (exit status 1).

Gerrit's counters, refs/sequences/*, take the new value even with --keep-old: the numbers that the site has taken from
them are in use, and must not be handed out again.

With --take-new, make sure that another site has the objects: refdbctl site sync shows whether it does.

Fields: ` + output.Names(resolvedColumns) + `
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
	refdb.IntentFilter
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
		if err := refdb.CheckKey(args[0], args[1]); err != nil {
			return err
		}
		r.Project, r.Ref = args[0], args[1]
	case r.Project == "" && r.Owner == "":
		return exit.Usage("say which intents: PROJECT REF, --project or --site")
	}
	if strings.TrimSpace(r.reason) == "" {
		return exit.Usage("--reason: say why, for those who will look at this later")
	}
	if r.by == "" {
		r.by = cli.Operator()
	}
	return r.Confirmation.Check(a.Run)
}

// decision returns what is decided on an intent. Counters take the new value in any case: see [refs.IsCounter].
func (r *resolution) decision(in refdb.Intent) refdb.Decision {
	if r.keepOld && !refs.IsCounter(in.Ref) {
		return refdb.KeepOld
	}
	return refdb.TakeNew
}

// resolved is an intent with the result of its resolution.
type resolved struct {
	refdb.Intent
	decision refdb.Decision
	result   string
}

var resolvedColumns = []output.Column[resolved]{
	{Name: "result", Value: func(r resolved) any { return r.result }},
	{Name: "project", Value: func(r resolved) any { return r.Project }},
	{Name: "ref", Value: func(r resolved) any { return r.Ref }},
	{Name: "owner", Value: func(r resolved) any { return r.Owner }},
	{Name: "age_seconds", Heading: "AGE", Value: func(r resolved) any { return output.Seconds(r.Age) },
		Text: func(r resolved) string { return output.Ago(r.Age) }},
	{Name: "old", Value: func(r resolved) any { return output.OrNil(!r.Old.IsAbsent(), string(r.Old)) },
		Text: func(r resolved) string { return output.Escape(refvalue.Abbreviated(r.Old)) }},
	{Name: "new", Value: func(r resolved) any { return output.OrNil(!r.New.IsAbsent(), string(r.New)) },
		Text: func(r resolved) string { return output.Escape(refvalue.Abbreviated(r.New)) }},
	{Name: "decision", Value: func(r resolved) any { return string(r.decision) }},
}

func (r *resolution) run(ctx context.Context, a *app, db *refdb.DB) error {
	intents, err := a.intents(ctx, db, r.IntentFilter)
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
	results := make([]resolved, len(intents))
	for i, in := range intents {
		results[i] = resolved{in, r.decision(in), "would_resolve"}
	}
	if r.DryRun || len(intents) == 0 {
		return r.print(a, results)
	}
	if err := r.confirmIntents(ctx, a, results); err != nil {
		return err
	}
	limited, cancel := a.Limited(ctx)
	defer cancel()
	done := 0
	err = a.Audited(ctx, db, r.act(intents), func() (outcome string, err error) {
		done, err = r.resolve(limited, db, results)
		return fmt.Sprintf("resolved %d of %d", done, len(intents)), err
	})
	if err != nil {
		return fmt.Errorf("after %s: %w", output.Count(done, "intent"), err)
	}
	return r.print(a, results)
}

// resolve carries out what is decided, says in each result what became of it, and returns how many it has resolved.
func (r *resolution) resolve(ctx context.Context, db *refdb.DB, results []resolved) (done int, err error) {
	for _, decision := range []refdb.Decision{refdb.KeepOld, refdb.TakeNew} {
		var intents []refdb.Intent
		for _, in := range results {
			if in.decision == decision {
				intents = append(intents, in.Intent)
			}
		}
		if len(intents) == 0 {
			continue
		}
		ended, err := db.Resolve(ctx, intents, decision, r.by, r.reason)
		done += len(ended)
		if err != nil {
			return done, err
		}
		for i, in := range results {
			if in.decision != decision {
				continue
			}
			results[i].result = "ended"
			// ended is in the order of results.
			if len(ended) > 0 && ended[0].Token == in.Token && ended[0].Ref == in.Ref && ended[0].Project == in.Project {
				results[i].result = "resolved"
				ended = ended[1:]
			}
		}
	}
	return done, nil
}

// confirmIntents shows the intents and asks whether to resolve them, unless --yes was given.
func (r *resolution) confirmIntents(ctx context.Context, a *app, intents []resolved) error {
	if r.Yes {
		return nil
	}
	plan := output.NewWriter(a.Messages, output.Table, a.Palette(a.Err), resolvedColumns)
	for _, in := range intents {
		if err := plan.Write(in); err != nil {
			return err
		}
	}
	if err := plan.Close(); err != nil {
		return err
	}
	question := fmt.Sprintf("Let %s take the new value?", output.Count(len(intents), "ref"))
	if r.keepOld {
		question = fmt.Sprintf("Let %s keep the old value, or take the new one where the table says so?", output.Count(len(intents), "ref"))
	}
	return r.Confirm(ctx, a.Run, question)
}

// act returns the resolution as it is recorded.
func (r *resolution) act(intents []refdb.Intent) cli.Act {
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

// intents lists the intents that f selects.
func (a *app) intents(ctx context.Context, db *refdb.DB, f refdb.IntentFilter) ([]refdb.Intent, error) {
	var all []refdb.Intent
	for i, err := range cli.WithRowTimeout(ctx, a.Run, func(ctx context.Context) iter.Seq2[refdb.Intent, error] { return db.Intents(ctx, f) }) {
		if err != nil {
			return nil, err
		}
		all = append(all, i)
	}
	return all, nil
}

// refuseAlive fails if the daemon of one of the intents' sites is running: it ends its
// intents itself.
func (a *app) refuseAlive(ctx context.Context, db *refdb.DB, intents []refdb.Intent) error {
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
	return fmt.Errorf("nothing was resolved, because the daemon of site %s is alive (last seen %s ago) and ends its intents by itself; "+
		"--force decides in its place: %w", siteOf(alive[0].Owner), output.Ago(alive[0].Age), &refdb.LockedError{Holders: alive})
}

func (r *resolution) print(a *app, results []resolved) error {
	w := output.NewWriter(a.Out, a.Format, a.Palette(a.Out), resolvedColumns)
	ended := 0
	for _, in := range results {
		if in.result == "ended" {
			ended++
		}
		if err := w.Write(in); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	switch {
	case len(results) == 0:
		a.Note("nothing to resolve")
	case r.DryRun:
		a.Note("would resolve %s", output.Count(len(results), "intent"))
	case ended > 0:
		a.Note("resolved %s; %d were ended meanwhile by their site", output.Count(len(results)-ended, "intent"), ended)
	default:
		a.Note("resolved %s", output.Count(len(results), "intent"))
	}
	return nil
}
