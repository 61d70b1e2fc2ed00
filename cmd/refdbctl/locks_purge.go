package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/refdb"
)

func (a *app) locksPurgeCommand() *cobra.Command {
	var p purge
	cmd := &cobra.Command{
		Use:   "purge [PROJECT REF]",
		Short: "Remove locks that nobody will release any more",
		Long: `Remove locks: the lock on PROJECT REF, or those that match all of the given conditions, of which at least one must be
--stale, --older-than, --owner or --orphans.

A lock is stale when its holder has not renewed it for its stale-after time (30 s by default). The next process that
requests a stale lock takes it over, without this command. Purging is for locks that nobody requests: it tidies up.

The locks to be removed are shown first. On a terminal the command asks for confirmation; elsewhere --yes is required.
A lock is removed only in the version that was shown: a lock that was renewed or changed hands meanwhile is kept, and
reported. A fresh lock is removed only with --force. Its holder learns of the removal with its next beat, and what the
holder does until then is not guarded. A lock that stands for an intent is never purged: see refdbctl locks resolve.

--orphans, included in --stale, removes marker rows that a crash during a takeover has left behind.

Fields: ` + output.Names(purgeColumns(output.Palette{})) + `
(result: purged, kept or, with --dry-run, would_purge)`,
		Example: `  refdbctl locks purge --stale --dry-run
  refdbctl locks purge --owner eu-1 --older-than 10m --yes
  refdbctl locks purge my/project refs/heads/main`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 0 && len(args) != 2 {
				return fmt.Errorf("give both PROJECT and REF, or conditions")
			}
			return nil
		},
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, args []string) error {
			if err := p.check(a, args); err != nil {
				return err
			}
			return a.WithDB(ctx, refdb.Options{}, func(db *refdb.DB) error { return p.run(ctx, a, db) })
		}),
	}
	p.filter.addFlags(cmd)
	p.Confirmation.AddFlags(cmd)
	p.why.AddFlag(cmd)
	cmd.Flags().BoolVar(&p.orphans, "orphans", false, "only orphaned marker rows of takeovers; included in --stale")
	cmd.Flags().BoolVar(&p.force, "force", false, "remove fresh locks, too")
	return cmd
}

type purge struct {
	filter
	cli.Confirmation
	orphans bool
	force   bool
	why     cli.Reason
}

func (p *purge) check(a *app, args []string) error {
	if len(args) == 2 {
		if err := refdb.CheckKey(args[0], args[1]); err != nil {
			return err
		}
		if p.orphans || p.Project != "" || p.Prefix != "" {
			return exit.Usage("PROJECT REF names one lock: leave out --project, --prefix and --orphans")
		}
		p.Project, p.Ref = args[0], args[1]
	} else if !p.Stale && p.olderThan == 0 && p.Owner == "" && !p.orphans {
		return exit.Usage("say which locks: PROJECT REF, --stale, --older-than, --owner or --orphans")
	}
	return p.Confirmation.Check(a.Run)
}

// purged is a lock with the result of its purge.
type purged struct {
	refdb.LockInfo
	result string
}

func (p *purge) run(ctx context.Context, a *app, db *refdb.DB) error {
	locks, err := p.selected(ctx, a, db)
	if err != nil {
		return err
	}
	if len(locks) == 0 {
		if err := a.NoteIfNoProject(ctx, db, p.Project); err != nil {
			return err
		}
	}
	if err := refuseIntents(locks); err != nil {
		return err
	}
	if !p.force {
		if err := refuseFresh(locks); err != nil {
			return err
		}
	}
	results := make([]purged, len(locks))
	for i, l := range locks {
		results[i] = purged{l, "would_purge"}
	}
	if p.DryRun || len(locks) == 0 {
		return p.print(a, results)
	}
	if err := p.confirmLocks(ctx, a, locks); err != nil {
		return err
	}
	var options []refdb.PurgeOption
	if p.force {
		options = append(options, refdb.PurgeFresh())
	}
	limited, cancel := a.Limited(ctx)
	defer cancel()
	var removed []refdb.LockInfo
	err = a.Audited(ctx, db, p.act(locks), func() (outcome string, err error) {
		removed, err = db.Purge(limited, locks, options...)
		return fmt.Sprintf("purged %d of %d", len(removed), len(locks)), err
	})
	if err != nil {
		return fmt.Errorf("after %s: %w", output.Count(len(removed), "lock"), err)
	}
	for i := range results {
		results[i].result = "kept"
	}
	// removed is in the order of results.
	for i := 0; i < len(results) && len(removed) > 0; i++ {
		if l := results[i]; l.Project == removed[0].Project && l.Ref == removed[0].Ref {
			results[i].result = "purged"
			removed = removed[1:]
		}
	}
	return p.print(a, results)
}

// confirmLocks shows the locks and asks whether to purge them, unless --yes was given.
func (p *purge) confirmLocks(ctx context.Context, a *app, locks []refdb.LockInfo) error {
	if p.Yes {
		return nil
	}
	palette := a.Palette(a.Err)
	plan := output.NewWriter(a.Messages, output.Table, palette, plainLockColumns(palette))
	for _, l := range locks {
		if err := plan.Write(lockRow{LockInfo: l}); err != nil {
			return err
		}
	}
	if err := plan.Close(); err != nil {
		return err
	}
	return p.Confirm(ctx, a.Run, fmt.Sprintf("Purge %s?", output.Count(len(locks), "lock")))
}

// act returns the purge as it is recorded.
func (p *purge) act(locks []refdb.LockInfo) cli.Act {
	names := make([]string, len(locks))
	for i, l := range locks {
		names[i] = fmt.Sprintf("%s %s by %s", l.Project, l.Ref, l.Owner)
	}
	return cli.Act{Action: "locks purge" + cli.ForceSuffix(p.force), Project: p.Project, Detail: output.Enumerate(names), Reason: p.why}
}

// selected lists the locks and markers to be purged.
func (p *purge) selected(ctx context.Context, a *app, db *refdb.DB) ([]refdb.LockInfo, error) {
	var locks []refdb.LockInfo
	if !p.orphans {
		for l, err := range a.Locks(ctx, db, p.get()) {
			if err != nil {
				return nil, err
			}
			locks = append(locks, l)
		}
	}
	if p.orphans || p.Stale && p.Ref == "" {
		for marker, err := range cli.WithRowTimeout(ctx, a.Run, db.Orphans) {
			if err != nil {
				return nil, err
			}
			if p.selectsMarker(marker) {
				locks = append(locks, marker)
			}
		}
	}
	return locks, nil
}

// selectsMarker applies the filter to a marker row, whose project is
// RECLAIM_, the lock's project, _ and a timestamp.
func (p *purge) selectsMarker(m refdb.LockInfo) bool {
	project := strings.TrimPrefix(m.Project, refdb.ReclaimPrefix)
	if cut := strings.LastIndexByte(project, '_'); cut >= 0 {
		project = project[:cut]
	}
	f := p.get()
	return (f.Project == "" || f.Project == project) &&
		strings.HasPrefix(m.Ref, f.Prefix) &&
		(f.Owner == "" || f.Owner == m.Owner || strings.HasPrefix(m.Owner, f.Owner+"/")) &&
		(f.OlderThan == 0 || m.Age > f.OlderThan)
}

// refuseIntents fails if one of the locks stands for an intent.
func refuseIntents(locks []refdb.LockInfo) error {
	intended := slices.DeleteFunc(slices.Clone(locks), func(l refdb.LockInfo) bool { return !l.Intended() })
	if len(intended) == 0 {
		return nil
	}
	return fmt.Errorf("nothing was purged, because %s among them: what its site has shown to its readers must be decided on: "+
		"refdbctl locks resolve: %w", output.Count(len(intended), "intent"), &refdb.LockedError{Holders: intended})
}

// refuseFresh fails if one of the locks is fresh. Markers don't count, because nobody holds
// them.
func refuseFresh(locks []refdb.LockInfo) error {
	fresh := slices.DeleteFunc(slices.Clone(locks), func(l refdb.LockInfo) bool {
		return l.Stale() || strings.HasPrefix(l.Project, refdb.ReclaimPrefix)
	})
	if len(fresh) == 0 {
		return nil
	}
	return fmt.Errorf("nothing was purged, because %s would go too: --stale leaves such out, --force purges them: %w",
		output.Count(len(fresh), "fresh lock"), &refdb.LockedError{Holders: fresh})
}

func (p *purge) print(a *app, results []purged) error {
	palette := a.Palette(a.Out)
	w := output.NewWriter(a.Out, a.Format, palette, purgeColumns(palette))
	var kept int
	for _, r := range results {
		if r.result == "kept" {
			kept++
		}
		if err := w.Write(r); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	switch {
	case len(results) == 0:
		a.Note("nothing to purge")
	case p.DryRun:
		a.Note("would purge %s", output.Count(len(results), "lock"))
	case kept > 0:
		a.Note("purged %s; kept %d that were renewed, released or changed hands meanwhile", output.Count(len(results)-kept, "lock"), kept)
	default:
		a.Note("purged %s", output.Count(len(results), "lock"))
	}
	return nil
}

// purgeColumns are the result and the columns of the lock.
func purgeColumns(p output.Palette) []output.Column[purged] {
	columns := []output.Column[purged]{{Name: "result", Value: func(r purged) any { return r.result }}}
	for _, c := range plainLockColumns(p) {
		column := output.Column[purged]{
			Name: c.Name, Heading: c.Heading, Hidden: c.Hidden,
			Value: func(r purged) any { return c.Value(lockRow{LockInfo: r.LockInfo}) },
		}
		if c.Text != nil {
			column.Text = func(r purged) string { return c.Text(lockRow{LockInfo: r.LockInfo}) }
		}
		columns = append(columns, column)
	}
	return columns
}
