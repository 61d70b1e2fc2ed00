package refs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

func (a *app) deleteCommand() *cobra.Command {
	var c refChange
	var confirm cli.Confirmation
	var prefix string
	cmd := &cobra.Command{
		Use:   "delete PROJECT (REF (--old OLD | --force) | --prefix PREFIX)",
		Short: "Delete a ref if it has the expected value, or all below a prefix",
		Long: `Delete a ref if it has the expected value. A deleted ref leaves a tombstone, which prevents sites that still have the
ref from restoring it. A ref that the database does not know is not deleted, even with --force (exit status 1).

With --prefix all refs whose names start with the prefix are deleted. The command shows their number and, on a
terminal, asks for confirmation; elsewhere --yes is required; --dry-run lists the refs. A ref that is locked, or that
changes meanwhile, is not deleted, and is listed (exit status 3 or 5).
` + putHelp + output.Names(changeColumns()) + `; with --prefix ` + output.Names(output.WithResult(deletedColumns)) + `
(result: deleted, changed, locked or, with --dry-run, would_delete)`,
		Example: `  refdbctl refs delete my/project refs/heads/topic --old $OLD
  refdbctl refs delete my/project --prefix refs/heads/topic/ --dry-run`,
		Args: cobra.RangeArgs(1, 2),
		RunE: a.Body(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			switch byPrefix := cmd.Flags().Changed("prefix"); {
			case byPrefix == (len(args) == 2):
				return exit.Usage("give either one REF or --prefix PREFIX")
			case byPrefix && prefix == "":
				return exit.Usage(`--prefix "": give the start of a name, or "refs/" for all refs of the project`)
			case byPrefix:
				return a.deletePrefix(ctx, confirm, c.why, args[0], prefix)
			case confirm.Yes || confirm.DryRun:
				return exit.Usage("--yes and --dry-run require --prefix: a single ref is deleted with --old or --force")
			}
			return c.run(ctx, a, cmd, args)
		}),
	}
	c.addFlags(a, cmd)
	confirm.AddFlags(cmd)
	cmd.Flags().StringVar(&prefix, "prefix", "", "all refs that start with `prefix`")
	for _, name := range []string{"old", "force", "string", "adopt", "token", "owner"} {
		cmd.MarkFlagsMutuallyExclusive(name, "prefix")
	}
	return cmd
}

// forceDelete deletes a ref whatever its value is, and returns that value. It fails for a ref that
// the database does not know: deleting it would only leave a tombstone.
func forceDelete(ctx context.Context, db *refdb.DB, project, ref string) (refdb.Value, error) {
	old, err := db.Get(ctx, project, ref)
	for err == nil && old != refdb.Unknown {
		err = db.Update(ctx, project, []refdb.Update{{Ref: ref, Old: old, New: refdb.Deleted}})
		var mismatch *refdb.MismatchError
		if !errors.As(err, &mismatch) {
			return old, err
		}
		// The ref has changed meanwhile: delete the new value.
		old, err = mismatch.Mismatches[0].Have, ctx.Err()
	}
	if err != nil {
		return old, err
	}
	return old, exit.With(exit.Failed, fmt.Sprintf("no such ref: %s %s", project, ref))
}

var deletedColumns = []output.Column[projectRef]{
	{Name: "project", Value: func(r projectRef) any { return r.project }, Hidden: true},
	{Name: "old", Value: func(r projectRef) any { return string(r.Value) }},
	{Name: "ref", Value: func(r projectRef) any { return r.Name }},
}

func (a *app) deletePrefix(ctx context.Context, c cli.Confirmation, why cli.Reason, project, prefix string) error {
	if err := driver.CheckProject(project); err != nil {
		return err
	}
	if err := c.Check(a.Run); err != nil {
		return err
	}
	return a.WithDB(ctx, refdb.Options{}, func(db *refdb.DB) error {
		if err := a.RequireProject(ctx, db, project); err != nil {
			return err
		}
		refs, err := cli.Collect(a.Refs(ctx, db, project, prefix, false))
		if err != nil {
			return err
		}
		results := cli.NewResults(a.Run, deletedColumns)
		d := &deletion{app: a, db: db, project: project, refs: refs,
			report: func(ref refdb.Ref, result string) { results.Add(projectRef{project, ref}, result) }}
		act := cli.Act{Action: "refs delete --prefix", Project: project, Detail: output.Count(len(refs), "ref") + " below " + prefix, Reason: why}
		return d.perform(ctx, c, act, "", func(err error) error { return errors.Join(results.Close(), d.conclude(err)) })
	})
}

// deleteBatch is the number of refs that are deleted in one transaction.
const deleteBatch = 1000

// deletion deletes refs that still have the listed values.
type deletion struct {
	*app
	db      *refdb.DB
	project string
	refs    []refdb.Ref
	report  func(ref refdb.Ref, result string)

	deleted, changed, locked int
}

// perform asks whether to delete the refs, whose reason is why, deletes them, and calls conclude,
// also if there are none.
func (d *deletion) perform(ctx context.Context, c cli.Confirmation, act cli.Act, why string, conclude func(error) error) error {
	if len(d.refs) == 0 {
		return conclude(nil)
	}
	return c.Perform(ctx, d.Run, d.db, cli.Operation{
		Act: act,
		Question: fmt.Sprintf("Delete %s of project %s%s, from %s to %s?", output.Count(len(d.refs), "ref"), output.Escape(d.project), why,
			output.Escape(d.refs[0].Name), output.Escape(d.refs[len(d.refs)-1].Name)),
		Do: func() (string, error) {
			err := d.run(ctx)
			return fmt.Sprintf("deleted %d", d.deleted), err
		},
		Preview: func() error { return d.preview(ctx) },
		Print:   conclude,
	})
}

// run deletes the refs batch by batch. Ctrl-C lets the batch in progress finish.
func (d *deletion) run(ctx context.Context) error {
	for batch := range slices.Chunk(d.refs, deleteBatch) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := d.send(context.WithoutCancel(ctx), batch); err != nil {
			return err
		}
	}
	return nil
}

// preview reports what run would do now.
func (d *deletion) preview(ctx context.Context) error {
	held, err := d.freshLocks(ctx, d.db, d.project)
	if err != nil {
		return err
	}
	for _, ref := range d.refs {
		if slices.ContainsFunc(held.Holders, func(l refdb.LockInfo) bool { return l.Ref == ref.Name }) {
			d.locked++
			d.report(ref, "locked")
		} else {
			d.deleted++
			d.report(ref, "would_delete")
		}
	}
	return nil
}

// freshLocks returns the fresh locks of a project, as the error of an update of all its refs.
func (a *app) freshLocks(ctx context.Context, db *refdb.DB, project string) (*refdb.LockedError, error) {
	locks, err := cli.Collect(a.Locks(ctx, db, refdb.LockFilter{Project: project}))
	return &refdb.LockedError{Holders: slices.DeleteFunc(locks, refdb.LockInfo.Stale)}, err
}

// send deletes those of a batch that are neither locked nor changed.
func (d *deletion) send(ctx context.Context, batch []refdb.Ref) error {
	for len(batch) > 0 {
		err := d.update(ctx, batch)
		refused := make(map[string]bool)
		var locked *refdb.LockedError
		var mismatch *refdb.MismatchError
		result, counter := "deleted", &d.deleted
		switch {
		case errors.As(err, &locked):
			result, counter = "locked", &d.locked
			for _, h := range locked.Holders {
				if !h.Stale() {
					refused[h.Ref] = true
				}
			}
		case errors.As(err, &mismatch):
			result, counter = "changed", &d.changed
			for _, m := range mismatch.Mismatches {
				refused[m.Ref] = true
			}
		case err != nil:
			return err
		}
		var rest []refdb.Ref
		for _, ref := range batch {
			if err != nil && !refused[ref.Name] {
				rest = append(rest, ref)
				continue
			}
			*counter++
			d.report(ref, result)
		}
		if len(rest) == len(batch) {
			return err // the error names no ref of the batch
		}
		batch = rest
	}
	return nil
}

func (d *deletion) update(ctx context.Context, batch []refdb.Ref) error {
	updates := make([]refdb.Update, len(batch))
	for i, ref := range batch {
		updates[i] = refdb.Update{Ref: ref.Name, Old: ref.Value, New: refdb.Deleted}
	}
	limited, cancel := d.Limited(ctx)
	defer cancel()
	return d.db.Update(limited, d.project, updates)
}

// conclude prints the summary or returns it as an error.
func (d *deletion) conclude(err error) error {
	summary := fmt.Sprintf("%s: %d deleted, %d changed, %d locked", d.project, d.deleted, d.changed, d.locked)
	switch {
	case err != nil:
		d.Note("not finished: %s; run the command again to continue", summary)
		return err
	case d.changed > 0:
		return exit.With(exit.Mismatch, summary+"; changed and locked refs were left alone: run the command again")
	case d.locked > 0:
		return exit.With(exit.Locked, summary+"; changed and locked refs were left alone: run the command again")
	}
	d.Note("%s", summary)
	return nil
}

// minTombstoneAge is the minimum age at which a tombstone may be forgotten. A site that is repaired
// by hand should not lag behind for longer.
const minTombstoneAge = 24 * time.Hour

func (a *app) purgeTombstonesCommand() *cobra.Command {
	var c cli.Confirmation
	var olderThan cli.Age
	var why cli.Reason
	cmd := &cobra.Command{
		Use:   "purge-tombstones PROJECT --older-than AGE",
		Short: "Forget refs that were deleted long ago",
		Long: `Forget refs of a project that were deleted at least AGE ago, by the database's clock. Afterwards nothing prevents a
site that missed the deletion and still has the ref from restoring it: choose AGE well above the longest time for
which a site may lag behind, and at least a day.

The command shows the number of these refs and, on a terminal, asks for confirmation; elsewhere --yes is required.

Fields: ` + output.Names(cli.RemovalColumns),
		Example: `  refdbctl refs purge-tombstones my/project --older-than 90d --dry-run`,
		Args:    cobra.ExactArgs(1),
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, args []string) error {
			project, minAge := args[0], time.Duration(olderThan)
			if err := driver.CheckProject(project); err != nil {
				return err
			}
			if minAge < minTombstoneAge {
				return exit.Usage(fmt.Sprintf("--older-than %s: must be at least a day, or a site that was briefly away would restore deleted refs", minAge))
			}
			if err := c.Check(a.Run); err != nil {
				return err
			}
			return a.WithDB(ctx, refdb.Options{}, func(db *refdb.DB) error {
				if err := a.RequireProject(ctx, db, project); err != nil {
					return err
				}
				return a.purgeTombstones(ctx, db, c, project, minAge, why)
			})
		}),
	}
	cmd.Flags().Var(&olderThan, "older-than", "only refs deleted at least `age` ago, such as 90d")
	cli.Must(cmd.MarkFlagRequired("older-than"))
	c.AddFlags(cmd)
	why.AddFlag(cmd)
	return cmd
}

func (a *app) purgeTombstones(ctx context.Context, db *refdb.DB, c cli.Confirmation, project string, minAge time.Duration, why cli.Reason) error {
	n, question := 0, ""
	if !c.Yes {
		found, err := a.tombstones(ctx, db, project, minAge)
		if err != nil {
			return err
		}
		question = fmt.Sprintf("Forget %s of project %s?", output.Count(found, "tombstone"), output.Escape(project))
		if c.DryRun {
			n = found
			a.Note("would forget %s of project %s", output.Count(n, "tombstone"), project)
		}
	}
	return c.Perform(ctx, a.Run, db, cli.Operation{
		Act:      cli.Act{Action: "refs purge-tombstones", Project: project, Detail: "older than " + output.Ago(minAge), Reason: why},
		Question: question,
		Do: func() (_ string, err error) {
			n, err = db.Operator().PurgeTombstones(ctx, project, minAge)
			return fmt.Sprintf("removed %d", n), err
		},
		Print: func(err error) error {
			return a.PrintRemoval(cli.RemovalResult{Project: project, Refs: n, DryRun: c.DryRun}, "tombstone", err)
		},
	})
}

// tombstones counts the deleted refs of a project that are old enough.
func (a *app) tombstones(ctx context.Context, db *refdb.DB, project string, minAge time.Duration) (n int, err error) {
	limited, cancel := a.Limited(ctx)
	defer cancel()
	now, err := db.Now(limited)
	if err != nil {
		return 0, err
	}
	for ref, err := range a.Refs(ctx, db, project, "", true) {
		if err != nil {
			return 0, err
		}
		if ref.Value.IsDeleted() && now.Sub(ref.Time) >= minAge {
			n++
		}
	}
	return n, nil
}
