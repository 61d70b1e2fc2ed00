package gerrit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/site"
	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/gerrit"
	"github.com/globalrefdb/globalrefdb/site/install"
	"github.com/globalrefdb/globalrefdb/site/presence"
	"github.com/globalrefdb/globalrefdb/site/projects"
)

func (a *app) enableCommand() *cobra.Command {
	var f gerritFlags
	var ok cli.Confirmation
	cmd := &cobra.Command{
		Use:   "enable SITE_PATH",
		Short: "Put this site's Gerrit under guard",
		Long: `Put the Gerrit with the site directory SITE_PATH under guard. Gerrit must be stopped, and the site's daemon must run.
Run the command as root or as the daemon's user, who must also own Gerrit's files; as root, it switches to that user.

The command
  - puts the guard's jar for this version of Gerrit into lib/;
  - sets gerrit.installDbModule, gerrit.installModule (other modules stay), gerrit.instanceId (unless it is set) and
    refdb.socket (unless it is the default) in etc/gerrit.config;
  - sets in etc/jgit.config that JGit writes durably and never prunes: refdbctl site maintain prunes;
  - puts all repositories below gerrit.basePath, which must be the site's root, under guard, as refdbctl site enable
    --all --new does, including patch sets and draft comments; and
  - sets in the site's configuration guard.alsoRef and site.gerrit, with which the daemon detects a Gerrit that runs
    without the guard.

The previous value of each key is recorded in the section refdb of the same file; refdbctl gerrit disable restores it.
Run the command again after an upgrade of Gerrit or of this program, or after an interruption: whatever is right is
left as it is.

Fields: ` + output.Names(gerritColumns) + changesHelp + `
A repository that could not be put under guard, or differs from the database, is a row, too. JSON: an object with
"changes"; and repositories, guarded, failed, differ, imported, complete, dry_run. The exit status is 1 if a
repository failed, else 5 if refs differ.`,
		Example: `  refdbctl gerrit enable /srv/gerrit -n
  refdbctl gerrit enable /srv/gerrit`,
		Args: cobra.ExactArgs(1),
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, args []string) error {
			if err := errors.Join(ok.CheckUndoable(a.Run), f.findHook()); err != nil {
				return err
			}
			c, err := a.Load(ctx, f.Flags)
			if err != nil {
				return err
			}
			dir, jar, err := a.enableable(ctx, c, f, args[0])
			if err != nil {
				return err
			}
			e := gerritEnabling{app: a, config: c, dir: dir, jar: jar, hook: f.hook}
			inSite, edits := siteChanges(c, string(f.Config), dir.Path)
			e.changes = inSite
			err = site.AsOwner(c.State, func() error {
				return a.WithSiteDB(ctx, func(db *refdb.DB) error { return e.prepare(ctx, db) })
			})
			if err != nil {
				return err
			}
			if ok.DryRun {
				return e.report(nil, site.BulkEnabled{}, "dry run: "+output.Count(len(e.changes), "change")+" to make")
			}
			if err := a.confirmChanges(ctx, &ok, e.changes, "Put the Gerrit in "+dir.Path+" under guard?"); err != nil {
				return err
			}
			if err := gerritStopped(dir.Path); err != nil { // Gerrit may have been started meanwhile
				return err
			}
			// If the command is interrupted after this, a Gerrit that is started without the guard
			// raises an alarm. In the opposite order it would go unnoticed.
			if e.config, err = a.changeSite(ctx, f.Flags, c, edits); err != nil {
				return err
			}
			if err := site.BecomeOwner(e.config.State); err != nil {
				return err
			}
			return a.WithSiteDB(ctx, func(db *refdb.DB) error { return e.run(ctx, db) })
		}),
	}
	f.add(cmd)
	f.addJar(cmd)
	ok.AddFlags(cmd)
	return cmd
}

// enableable opens the Gerrit at path, and checks that it can be put under guard.
func (a *app) enableable(ctx context.Context, c *config.Config, f gerritFlags, path string) (*gerrit.Directory, gerrit.Jar, error) {
	dir, err := gerrit.Open(ctx, path)
	if err != nil {
		return nil, gerrit.Jar{}, err
	}
	if err := gerritStopped(dir.Path); err != nil {
		return nil, gerrit.Jar{}, err
	}
	if err := dir.CheckRoot(c.Root); err != nil {
		return nil, gerrit.Jar{}, err
	}
	if others := dir.OtherGuards(); len(others) > 0 {
		return nil, gerrit.Jar{}, fmt.Errorf("another ref database guards this Gerrit: remove %s first: see \"Moving over\" in docs/GERRIT.md", strings.Join(others, ", "))
	}
	jar, err := f.findJar(dir.WAR())
	if err == nil {
		err = sameOwner(c, dir.Path)
	}
	if err == nil {
		_, err = a.siteDaemon(ctx, c)
	}
	return dir, jar, err
}

// siteChanges returns the changes of the site's configuration for a Gerrit at path.
func siteChanges(c *config.Config, file, path string) (changes []gerrit.Change, edits []config.Edit) {
	if !samePath(c.Gerrit, path) {
		changes = append(changes, gerrit.Change{Where: file, What: "site.gerrit", Before: c.Gerrit, After: path})
		edits = append(edits, config.Edit{"--replace-all", "site.gerrit", path})
	}
	for _, p := range unguardedPatterns(c, "All-Users") {
		changes = append(changes, gerrit.Change{Where: file, What: "guard.alsoRef", After: p})
		edits = append(edits, config.Edit{"--add", "guard.alsoRef", p})
	}
	return changes, edits
}

// gerritInstance returns the instance ID of the Gerrit of a site.
func gerritInstance(site string) string { return "gerrit-" + site }

// gerritEnabling puts a Gerrit under guard.
type gerritEnabling struct {
	*app
	config *config.Config
	dir    *gerrit.Directory
	jar    gerrit.Jar
	hook   string

	changes []gerrit.Change // made or planned
	plan    gerrit.ConfigPlan
	rules   projectsToChange
}

// prepare plans the changes, and checks that they can be made. It changes nothing.
func (e *gerritEnabling) prepare(ctx context.Context, db *refdb.DB) (err error) {
	settings := e.dir.Settings(e.config.Socket, gerritInstance(e.config.Site))
	if e.plan, err = e.dir.PlanSettings(ctx, settings); err != nil {
		return err
	}
	jars, err := e.dir.PlanJar(e.jar)
	if err != nil {
		return err
	}
	if err := presence.CheckServer(ctx, db, e.config.Site, presence.Server{Instance: e.instance(), Server: e.dir.ServerID()}); err != nil {
		return err
	}
	repositories, err := site.AllRepositories(e.config)
	if err != nil {
		return err
	}
	if e.rules, err = laxRules(ctx, e.config, db, repositories); err != nil {
		return err
	}
	e.changes = slices.Concat(e.changes, jars, e.plan.Changes, e.rules.changes())
	if n := unguardedCount(e.config, repositories); n > 0 {
		e.changes = append(e.changes, gerrit.Change{Where: e.config.Root, What: site.RepositoryCount(n), Before: "not guarded", After: "guarded"})
	}
	return nil
}

func (e *gerritEnabling) run(ctx context.Context, db *refdb.DB) error {
	repositories, err := site.AllRepositories(e.config)
	if err != nil {
		return err
	}
	// In this order a Gerrit that is started after an interruption is harmless: without the jar it
	// does not start, and in repositories that are not guarded yet it can't move refs.
	if err := e.dir.InstallJar(e.jar); err != nil {
		return err
	}
	if err := e.plan.Apply(ctx); err != nil {
		return err
	}
	if err := e.updateRules(ctx, db, e.rules); err != nil {
		return err
	}
	f := &site.Bulk{App: e.App, Repositories: repositories, Write: func(r site.BulkRow) error {
		e.changes = append(e.changes, gerrit.Change{Where: "repository", What: r.Project, After: r.Result + ": " + r.Detail})
		return nil
	}}
	got := f.Enable(ctx, e.config, db, e.hook, projects.Named, true)
	if ctx.Err() != nil {
		e.Note("not finished: %d of %s are guarded: run the command again to continue", got.Guarded, site.RepositoryCount(len(repositories)))
		return context.Cause(ctx)
	}
	summary := fmt.Sprintf("%s: %s guarded, %s imported", e.dir.Path, site.RepositoryCount(got.Guarded), output.Count(got.Imported, "ref"))
	if len(e.changes) == 0 && got.Imported == 0 {
		summary = fmt.Sprintf("%s: already under guard, with %s: nothing was changed", e.dir.Path, site.RepositoryCount(got.Guarded))
	}
	return e.report(f, got, summary)
}

func (e *gerritEnabling) instance() string {
	if id := e.dir.InstanceID(); id != "" {
		return id
	}
	return gerritInstance(e.config.Site)
}

// report prints the changes: made, or planned if f is nil.
func (e *gerritEnabling) report(f *site.Bulk, got site.BulkEnabled, summary string) error {
	failed, total := 0, got.Guarded
	if f != nil {
		failed, total = f.Failed, len(f.Repositories)
	}
	err := cli.PrintList(e.Run, "changes", gerritColumns, cli.All(e.changes), output.Field{Name: "repositories", Value: total}, output.Field{Name: "guarded", Value: got.Guarded}, output.Field{Name: "failed", Value: failed},
		output.Field{Name: "differ", Value: got.Differ}, output.Field{Name: "imported", Value: got.Imported},
		output.Field{Name: "complete", Value: f != nil && failed == 0}, output.Field{Name: "dry_run", Value: f == nil})
	switch {
	case err != nil:
		return err
	case failed > 0:
		return exit.With(exit.Failed, fmt.Sprintf("%s, %d failed: run the command again, or don't start Gerrit: it can't write to the failed repositories", summary, failed))
	case got.Differ > 0:
		return exit.With(exit.Mismatch, fmt.Sprintf("%s; in %d of them refs differ from the database: `refdbctl site check` says how to update them", summary, got.Differ))
	}
	e.Note("%s", summary)
	return nil
}

// projectsToChange are projects whose rules leave out patch sets or drafts, before and after the
// change.
type projectsToChange []struct{ now, next driver.Project }

// laxRules returns the repositories' projects whose rules leave out refs that Gerrit needs.
func laxRules(ctx context.Context, c *config.Config, db *refdb.DB, repositories []config.Repository) (changing projectsToChange, err error) {
	rows, err := projects.Rows(ctx, db, repositories)
	if err != nil {
		return nil, err
	}
	for _, r := range repositories {
		row, ok := rows[r.Project]
		if !ok || row.Mode == config.Removed {
			continue // its new rules come from the configuration
		}
		ruled, err := projects.WithRulesOf(c, row)
		if err != nil {
			return nil, err
		}
		missing := unguardedPatterns(ruled, r.Project)
		if len(missing) == 0 {
			continue
		}
		next, err := withAlso(row, missing)
		if err == nil {
			ruled, err = projects.WithRulesOf(c, next)
		}
		switch {
		case err != nil:
			return nil, err
		case len(unguardedPatterns(ruled, r.Project)) > 0:
			return nil, fmt.Errorf("project %s: its rules leave out %s, which Gerrit's other sites need: refdbctl project set %s, without that --skip-ref",
				r.Project, strings.Join(missing, " and "), r.Project)
		case row.Mode == config.Comparing:
			return nil, fmt.Errorf("project %s: the sites are being compared: run refdbctl project set %s --mode %s first", r.Project, r.Project, config.Enforce)
		}
		changing = append(changing, struct{ now, next driver.Project }{row, next})
	}
	return changing, nil
}

// withAlso returns a project that also guards refs that match the patterns.
func withAlso(p driver.Project, patterns []string) (driver.Project, error) {
	lines := strings.FieldsFunc(p.Rules, func(r rune) bool { return r == '\n' })
	for _, pattern := range patterns {
		lines = append(lines, "alsoRef "+pattern)
	}
	rules, err := config.ParseRules(strings.Join(lines, "\n"))
	p.Rules = rules.String()
	return p, err
}

func (changing projectsToChange) changes() []gerrit.Change {
	if len(changing) == 0 {
		return nil
	}
	names := make([]string, len(changing))
	for i, p := range changing {
		names[i] = p.now.Project
	}
	return []gerrit.Change{{Where: "database", What: "the rules of " + output.Enumerate(names), Before: "without patch sets or drafts", After: "with alsoRef " + strings.Join(gerritPatterns, ", ")}}
}

// updateRules extends the projects' rules by the refs that Gerrit needs.
func (e *gerritEnabling) updateRules(ctx context.Context, db *refdb.DB, changing projectsToChange) error {
	if err := e.RequireRights(ctx, db, "project set"); err != nil {
		return err
	}
	for _, p := range changing {
		what := cli.Act{Action: "gerrit enable", Project: p.now.Project, Detail: "from " + cli.DescribeProject(p.now) + " to " + cli.DescribeProject(p.next)}
		err := e.Audited(ctx, db, what, func() (string, error) {
			limited, cancel := e.Limited(ctx)
			defer cancel()
			row, err := db.Projects().Put(limited, p.next)
			return fmt.Sprintf("revision %d", row.Revision), err
		})
		if err != nil {
			return err
		}
	}
	if len(changing) > 0 {
		e.Note("all sites refuse pushes to %s for %s, until no site uses the previous rules any more", output.Count(len(changing), "project"), projects.RulesSettle)
	}
	return nil
}

// unguardedCount returns the number of repositories that are not linked to this site's daemon.
func unguardedCount(c *config.Config, repositories []config.Repository) (n int) {
	for _, r := range repositories {
		if !leadsToDaemon(c, r) {
			n++
		}
	}
	return n
}

func leadsToDaemon(c *config.Config, r config.Repository) bool {
	repo, err := gitrepo.OpenDir(r.Path)
	if err != nil {
		return false
	}
	target, err := os.Readlink(install.SocketLink(repo))
	return err == nil && target == c.Socket
}
