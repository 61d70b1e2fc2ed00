package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/gerrit"
)

func (a *app) gerritDisableCommand() *cobra.Command {
	var f siteFlags
	var ok confirmation
	cmd := &cobra.Command{
		Use:   "disable SITE_PATH",
		Short: "Take the guard out of this site's Gerrit",
		Long: `Take the guard out of the Gerrit with the site directory SITE_PATH, which must be stopped: its jar and its
modules go, and what refdbctl gerrit enable has set is what it was before, unless it was changed since. Run it
as root, as which it becomes the daemon's user, or as that user.

The repositories stay under guard, so that git's pushes are compared with other sites'. What Gerrit writes
without its guard is not: end the guard of its repositories, too, with refdbctl site disable.

Fields: ` + output.Names(gerritColumns) + changesHelp,
		Example: `  refdbctl gerrit disable /srv/gerrit -n
  refdbctl gerrit disable /srv/gerrit`,
		Args: cobra.ExactArgs(1),
		RunE: a.body(func(ctx context.Context, _ *cobra.Command, args []string) error {
			if err := ok.checkUndoable(a); err != nil {
				return err
			}
			c, err := a.load(ctx, f)
			if err != nil {
				return err
			}
			dir, err := gerrit.Open(ctx, args[0])
			if err == nil {
				err = gerritStopped(dir.Path)
			}
			if err != nil {
				return err
			}
			var inSite []gerrit.Change
			var edits []config.Edit
			if samePath(c.Gerrit, dir.Path) {
				inSite = []gerrit.Change{{Where: string(f.config), What: "site.gerrit", Before: c.Gerrit}}
				edits = []config.Edit{{"--unset-all", "site.gerrit"}}
			}
			if c, err = a.changeSite(ctx, f, c, inSite, edits, &ok); err != nil {
				return err
			}
			if err := becomeOwner(c.State); err != nil {
				return err
			}
			return a.gerritDisable(ctx, dir, inSite, ok)
		}),
	}
	f.add(cmd)
	ok.addFlags(cmd)
	return cmd
}

func (a *app) gerritDisable(ctx context.Context, dir *gerrit.Directory, done []gerrit.Change, ok confirmation) error {
	plan, err := dir.PlanRestore(ctx, dir.Restorable())
	if err != nil {
		return err
	}
	jars, err := dir.PlanNoJar()
	if err != nil {
		return err
	}
	changes := append(plan.Changes, jars...)
	all := append(done, changes...)
	if !ok.dryRun {
		if err := a.confirmChanges(ctx, &ok, changes, "Take the guard out of the Gerrit in "+dir.Path+"?"); err != nil {
			return err
		}
		// The jar goes last: a Gerrit whose modules are missing does not start.
		if err := plan.Apply(ctx); err != nil {
			return err
		}
		if err := dir.RemoveJars(); err != nil {
			return err
		}
	}
	w := output.NewReport(a.out, a.format, a.palette(a.out), "changes", gerritColumns)
	for _, c := range all {
		if err := w.Write(c); err != nil {
			return err
		}
	}
	if err := w.CloseWith(output.Field{Name: "dry_run", Value: ok.dryRun}); err != nil {
		return err
	}
	switch {
	case len(all) == 0:
		a.note("%s: there is no guard in this Gerrit: nothing was changed", dir.Path)
	case ok.dryRun:
		a.note("dry run: %s to make", count(len(all), "change"))
	default:
		a.note("%s: its Gerrit has no guard any more; its repositories have: refdbctl site disable REPO ends that, for each", dir.Path)
	}
	return nil
}
