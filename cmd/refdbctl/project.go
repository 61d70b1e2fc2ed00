package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/refdb"
)

func (a *app) projectCommand() *cobra.Command {
	return group("project", "Remove projects", a.projectRemoveCommand())
}

// removal is how many refs of a project were removed.
type removal struct {
	project string
	refs    int
	dryRun  bool
}

var removalColumns = []output.Column[removal]{
	{Name: "project", Value: func(r removal) any { return r.project }},
	{Name: "removed", Value: func(r removal) any { return r.refs }},
	{Name: "dry_run", Value: func(r removal) any { return r.dryRun }},
}

func (a *app) printRemoval(r removal, what string) error {
	if a.format != output.Table {
		return output.One(a.out, a.format, output.Palette{}, removalColumns, r)
	}
	if r.dryRun {
		return nil // it was told before
	}
	_, err := fmt.Fprintf(a.out, "removed %s of %s\n", count(r.refs, what), output.Escape(r.project))
	return err
}

func (a *app) projectRemoveCommand() *cobra.Command {
	var c consent
	var force bool
	cmd := &cobra.Command{
		Use:   "remove PROJECT",
		Short: "Remove all refs and locks of a project",
		Long: `Remove all refs and locks of a project and of no other: removing "a" leaves "a/b" alone.
Repositories are not touched. A project that is not there is an error (status 1). While somebody holds
a fresh lock on one of its refs it is refused with status 3, unless --force. A lock that stands for an
intent is not forced either: see refdbctl locks resolve.

Fields: ` + output.Names(removalColumns),
		Example: `  refdbctl project remove my/project`,
		Args:    cobra.ExactArgs(1),
		RunE: a.body(func(ctx context.Context, _ *cobra.Command, args []string) error {
			project := args[0]
			if err := refdb.CheckProject(project); err != nil {
				return err
			}
			if err := c.check(a); err != nil {
				return err
			}
			return a.withDB(ctx, refdb.Options{}, func(db *refdb.DB) error {
				if err := a.isThere(ctx, db, project); err != nil {
					return err
				}
				if !c.yes {
					refs, locks, err := a.extent(ctx, db, project)
					if err == nil {
						err = refuseHeld(locks, force)
					}
					if err != nil {
						return err
					}
					a.note("project %s has %s, deleted ones included, and %s", project, count(refs, "ref"), holding(locks))
					if c.dryRun {
						return a.printRemoval(removal{project, refs, true}, "ref")
					}
				}
				if err := c.askName(ctx, a, fmt.Sprintf("Remove all of project %s?", output.Escape(project)), project); err != nil {
					return err
				}
				var options []refdb.RemoveOption
				if force {
					options = append(options, refdb.Force())
				}
				n, err := db.RemoveProject(ctx, project, options...)
				if err != nil {
					a.noteUnfinished(project, count(n, "ref"))
					return err
				}
				return a.printRemoval(removal{project, n, false}, "ref")
			})
		}),
	}
	cmd.Flags().BoolVar(&force, "force", false, "in spite of fresh locks, but not of intents")
	c.addFlags(cmd)
	return cmd
}

// noteUnfinished says how far a removal got that an error, or Ctrl-C, ended.
func (a *app) noteUnfinished(project, removed string) {
	if !strings.HasPrefix(removed, "0 ") {
		a.note("%s: not finished: removed %s; run it again to go on", project, removed)
	}
}

// isThere fails if the database has neither a ref of a project, were it a deleted
// one, nor a lock: its name may be misspelt.
func (a *app) isThere(ctx context.Context, db *refdb.DB, project string) error {
	for _, err := range a.refs(ctx, db, project, "", true) {
		return err
	}
	for _, err := range a.locks(ctx, db, refdb.LockFilter{Project: project}) {
		return err
	}
	return &status{exitError, "no such project: " + project + " (the database has no ref of it, and no lock)"}
}

// noteMissing says that a project whose locks are asked for is not there. That is no
// error: a project that is only locked has nothing while it is not.
func (a *app) noteMissing(ctx context.Context, db *refdb.DB, project string) error {
	if project == "" {
		return nil
	}
	err := a.isThere(ctx, db, project)
	var missing *status
	if errors.As(err, &missing) {
		a.note("%s", missing)
		return nil
	}
	return err
}

// extent is what removing a project would remove.
func (a *app) extent(ctx context.Context, db *refdb.DB, project string) (refs int, locks []refdb.LockInfo, err error) {
	for _, err := range a.refs(ctx, db, project, "", true) {
		if err != nil {
			return 0, nil, err
		}
		refs++
	}
	for l, err := range a.locks(ctx, db, refdb.LockFilter{Project: project}) {
		if err != nil {
			return 0, nil, err
		}
		locks = append(locks, l)
	}
	return refs, locks, nil
}

// holding counts locks and who holds them.
func holding(locks []refdb.LockInfo) string {
	holders := make(map[string]bool)
	for _, l := range locks {
		holders[l.Owner] = true
	}
	text := count(len(locks), "lock")
	if len(locks) > 0 {
		text += " of " + count(len(holders), "holder")
	}
	return text
}

// refuseHeld fails if somebody holds one of the locks. Those that stand for an
// intent are never forced.
func refuseHeld(locks []refdb.LockInfo, force bool) error {
	var held []refdb.LockInfo
	for _, l := range locks {
		if l.Intended() || !force && !l.Stale() {
			held = append(held, l)
		}
	}
	if len(held) == 0 {
		return nil
	}
	return fmt.Errorf("nothing was done: %w", &refdb.LockedError{Holders: held})
}
