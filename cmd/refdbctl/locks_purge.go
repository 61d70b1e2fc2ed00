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
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/operator"
)

func (a *app) locksPurgeCommand() *cobra.Command {
	var p purge
	cmd := &cobra.Command{
		Use:   "purge [PROJECT REF]",
		Short: "Remove locks that their holders will no longer release",
		Long: `Remove locks: the lock on PROJECT REF, or those that match all of the given conditions, of which at least one must be
--stale, --older-than, --owner or --orphans.

A lock is stale when its holder has not renewed it for its stale-after time (30 s by default). The next process that
requests a stale lock takes it over, without this command. Purging is only for locks that no process requests: it
cleans up.

The locks to be removed are shown first. On a terminal the command asks for confirmation; elsewhere --yes is required.
A lock is removed only in the version that was shown: a lock that was renewed or changed hands meanwhile is kept, and
reported. A fresh lock is removed only with --force. Its holder learns of the removal with its next beat, and what the
holder does until then is not guarded. A lock that stands for an intent is never purged: see refdbctl locks resolve.

--orphans, included in --stale, removes marker rows that a crash during a takeover has left behind.

Fields: ` + output.Names(output.WithResult(plainLockColumns(output.Palette{}))) + `
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
		if err := driver.CheckKey(args[0], args[1]); err != nil {
			return err
		}
		if p.orphans || p.Project != "" || p.Prefix != "" {
			return exit.Usage("PROJECT REF names one lock: leave out --project, --prefix and --orphans")
		}
		p.Project, p.Ref = args[0], args[1]
	} else if !p.Stale && p.olderThan == 0 && p.Owner == "" && !p.orphans {
		return exit.Usage("specify locks: PROJECT REF, --stale, --older-than, --owner or --orphans")
	}
	return p.Confirmation.Check(a.Run)
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
	var options []operator.PurgeOption
	if p.force {
		options = append(options, operator.PurgeFresh())
	}
	rows := lockRows(locks)
	return lockChange[lockRow]{
		act: p.act(locks), rows: rows, columns: plainLockColumns,
		show:     func() error { return cli.ShowTable(a.Run, plainLockColumns(a.Palette(a.Err)), rows) },
		question: fmt.Sprintf("Purge %s?", output.Count(len(locks), "lock")),
		noun:     "lock", verb: "purge", done: "purged",
		kept: "kept", why: "kept %d that were renewed, released or changed hands meanwhile",
		change: func(ctx context.Context) ([]lockRow, error) {
			removed, err := db.Operator().Purge(ctx, locks, options...)
			return lockRows(removed), err
		},
	}.run(ctx, a, db, p.Confirmation)
}

func lockRows(locks []refdb.LockInfo) []lockRow {
	rows := make([]lockRow, len(locks))
	for i, l := range locks {
		rows[i].LockInfo = l
	}
	return rows
}

// act returns the purge's entry in the audit.
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
		var err error
		if locks, err = cli.Collect(a.Locks(ctx, db, p.get())); err != nil {
			return nil, err
		}
	}
	if p.orphans || p.Stale && p.Ref == "" {
		for marker, err := range cli.WithRowTimeout(ctx, a.Run, db.Operator().Orphans) {
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
	project := strings.TrimPrefix(m.Project, driver.ReclaimPrefix)
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
	return fmt.Errorf("nothing was purged: the selection includes %s, and intents are never purged: "+
		"refdbctl locks resolve: %w", output.Count(len(intended), "intent"), &refdb.LockedError{Holders: intended})
}

// refuseFresh fails if one of the locks is fresh. Markers don't count: they have no holder.
func refuseFresh(locks []refdb.LockInfo) error {
	fresh := slices.DeleteFunc(slices.Clone(locks), func(l refdb.LockInfo) bool {
		return l.Stale() || strings.HasPrefix(l.Project, driver.ReclaimPrefix)
	})
	if len(fresh) == 0 {
		return nil
	}
	return fmt.Errorf("nothing was purged: the selection includes %s: --stale excludes fresh locks, --force purges them: %w",
		output.Count(len(fresh), "fresh lock"), &refdb.LockedError{Holders: fresh})
}
