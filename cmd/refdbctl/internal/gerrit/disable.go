package gerrit

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/site"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/gerrit"
)

func (a *app) disableCommand() *cobra.Command {
	var f site.Flags
	var ok cli.Confirmation
	cmd := &cobra.Command{
		Use:   "disable SITE_PATH",
		Short: "Remove the guard from this site's Gerrit",
		Long: `Remove the guard from the Gerrit with the site directory SITE_PATH, which must be stopped. The guard's jar and modules
are removed, and the settings that refdbctl gerrit enable made get their previous values, unless they were changed
since. Run the command as root or as the daemon's user; as root, it switches to that user.

The repositories stay under guard, so that git's pushes are compared with those of other sites. What Gerrit writes
without its guard is not compared: end the guard of its repositories, too, with refdbctl site disable.

Fields: ` + output.Names(gerritColumns) + changesHelp,
		Example: `  refdbctl gerrit disable /srv/gerrit -n
  refdbctl gerrit disable /srv/gerrit`,
		Args: cobra.ExactArgs(1),
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, args []string) error {
			if err := ok.CheckUndoable(a.Run); err != nil {
				return err
			}
			c, err := a.Load(ctx, f)
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
				inSite = []gerrit.Change{{Where: string(f.Config), What: "site.gerrit", Before: c.Gerrit}}
				edits = []config.Edit{{"--unset-all", "site.gerrit"}}
			}
			plan, err := dir.PlanRestore(ctx, dir.Restorable())
			if err != nil {
				return err
			}
			jars, err := dir.PlanNoJar()
			if err != nil {
				return err
			}
			all := slices.Concat(inSite, plan.Changes, jars)
			if ok.DryRun {
				return a.reportDisabled(dir, all, true)
			}
			if err := a.confirmChanges(ctx, &ok, all, "Take the guard out of the Gerrit in "+dir.Path+"?"); err != nil {
				return err
			}
			if err := gerritStopped(dir.Path); err != nil { // Gerrit may have been started meanwhile
				return err
			}
			// If the command is interrupted after this, Gerrit has its guard, and is not watched.
			// The opposite order would raise an alarm.
			if c, err = a.changeSite(ctx, f, c, edits); err != nil {
				return err
			}
			if err := site.BecomeOwner(c.State); err != nil {
				return err
			}
			// The jar goes last: a Gerrit whose modules are missing does not start.
			if err := plan.Apply(ctx); err != nil {
				return err
			}
			if err := dir.RemoveJars(); err != nil {
				return err
			}
			return a.reportDisabled(dir, all, false)
		}),
	}
	f.Add(cmd)
	ok.AddFlags(cmd)
	return cmd
}

// reportDisabled prints the changes, made or planned.
func (a *app) reportDisabled(dir *gerrit.Directory, all []gerrit.Change, dryRun bool) error {
	if err := cli.PrintList(a.Run, "changes", gerritColumns, cli.All(all), output.Field{Name: "dry_run", Value: dryRun}); err != nil {
		return err
	}
	switch {
	case len(all) == 0:
		a.Note("%s: this Gerrit has no guard: nothing was changed", dir.Path)
	case dryRun:
		a.Note("dry run: %s to make", output.Count(len(all), "change"))
	default:
		a.Note("%s: Gerrit is no longer guarded; its repositories still are: refdbctl site disable REPO ends that for each", dir.Path)
	}
	return nil
}
