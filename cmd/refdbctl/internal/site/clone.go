package site

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/clone"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/packs"
)

var cloneColumns = []output.Column[cloned]{
	{Name: "project", Value: func(r cloned) any { return r.project }},
	{Name: "refs", Value: func(r cloned) any { return r.Refs }},
	{Name: "packs", Value: func(r cloned) any { return r.Packs }},
	{Name: "path", Value: func(r cloned) any { return r.Path }},
}

// verifiedColumns are the columns of a temporary clone.
var verifiedColumns = cloneColumns[:3]

type cloned struct {
	project string
	clone.Report
}

func (a *App) cloneCommand() *cobra.Command {
	var f Flags
	var all bool
	var at cli.Moment
	var to, hook string
	cmd := &cobra.Command{
		Use:   "clone [PROJECT]...",
		Short: "Make this site's copies of projects from the database alone",
		Long: `Make a repository of each PROJECT from the database, with all its refs and objects and the target of HEAD, and put it
under guard. The repository appears where this site's configuration expects it once it is complete and guarded; an
existing one is never touched. The daemon must run: from then on it keeps the repository up to date. The database must
keep the project's objects: see refdbctl site store.

Run the command as root or as the daemon's user; as root, it switches to that user.

--all clones all projects whose objects the database keeps and that have no repository here. A project that fails does
not stop the others; the exit status is then 1.

--at TIME, with --to PATH, makes a copy at PATH of the project as it was then. TIME is ` + cli.MomentHelp + `
The copy is not guarded and belongs to no site; below site.root it accepts no push, unless site enable puts it under
guard. Objects that no ref has needed for ` + fmt.Sprint(int(packs.KeptFor.Hours()/24)) + ` days may be gone.

Fields: ` + output.Names(cloneColumns),
		Example: `  refdbctl site clone team/app
  refdbctl site clone --all
  refdbctl site clone team/app --at "2h ago" --to /tmp/before.git`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case all == (len(args) > 0):
				return errors.New("name projects, or give --all")
			case (at.Given() || to != "") && (len(args) != 1 || !at.Given() || to == ""):
				return errors.New("--at and --to require each other, and exactly one project")
			}
			return nil
		},
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, args []string) error {
			c, err := a.Load(ctx, f)
			if err != nil {
				return err
			}
			if to != "" {
				return a.clonePast(ctx, c, args[0], &at, to, hook)
			}
			hook, err := HookOr(hook)
			if err != nil {
				return err
			}
			if err := BecomeOwner(c.State); err != nil {
				return err
			}
			return a.WithSiteDB(ctx, func(db *refdb.DB) error {
				if err := a.RequireRights(ctx, db, "site clone"); err != nil {
					return err
				}
				if all {
					if args, err = ProjectsToClone(ctx, c, db); err != nil {
						return err
					}
				}
				return a.cloneSome(ctx, c, db, args, all, hook)
			})
		}),
	}
	f.Add(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "all projects that have no repository here")
	at.AddFlag(cmd)
	cmd.Flags().StringVar(&to, "to", "", "the `path` of the copy")
	cmd.Flags().StringVar(&hook, "hook", "", HookFlagHelp)
	return cmd
}

// ProjectsToClone returns the projects whose objects the database keeps and that have no repository
// here.
func ProjectsToClone(ctx context.Context, c *config.Config, db *refdb.DB) (some []string, err error) {
	rows, err := db.Projects().After(ctx, 0)
	for _, row := range rows {
		if _, err := c.Repository(row.Project); err != nil && packs.Stored(row) && c.GuardsProject(row.Project) {
			some = append(some, row.Project)
		}
	}
	return some, err
}

// cloneSome clones projects. With all it skips projects that have got a repository here meanwhile.
func (a *App) cloneSome(ctx context.Context, c *config.Config, db *refdb.DB, projects []string, all bool, hook string) error {
	w := output.NewWriter(a.Out, a.Format, a.Palette(a.Out), cloneColumns)
	failed := 0
	if len(projects) == 0 {
		a.Note("every project whose objects the database keeps has a repository here")
	}
	for _, project := range projects {
		rep, err := a.CloneOne(ctx, c, db, project, hook)
		if ctx.Err() != nil {
			return errors.Join(w.Close(), context.Cause(ctx))
		}
		if all && errors.Is(err, config.ErrExists) {
			continue // the daemon was faster (site.autoClone)
		}
		if err != nil && len(projects) == 1 {
			return errors.Join(w.Close(), err)
		}
		if err != nil {
			failed++
			a.Note("%s: %s", output.Escape(project), err)
			continue
		}
		if err := w.Write(cloned{project, rep}); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	if failed > 0 {
		return exit.With(exit.Failed, fmt.Sprintf("%d of %s could not be cloned", failed, output.Count(len(projects), "project")))
	}
	return nil
}

// CloneOne makes the repository of a project and puts it under guard.
func (a *App) CloneOne(ctx context.Context, c *config.Config, db *refdb.DB, project, hook string) (rep clone.Report, err error) {
	rep, err = clone.CloneAndGuard(ctx, c, db, clone.Options{Project: project, Site: c.Site, By: a.Who(), Hook: hook})
	for _, ref := range rep.Resolved {
		a.Note("%s %s: a push to the lost repository was in progress, and counts as made", output.Escape(project), output.Escape(ref))
	}
	return rep, err
}

// clonePast makes a copy of a project's past state at a path. Below the root it belongs to the
// daemon's user, as everything there.
func (a *App) clonePast(ctx context.Context, c *config.Config, project string, at *cli.Moment, to, hook string) (err error) {
	if to, err = filepath.Abs(to); err != nil {
		return err
	}
	if c.IsBelowRoot(to) {
		if hook == "" {
			hook = FindHook()
		}
		if err := BecomeOwner(c.State); err != nil {
			return err
		}
	}
	return a.WithSiteDB(ctx, func(db *refdb.DB) error {
		position, err := at.Resolve(ctx, a.Run, db, project)
		if err != nil {
			return err
		}
		rep, err := clone.Clone(ctx, c, db, clone.Options{Project: project, Path: to, At: position, Hook: hook})
		if err != nil {
			return err
		}
		return output.One(a.Out, a.Format, a.Palette(a.Out), cloneColumns, cloned{project, rep})
	})
}
