package refs

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
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/refvalue"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/timespec"
	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/presence"
)

// rollback holds the arguments of "refs rollback".
type rollback struct {
	*app
	ask       cli.Confirmation
	project   string
	back      []backTo   // the named refs
	at        cli.Moment // or all refs below prefix
	prefix    string
	objectsIn string
	why       cli.Reason
}

// backTo is REF@{N}: the value of a ref before its last N changes.
type backTo struct {
	ref string
	n   int
}

// A returning ref is moved from its current value to an earlier value.
type returning struct {
	project, ref string
	now, then    refdb.Value
}

var returningColumns = []output.Column[returning]{
	{Name: "project", Value: func(r returning) any { return r.project }, Hidden: true},
	{Name: "old", Value: func(r returning) any { return output.OrNil(!r.now.IsAbsent(), string(r.now)) }, Text: func(r returning) string { return abbreviate(r.now) }},
	{Name: "new", Value: func(r returning) any { return output.OrNil(!r.then.IsAbsent(), string(r.then)) }, Text: func(r returning) string { return abbreviate(r.then) }},
	{Name: "ref", Value: func(r returning) any { return r.ref }},
}

func (a *app) rollbackCommand() *cobra.Command {
	r := rollback{app: a}
	cmd := &cobra.Command{
		Use:   "rollback PROJECT (REF[@{N}]... | --at TIME|POSITION [--prefix PREFIX])",
		Short: "Set refs back to earlier values",
		Long: `Set refs back to earlier values. REF is set to its value before its last change, REF@{2} to its value before its last
two changes, and so on, as refs log PROJECT REF counts them. With --at TIME, all refs of the project, or those that
start with --prefix, are set to their values in one state of the past. TIME is ` + cli.MomentHelp + `
A ref that did not exist then is deleted; a ref that has been deleted since is restored. Gerrit's counters,
refs/sequences/*, never go back.

The changes are shown first. On a terminal the command asks for confirmation; elsewhere --yes is required; --dry-run
lists the changes. Each ref is changed only if it still has the value that was shown. Up to ` + fmt.Sprint(refdb.MaxUpdateRefs) + ` refs (fewer on Cloud
Spanner) are changed at once, all or none: if one of them was changed meanwhile, or is locked, the command names it,
changes none of them, and ends (exit status 5 or 3). A rollback is recorded in the history, too, and can itself be
rolled back.

Repositories are not touched: they follow by themselves or, if the database keeps no objects, with their next refdbctl
site sync. A rollback stores no objects: if refdbctl site status at another site reports that objects are missing, run
refdbctl site store compact PROJECT at the site that has them. Therefore a project that sites guard requires
--objects-in, a site's repository of the project, which must have all objects of the earlier values. If they were gone
everywhere, no site could follow.

Fields: ` + output.Names(output.WithResult(returningColumns)) + `
(result: moved, deleted, changed, locked or, with --dry-run, would_move and would_delete)`,
		Example: `  refdbctl refs rollback my/project refs/heads/main --objects-in /srv/git/my/project.git
  refdbctl refs rollback my/project --at "2h ago" --prefix refs/heads/ --dry-run`,
		Args: cobra.MinimumNArgs(1),
		RunE: a.Body(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if err := r.parse(args, cmd.Flags().Changed("prefix")); err != nil {
				return err
			}
			if err := r.ask.Check(a.Run); err != nil {
				return err
			}
			return a.WithDB(ctx, refdb.Options{}, func(db *refdb.DB) error { return r.run(ctx, db) })
		}),
	}
	r.at.AddFlag(cmd)
	cmd.Flags().StringVar(&r.prefix, "prefix", "", "with --at, only refs that start with `prefix`")
	cmd.Flags().StringVar(&r.objectsIn, "objects-in", "", "`path` of a site's repository of the project, which must have the objects")
	cli.Must(cmd.RegisterFlagCompletionFunc("prefix", cobra.NoFileCompletions))
	cli.Must(cmd.MarkFlagDirname("objects-in"))
	r.ask.AddFlags(cmd)
	r.why.AddFlag(cmd)
	return cmd
}

// parse checks the command line, without the database.
func (r *rollback) parse(args []string, byPrefix bool) error {
	r.project = args[0]
	if err := driver.CheckProject(r.project); err != nil {
		return err
	}
	switch {
	case r.project == presence.Project:
		return exit.Usage(r.project + " has the records of the sites: only their daemons change them")
	case r.at.Given() == (len(args) > 1):
		return exit.Usage("give either refs, as REF or REF@{N}, or --at; with --at, --prefix selects refs")
	case byPrefix && !r.at.Given():
		return exit.Usage("--prefix goes with --at")
	case byPrefix && r.prefix == "":
		return exit.Usage(`--prefix "": give the start of a name, or leave it out for all refs of the project`)
	}
	for _, arg := range args[1:] {
		ref, n, err := timespec.ParseBack(arg)
		if err != nil {
			return exit.Usage(fmt.Sprintf("%q: %s", arg, err))
		}
		if err := driver.CheckKey(r.project, ref); err != nil {
			return err
		}
		if IsCounter(ref) {
			return exit.Usage(ref + " is a counter of Gerrit: numbers that were taken from it are in use, and must not be handed out again")
		}
		if slices.ContainsFunc(r.back, func(b backTo) bool { return b.ref == ref }) {
			return exit.Usage(ref + " is named twice")
		}
		r.back = append(r.back, backTo{ref, n})
	}
	return nil
}

func (r *rollback) run(ctx context.Context, db *refdb.DB) error {
	plan, what, err := r.plan(ctx, db)
	if err != nil {
		return err
	}
	results := cli.NewResults(r.app.Run, returningColumns)
	if len(plan) == 0 {
		r.Note("%s: nothing to move: the refs already have these values", r.project)
		return results.Close()
	}
	if err := r.confirmObjects(ctx, db, plan); err != nil {
		return err
	}
	return r.ask.Perform(ctx, r.app.Run, db, cli.Operation{
		Act: cli.Act{Action: "refs rollback", Project: r.project, Detail: what, Reason: r.why},
		Show: func() error {
			r.show(plan)
			return nil
		},
		Question: fmt.Sprintf("Move %s of project %s back?", output.Count(len(plan), "ref"), output.Escape(r.project)),
		Do: func() (string, error) {
			moved, err := r.move(ctx, db, plan, results)
			return fmt.Sprintf("moved %d of %d", moved, len(plan)), err
		},
		Preview: func() error { return r.preview(ctx, db, plan, results) },
		Print:   func(err error) error { return errors.Join(results.Close(), err) },
	})
}

// plan returns the refs to be moved, and their description for the audit.
func (r *rollback) plan(ctx context.Context, db *refdb.DB) (plan []returning, what string, err error) {
	if r.at.Given() {
		at, err := r.at.Resolve(ctx, r.app.Run, db, r.project)
		if err != nil {
			return nil, "", err
		}
		plan, err := r.planAt(ctx, db, at)
		return plan, fmt.Sprintf("%s to position %d, prefix %q", output.Count(len(plan), "ref"), at, r.prefix), err
	}
	var all []string
	for _, b := range r.back {
		m, err := r.planBack(ctx, db, b)
		if err != nil {
			return nil, "", err
		}
		if !m.now.Equivalent(m.then) {
			plan = append(plan, m)
			all = append(all, fmt.Sprintf("%s@{%d} from %s to %s", b.ref, b.n, refvalue.Describe(m.now), refvalue.Describe(m.then)))
		}
	}
	return plan, output.Enumerate(all), nil
}

// planBack finds the value of a ref before its last changes.
func (r *rollback) planBack(ctx context.Context, db *refdb.DB, b backTo) (returning, error) {
	m := returning{project: r.project, ref: b.ref}
	seen := 0
	for c, err := range r.History(ctx, db, r.project, b.ref) {
		if err != nil {
			return m, err
		}
		if seen++; seen == 1 {
			m.now = c.New
		}
		if seen == b.n {
			m.then = c.Old
			return m, nil
		}
	}
	if seen == 0 {
		if err := r.RequireRecorded(ctx, db, r.project); err != nil {
			return m, err
		}
	}
	return m, fmt.Errorf("%w: %s %s has %s in it", refdb.ErrPruned, r.project, b.ref, output.Count(seen, "change"))
}

// planAt compares the refs with a past state, in byte order of their names. A ref that changes
// meanwhile is detected when it is moved.
func (r *rollback) planAt(ctx context.Context, db *refdb.DB, at refdb.Position) (plan []returning, err error) {
	nextThen, stopThen := iter.Pull2(r.RefsAt(ctx, db, r.project, r.prefix, false, at))
	defer stopThen()
	nextNow, stopNow := iter.Pull2(r.Refs(ctx, db, r.project, r.prefix, false))
	defer stopNow()
	then, err, isThen := nextThen()
	if err != nil {
		return nil, err
	}
	now, err, isNow := nextNow()
	empty := !isThen && !isNow
	for err == nil && (isThen || isNow) {
		m := returning{project: r.project}
		hasThen, hasNow := isThen && (!isNow || then.Name <= now.Name), isNow && (!isThen || now.Name <= then.Name)
		var thenErr, nowErr error
		if hasThen {
			m.ref, m.then = then.Name, then.Value
			then, thenErr, isThen = nextThen()
		}
		if hasNow {
			m.ref, m.now = now.Name, now.Value
			now, nowErr, isNow = nextNow()
		}
		if m.now != m.then && !IsCounter(m.ref) {
			plan = append(plan, m)
		}
		err = errors.Join(thenErr, nowErr)
	}
	if err == nil && empty {
		err = r.RequireRecorded(ctx, db, r.project)
	}
	return plan, err
}

// confirmObjects checks that the repository of --objects-in, which is required for a guarded
// project, has the objects of the new values.
func (r *rollback) confirmObjects(ctx context.Context, db *refdb.DB, plan []returning) error {
	var ids []string
	for _, m := range plan {
		if m.then.IsObjectID() && !m.then.IsDeleted() {
			ids = append(ids, string(m.then))
		}
	}
	if len(ids) == 0 {
		return nil
	}
	limited, cancel := r.Limited(ctx)
	defer cancel()
	row, guarded, err := db.Projects().Get(limited, r.project)
	if err != nil || !guarded && r.objectsIn == "" {
		return err
	}
	if r.objectsIn == "" {
		return exit.With(exit.Failed, fmt.Sprintf("%s is guarded by sites: if no site had the objects of %s any more, no site could follow: run this command at a site, "+
			"with --objects-in and the path of its repository", r.project, output.Count(len(ids), "value")))
	}
	repo, err := gitrepo.Open(ctx, r.objectsIn)
	if err != nil {
		return err
	}
	if guarded {
		const key = "refdb.projectid" // set in all copies of the repository
		id, err := repo.Command(ctx, "config", "--default=", "--get", key).Output()
		if err != nil {
			return fmt.Errorf("reading %s of %s: %w", key, r.objectsIn, gitrepo.Failure(ctx, err))
		}
		if strings.TrimSpace(string(id)) != row.ID {
			return exit.With(exit.Failed, fmt.Sprintf("%s is not guarded as a copy of %s (its %s is %q, not %s): "+
				"give the path of a site's repository of the project", r.objectsIn, r.project, key, strings.TrimSpace(string(id)), row.ID))
		}
	}
	slices.Sort(ids)
	here, err := repo.Connected(ctx, slices.Compact(ids))
	if err != nil {
		return err
	}
	var missing []string
	for _, m := range plan {
		if m.then.IsObjectID() && !m.then.IsDeleted() && !here[string(m.then)] {
			missing = append(missing, m.ref+" "+string(m.then))
		}
	}
	if len(missing) > 0 {
		return exit.With(exit.Failed, fmt.Sprintf("nothing was done: %s lacks the objects of %s, or objects that these refer to: fetch them from a repository that has them: %s",
			r.objectsIn, output.Count(len(missing), "value"), output.Enumerate(missing)))
	}
	return nil
}

// show prints the plan before the question.
func (r *rollback) show(plan []returning) {
	const most = 50
	for _, m := range plan[:min(len(plan), most)] {
		r.Note("%s: %s -> %s", m.ref, abbreviate(m.now), abbreviate(m.then))
	}
	if n := len(plan) - most; n > 0 {
		r.Note("and %d more: --dry-run lists all", n)
	}
}

// preview prints the refs that would be moved now.
func (r *rollback) preview(ctx context.Context, db *refdb.DB, plan []returning, results *cli.Results[returning]) error {
	all, err := r.freshLocks(ctx, db, r.project)
	if err != nil {
		return err
	}
	locks := make(map[string]refdb.LockInfo)
	for _, l := range all.Holders {
		locks[l.Ref] = l
	}
	held := new(refdb.LockedError)
	for _, m := range plan {
		result := "would_" + m.done("move", "delete")
		if l, ok := locks[m.ref]; ok {
			result = "locked"
			held.Holders = append(held.Holders, l)
		}
		if err := results.Add(m, result); err != nil {
			return err
		}
	}
	if len(held.Holders) > 0 {
		return held
	}
	return nil
}

// done returns deleted if the ref is to be deleted, else moved.
func (m returning) done(moved, deleted string) string {
	if m.then.IsAbsent() {
		return deleted
	}
	return moved
}

// move moves refs in chunks, and returns how many it moved. After Ctrl-C it finishes the chunk in
// progress.
func (r *rollback) move(ctx context.Context, db *refdb.DB, plan []returning, results *cli.Results[returning]) (moved int, err error) {
	for size := refdb.MaxUpdateRefs; moved < len(plan); {
		if ctx.Err() != nil {
			return moved, context.Cause(ctx)
		}
		chunk := plan[moved:min(moved+size, len(plan))]
		err := r.moveAll(context.WithoutCancel(ctx), db, chunk)
		if errors.Is(err, refdb.ErrTooMany) && len(chunk) > 1 {
			size = len(chunk) / 2 // Cloud Spanner takes fewer
			continue
		}
		if err != nil {
			return moved, r.refused(err, moved, len(plan), chunk, results)
		}
		moved += len(chunk)
		for _, m := range chunk {
			if err := results.Add(m, m.done("moved", "deleted")); err != nil {
				return moved, err
			}
		}
	}
	return moved, nil
}

func (r *rollback) moveAll(ctx context.Context, db *refdb.DB, chunk []returning) error {
	updates := make([]refdb.Update, len(chunk))
	for i, m := range chunk {
		updates[i] = refdb.Update{Ref: m.ref, Old: m.now, New: m.then}
		if m.then.IsAbsent() {
			updates[i].New = refdb.Deleted
		}
	}
	limited, cancel := r.Limited(ctx)
	defer cancel()
	return db.Update(limited, r.project, updates)
}

// refused prints the refs that prevented a chunk from moving, and returns the error of the
// rollback.
func (r *rollback) refused(err error, moved, all int, chunk []returning, results *cli.Results[returning]) error {
	because := make(map[string]string)
	var mismatch *refdb.MismatchError
	var locked *refdb.LockedError
	switch {
	case errors.As(err, &mismatch):
		for _, m := range mismatch.Mismatches {
			because[m.Ref] = "changed"
		}
	case errors.As(err, &locked):
		for _, h := range locked.Holders {
			if !h.Stale() {
				because[h.Ref] = "locked"
			}
		}
	}
	for _, m := range chunk {
		if reason := because[m.ref]; reason != "" {
			results.Add(m, reason)
		}
	}
	return fmt.Errorf("%s: moved %d of %s; run the command again to see what is left: %w", r.project, moved, output.Count(all, "ref"), err)
}
