package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site"
)

const hookFlagHelp = "the hook's program (default: refdb-hook beside this program or in PATH): its `path`"

var stepColumns = []output.Column[site.Step]{
	{Name: "step", Value: func(s site.Step) any { return s.Name }},
	{Name: "detail", Value: func(s site.Step) any { return s.Detail }},
}

func (a *app) siteEnableCommand() *cobra.Command {
	var f siteFlags
	var hook string
	var noImport bool
	cmd := &cobra.Command{
		Use:   "enable REPO",
		Short: "Put a repository under guard",
		Long: `Put REPO, a project of this site's configuration or the path of its repository, under guard: git's
settings, the link to the daemon's socket, the hooks, as hard links to the site's copy of refdb-hook;
then the refs that the database does not know are imported. The daemon must run. Run it as root, which
can read the database's address and then becomes the user who owns the repository, or as that user.

A hook that is there already is kept, and run before ours, as HOOK.chained. What git's settings were is
remembered. refdbctl site disable puts both back.

Run it again after an upgrade: what is there is left, and older hooks are replaced. Refs that the
database has another value of are reported: refdbctl site sync brings those.

Fields: ` + output.Names(stepColumns),
		Example: `  refdbctl site enable team/app
  refdbctl site enable /srv/git/team/app.git --hook /usr/libexec/refdb/refdb-hook`,
		Args: cobra.ExactArgs(1),
		RunE: a.body(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if hook == "" {
				hook = findHook()
			}
			if hook == "" {
				return errors.New("refdb-hook is neither beside this program nor in PATH: name it with --hook")
			}
			c, r, err := a.siteAnd(ctx, f, args[0])
			if err != nil {
				return err
			}
			return a.withSiteDB(ctx, func(db *refdb.DB) error {
				return a.enable(ctx, c, db, r, hook, !noImport)
			})
		}),
	}
	f.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&hook, "hook", "", hookFlagHelp)
	flags.BoolVar(&noImport, "no-import", false, "leave the database as it is: pushes to refs that it does not know are refused")
	return cmd
}

func (a *app) siteDisableCommand() *cobra.Command {
	var f siteFlags
	var force bool
	cmd := &cobra.Command{
		Use:   "disable REPO",
		Short: "End the guard of a repository",
		Long: `End the guard of REPO, a project of this site's configuration or the path of its repository: the hooks
go, those that were there before come back, and so do git's settings. From then on pushes at this site
are no longer compared with other sites'. The refs stay in the database.

It is refused while a push that this site announced is pending, unless --force.

Fields: ` + output.Names(stepColumns),
		Example: `  refdbctl site disable team/app`,
		Args:    cobra.ExactArgs(1),
		RunE: a.body(func(ctx context.Context, _ *cobra.Command, args []string) error {
			c, r, err := a.siteAnd(ctx, f, args[0])
			if err != nil {
				return err
			}
			if force {
				return a.disable(ctx, c, nil, r)
			}
			return a.withSiteDB(ctx, func(db *refdb.DB) error { return a.disable(ctx, c, db, r) })
		}),
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "also while pushes are pending; the database is not asked")
	return cmd
}

// siteAnd loads the configuration and finds a repository in it, to which it is going to
// write: as root it becomes that one's owner.
func (a *app) siteAnd(ctx context.Context, f siteFlags, repo string) (*site.Config, site.Repository, error) {
	c, err := a.load(ctx, f)
	if err != nil {
		return nil, site.Repository{}, err
	}
	r, err := siteRepository(ctx, c, repo)
	if err == nil {
		err = becomeOwner(r.Path)
	}
	return c, r, err
}

// findHook looks for the hook's program; "" if there is none.
func findHook() string {
	const name = "refdb-hook"
	if self, err := os.Executable(); err == nil {
		if real, err := filepath.EvalSymlinks(self); err == nil {
			self = real
		}
		beside := filepath.Join(filepath.Dir(self), name)
		if _, err := os.Stat(beside); err == nil {
			return beside
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return ""
	}
	return path
}

// steps prints what was done, one line each.
func (a *app) steps(do func(step func(name, detail string)) error) error {
	w := output.NewWriter(a.out, a.format, a.palette(a.out), stepColumns)
	var printing error
	err := do(func(name, detail string) {
		if printing == nil {
			printing = w.Write(site.Step{Name: name, Detail: detail})
		}
	})
	return errors.Join(err, printing, w.Close())
}

func (a *app) enable(ctx context.Context, c *site.Config, db *refdb.DB, r site.Repository, hook string, imports bool) error {
	if !c.Guards(r.Project, "refs/heads/main") && !c.Guards(r.Project, "refs/tags/v1") {
		a.note("warning: the configuration guards neither branches nor tags of %s", r.Project)
	}
	differ := 0
	err := a.steps(func(step func(name, detail string)) error {
		if err := site.Enable(ctx, c, r, hook, func(s site.Step) { step(s.Name, s.Detail) }); err != nil || !imports {
			return err
		}
		// From here on no ref can move that the database does not know.
		got, err := a.importGuarded(ctx, c, db, r)
		if err != nil {
			return fmt.Errorf("the hooks are in place, but the refs were not all imported: run it again: %w", err)
		}
		differ = got.different
		step("import", fmt.Sprintf("%d imported, %d equal, %d different, %d locked, %d refused, %d not guarded",
			got.imported, got.equal, got.different, got.locked, got.refused, got.skipped))
		return nil
	})
	if err != nil {
		return err
	}
	if differ > 0 {
		return &status{exitMismatch, fmt.Sprintf("%s is guarded; %s here holds another value than in the database, and pushes to it are refused: "+
			"run refdbctl site sync", r.Project, count(differ, "ref"))}
	}
	a.note("%s is guarded", r.Project)
	return nil
}

// importGuarded brings in the guarded refs that the database does not know.
func (a *app) importGuarded(ctx context.Context, c *site.Config, db *refdb.DB, r site.Repository) (*importer, error) {
	repo, err := gitrepo.Open(ctx, r.Path)
	if err != nil {
		return nil, err
	}
	im := &importer{app: a, db: db, project: r.Project, batch: importBatch}
	im.report = output.NewReport(io.Discard, output.CSV, output.Palette{}, "problems", differenceColumns)
	batch := make([]gitrepo.Ref, 0, im.batch)
	for ref, err := range repo.Refs(ctx, func(line string) { im.refused++; a.note("git says: %s", line) }) {
		if err != nil {
			return im, err
		}
		_, symbolic := refdb.Value(ref.Value).Target()
		switch {
		case !c.Guards(r.Project, ref.Name):
			im.skipped++
			continue
		case symbolic:
			im.refused++
			a.note("%s is a symbolic ref: pushes to it are refused; remove it", ref.Name)
			continue
		}
		if err := im.storable(ref); err != nil {
			im.refused++
			a.note("%s: pushes to it are refused", err)
			continue
		}
		if batch = append(batch, ref); len(batch) == im.batch {
			if err := im.send(ctx, batch); err != nil {
				return im, err
			}
			batch = batch[:0]
		}
	}
	return im, im.send(ctx, batch)
}

func (a *app) disable(ctx context.Context, c *site.Config, db *refdb.DB, r site.Repository) error {
	err := a.steps(func(step func(name, detail string)) error {
		return site.Disable(ctx, c, db, r, func(s site.Step) { step(s.Name, s.Detail) })
	})
	if err != nil {
		return err
	}
	a.note("%s is not guarded any more; its refs stay in the database: refdbctl project remove removes them, if no other site needs them", r.Project)
	return nil
}
