package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/refdb"
)

// youngestTombstone is the least age that a tombstone may be forgotten at: no site
// that is repaired by hand should lag behind for longer.
const youngestTombstone = 24 * time.Hour

func (a *app) refsPurgeTombstonesCommand() *cobra.Command {
	var c consent
	var olderThan age
	cmd := &cobra.Command{
		Use:   "purge-tombstones PROJECT --older-than AGE",
		Short: "Forget refs that were deleted long ago",
		Long: `Forget refs of a project that were deleted at least AGE ago, by the database's clock. After that
nothing keeps a site that missed the deletion, and still has the ref, from bringing it back: choose
AGE well above the longest that a site may lag behind, and at least a day.

They are counted first, and asked about on a terminal; otherwise --yes is needed.

Fields: ` + output.Names(removalColumns),
		Example: `  refdbctl refs purge-tombstones my/project --older-than 90d --dry-run`,
		Args:    cobra.ExactArgs(1),
		RunE: a.body(func(ctx context.Context, _ *cobra.Command, args []string) error {
			project, least := args[0], time.Duration(olderThan)
			if err := refdb.CheckProject(project); err != nil {
				return err
			}
			if least < youngestTombstone {
				return usage(fmt.Sprintf("--older-than %s: at least a day, or a site that was away for a moment brings deleted refs back", least))
			}
			if err := c.check(a); err != nil {
				return err
			}
			return a.withDB(ctx, refdb.Options{}, func(db *refdb.DB) error {
				if err := a.isThere(ctx, db, project); err != nil {
					return err
				}
				if !c.yes {
					n, err := a.tombstones(ctx, db, project, least)
					if err != nil {
						return err
					}
					if c.dryRun {
						a.note("would forget %s of project %s", count(n, "tombstone"), project)
						return a.printRemoval(removal{project, n, true}, "tombstone")
					}
					if err := c.ask(ctx, a, fmt.Sprintf("Forget %s of project %s?", count(n, "tombstone"), output.Escape(project))); err != nil {
						return err
					}
				}
				n, err := db.PurgeTombstones(ctx, project, least)
				if err != nil {
					a.noteUnfinished(project, count(n, "tombstone"))
					return err
				}
				return a.printRemoval(removal{project, n, false}, "tombstone")
			})
		}),
	}
	cmd.Flags().Var(&olderThan, "older-than", "only refs deleted at least `age` ago, such as 90d")
	must(cmd.MarkFlagRequired("older-than"))
	c.addFlags(cmd)
	return cmd
}

// tombstones counts the deleted refs of a project that are old enough.
func (a *app) tombstones(ctx context.Context, db *refdb.DB, project string, least time.Duration) (n int, err error) {
	limited, cancel := a.limited(ctx)
	defer cancel()
	now, err := db.Now(limited)
	if err != nil {
		return 0, err
	}
	for ref, err := range a.refs(ctx, db, project, "", true) {
		if err != nil {
			return 0, err
		}
		if ref.Value.IsDeleted() && now.Sub(ref.Time) >= least {
			n++
		}
	}
	return n, nil
}
