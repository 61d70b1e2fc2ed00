package main

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	refdbprojects "github.com/globalrefdb/globalrefdb/refdb/projects"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/projects"
)

func (a *app) projectCommand() *cobra.Command {
	return cli.Group("project", "List, change and remove projects", a.projectListCommand(), a.projectShowCommand(), a.projectSetCommand(),
		a.projectFreezeCommand(), a.projectUnfreezeCommand(), a.projectRemoveCommand())
}

func (a *app) projectRemoveCommand() *cobra.Command {
	var r projectRemoval
	cmd := &cobra.Command{
		Use:   "remove PROJECT",
		Short: "Remove all refs, locks and packs of a project",
		Long: `Remove all refs, locks and packs of a project and of no other: removing "a" leaves "a/b" alone. From then on all sites
refuse pushes to the project. Repositories are not touched, except at sites with site.followRemoval, which move theirs
aside. To restore the project, run refdbctl site enable --new at a site that has its repository.

A project that does not exist is an error (exit status 1). While a process holds a fresh lock on one of its refs, the
command is refused with exit status 3, unless --force is given. A lock that stands for an intent can't be forced: see
refdbctl locks resolve. A site that has not read the removal yet may accept a push for ` + projects.RulesSettle.String() + `: then run the command
again. A frozen project can't be removed: unfreeze it first.

Fields: ` + output.Names(cli.RemovalColumns),
		Example: `  refdbctl project remove my/project`,
		Args:    cobra.ExactArgs(1),
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, args []string) error {
			r.project = args[0]
			if err := driver.CheckProject(r.project); err != nil {
				return err
			}
			if err := r.Check(a.Run); err != nil {
				return err
			}
			return a.WithDB(ctx, refdb.Options{}, func(db *refdb.DB) error { return r.run(ctx, a, db) })
		}),
	}
	cmd.Flags().BoolVar(&r.force, "force", false, "ignore fresh locks, but not intents")
	r.AddFlags(cmd)
	r.why.AddFlag(cmd)
	return cmd
}

// projectRemoval holds the arguments of "project remove".
type projectRemoval struct {
	cli.Confirmation
	project string
	force   bool
	why     cli.Reason
}

func (r *projectRemoval) run(ctx context.Context, a *app, db *refdb.DB) error {
	if err := a.RequireRights(ctx, db, "project remove"); err != nil {
		return err
	}
	row, ruled, err := db.Projects().Get(ctx, r.project)
	if err != nil {
		return err
	}
	if row.Freeze != (driver.Freeze{}) {
		return fmt.Errorf("nothing was done: %w", &driver.FrozenError{Project: row.Project, Freeze: row.Freeze})
	}
	packs := false // left by an unfinished removal
	if ruled && row.Mode == config.Removed {
		if packs, err = projects.HasPacks(ctx, db, r.project); err != nil {
			return err
		}
	}
	if !packs && (!ruled || row.Mode == config.Removed) {
		if err := a.RequireProject(ctx, db, r.project); err != nil {
			return err
		}
	}
	n := 0
	if !r.Yes || ruled {
		refs, locks, err := a.projectContents(ctx, db, r.project)
		if err == nil {
			err = refuseHeld(locks, r.force)
		}
		if err != nil {
			return err
		}
		if r.DryRun {
			n = refs
		}
		if !r.Yes {
			a.Note("project %s has %s, deleted ones included, and %s", r.project, output.Count(refs, "ref"), describeLocks(locks))
		}
	}
	var options []refdbprojects.RemoveOption
	if r.force {
		options = append(options, refdbprojects.Force())
	}
	marked := false
	return r.Perform(ctx, a.Run, db, cli.Operation{
		Act:      cli.Act{Action: "project remove" + cli.ForceSuffix(r.force), Project: r.project, Detail: "all refs and locks", Reason: r.why},
		Question: fmt.Sprintf("Remove all of project %s?", output.Escape(r.project)),
		Name:     r.project,
		Do: func() (outcome string, err error) {
			if ruled {
				n, marked, err = projects.Remove(ctx, db, row, options...)
			} else {
				n, err = db.Projects().Remove(ctx, r.project, options...)
			}
			return fmt.Sprintf("removed %d", n), err
		},
		Print: func(err error) error {
			if marked && err != nil {
				a.Note("all sites refuse pushes to %s from now on: run the command again to remove the rest", output.Escape(r.project))
			}
			return a.PrintRemoval(cli.RemovalResult{Project: r.project, Refs: n, DryRun: r.DryRun}, "ref", err)
		},
	})
}

// projectContents returns what removing a project would remove.
func (a *app) projectContents(ctx context.Context, db *refdb.DB, project string) (refs int, locks []refdb.LockInfo, err error) {
	for _, err := range a.Refs(ctx, db, project, "", true) {
		if err != nil {
			return 0, nil, err
		}
		refs++
	}
	locks, err = cli.Collect(a.Locks(ctx, db, refdb.LockFilter{Project: project}))
	return refs, locks, err
}

// describeLocks returns the numbers of locks and of their holders.
func describeLocks(locks []refdb.LockInfo) string {
	holders := make(map[string]bool)
	for _, l := range locks {
		holders[l.Owner] = true
	}
	text := output.Count(len(locks), "lock")
	if len(locks) > 0 {
		text += " of " + output.Count(len(holders), "holder")
	}
	return text
}

// refuseHeld fails if one of the locks is fresh, unless force is set, or stands for an intent.
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

// A listedProject is a project of the list.
type listedProject struct {
	driver.ProjectSummary
	frozen bool
}

var summaryColumns = []output.Column[listedProject]{
	{Name: "project", Value: func(p listedProject) any { return p.Name }},
	{Name: "refs", Value: func(p listedProject) any { return p.Refs }},
	{Name: "deleted", Value: func(p listedProject) any { return p.Deleted }},
	{Name: "locks", Value: func(p listedProject) any { return p.Locks }},
	{Name: "changed", Value: func(p listedProject) any { return output.OrNil(!p.Changed.IsZero(), p.Changed) }},
	{Name: "frozen", Value: func(p listedProject) any { return p.frozen }},
}

func (a *app) projectListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List projects with the numbers of their refs and locks",
		Long: `List all projects that have a ref, even a deleted one, or a lock, in byte order of their names. Projects are printed
as they are counted, which reads each ref of the database once. Fresh and stale locks are counted.

Fields: ` + output.Names(summaryColumns) + `
(deleted: refs that were deleted and not forgotten; changed: time of a ref's last change, by the database's clock;
frozen: whether all pushes are refused, see refdbctl project freeze)`,
		Example: `  refdbctl project list
  refdbctl project list -o csv`,
		Args: cobra.NoArgs,
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			return a.WithDB(ctx, refdb.Options{}, func(db *refdb.DB) error {
				limited, cancel := a.Limited(ctx)
				rows, err := db.Projects().After(limited, 0)
				cancel()
				if err != nil {
					return err
				}
				frozen := frozenProjects(rows)
				return cli.PrintRows(a.Run, summaryColumns, listed(cli.WithRowTimeout(ctx, a.Run, db.Projects().Summaries), frozen))
			})
		}),
	}
}

// listed adds to summaries which of their projects are frozen.
func listed(summaries iter.Seq2[driver.ProjectSummary, error], frozen map[string]driver.Freeze) iter.Seq2[listedProject, error] {
	return func(yield func(listedProject, error) bool) {
		for s, err := range summaries {
			_, is := frozen[s.Name]
			if !yield(listedProject{s, is}, err) {
				return
			}
		}
	}
}

// A shownProject is a project's record in the database.
type shownProject struct {
	driver.Project
	mirror string // the site that fetches the project
}

var projectColumns = []output.Column[shownProject]{
	{Name: "project", Value: func(p shownProject) any { return p.Project.Project }},
	{Name: "id", Value: func(p shownProject) any { return p.ID }},
	{Name: "rules", Value: func(p shownProject) any { return strings.ReplaceAll(p.Rules, "\n", "; ") }},
	{Name: "mode", Value: func(p shownProject) any { return p.Mode }},
	output.Optional("store", func(p shownProject) string { return p.Store }),
	output.Optional("mirror", func(p shownProject) string { return p.mirror }),
	output.Optional("frozen", func(p shownProject) string { return p.Freeze.String() }),
	{Name: "revision", Value: func(p shownProject) any { return p.Revision }},
	{Name: "time", Value: func(p shownProject) any { return p.Time.UTC().Format(time.RFC3339Nano) }},
}

func (a *app) projectShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show PROJECT",
		Short: "Show a project's rules, mode and ID",
		Long: `Show the settings of a project: which refs all sites guard, and the ID that git's setting refdb.projectid of
each copy of its repository must have.

Fields: ` + output.Names(projectColumns) + `
(store: which of the project's objects the database keeps, see refdbctl site store; mirror: the site that fetches the
project, see refdbctl project set; frozen: why all pushes are refused, see refdbctl project freeze)`,
		Example: `  refdbctl project show my/project`,
		Args:    cobra.ExactArgs(1),
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, args []string) error {
			return a.WithDB(ctx, refdb.Options{}, func(db *refdb.DB) error {
				p, err := a.project(ctx, db, args[0])
				if err != nil {
					return err
				}
				return a.printProject(ctx, db, p)
			})
		}),
	}
}

func (a *app) projectSetCommand() *cobra.Command {
	var refs, alsoRefs, skipRefs, without []string
	var mode string
	var m mirroring
	var why cli.Reason
	cmd := &cobra.Command{
		Use:   "set PROJECT [--ref PATTERN]... [--also-ref PATTERN]... [--skip-ref PATTERN]... [--mode MODE] | --mirror-at SITE | --no-mirror",
		Short: "Change which refs of a project all sites guard",
		Long: `Change which refs of a project all sites guard. The new rules replace the old ones: guarded are the refs that match a
--ref (default: all) and no --skip-ref. Refs that Gerrit keeps out of its ref database (patch sets, draft comments)
are guarded only if they match an --also-ref. A pattern is ^regex, prefix* or an exact name. With --mode and none of
these flags the rules stay as they are.

Afterwards all sites refuse pushes to the project for ` + projects.RulesSettle.String() + `, until no site accepts a push by the old rules. Import refs
that are newly guarded: run refdbctl site enable again at the site whose values are right, then refdbctl site check at
the others.

--mode log: all sites continue to ask the database, but refuse nothing because of its values, and the database records
what the sites accept. refdbctl site status shows what would have been refused.

--mode enforce: all sites block pushes to the project and report their values. Unless every site reports the
database's values within ` + enforceLimit.String() + `, the mode stays log. --without leaves out a site that is gone for good, whose daemon can
no longer report.

--mirror-at SITE: the project mirrors a repository elsewhere. SITE alone fetches it, for example with git fetch from
cron. Each fetch is guarded and replicated to the other sites like a push. At SITE, refdbctl site check and site
enable then accept a remote whose fetch refspec covers guarded refs; at the other sites they do not. --no-mirror
undoes that. Rules, mode and pushes stay as they are.

The rules of a frozen project can be changed: it stays frozen.

Fields: ` + output.Names(projectColumns),
		Example: `  refdbctl project set my/project --ref 'refs/heads/*' --ref 'refs/tags/*' --reason "tags must not differ"
  refdbctl project set my/project --also-ref 'refs/changes/*' --also-ref 'refs/draft-comments/*' --reason "Gerrit at both sites"
  refdbctl project set my/project --mode log --reason "the second site joins"
  refdbctl project set my/project --mode enforce
  refdbctl project set my/project --mirror-at eu-1`,
		Args: cobra.ExactArgs(1),
		RunE: a.Body(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			ruled := len(refs)+len(alsoRefs)+len(skipRefs) > 0
			rules, err := config.NewRules(refs, alsoRefs, skipRefs)
			switch {
			case err != nil:
				return exit.Usage(err.Error())
			case mode != "" && mode != config.Enforce && mode != config.Log:
				return exit.Usage(fmt.Sprintf("--mode %s: must be %s or %s", mode, config.Enforce, config.Log))
			case len(without) > 0 && mode != config.Enforce:
				return exit.Usage("--without is for --mode " + config.Enforce)
			case cmd.Flags().Changed("mirror-at") && m.at == "":
				return exit.Usage("--mirror-at: name a site; --no-mirror undoes the declaration")
			case m.at != "" || m.none:
				return a.WithDB(ctx, refdb.Options{}, func(db *refdb.DB) error { return a.setMirror(ctx, db, args[0], m.at, why) })
			case mode == config.Enforce && ruled:
				return exit.Usage("--mode " + config.Enforce + " compares the sites by the current rules: change the rules first")
			}
			return a.WithDB(ctx, refdb.Options{}, func(db *refdb.DB) error {
				if err := a.RequireRights(ctx, db, "project set"); err != nil {
					return err
				}
				p, err := a.project(ctx, db, args[0])
				if err != nil {
					return err
				}
				next := p
				if mode != "" {
					next.Mode = mode
				}
				if mode == "" || ruled {
					next.Rules = rules.String()
				}
				switch {
				case p.Mode == config.Removed:
					return wasRemoved(p)
				case next == p:
					a.Note("%s already has these rules, and mode %s", p.Project, p.Mode)
					return a.printProject(ctx, db, p)
				case refuseFrozen(p, next) != nil:
					return refuseFrozen(p, next)
				case next.Mode == config.Comparing:
					return exit.With(exit.Failed, "the sites are being compared: run refdbctl project set "+p.Project+" --mode enforce, or --mode log, first")
				}
				what := cli.Act{Action: "project set", Project: p.Project, Reason: why, Detail: "from " + cli.DescribeProject(p) + " to " + cli.DescribeProject(next)}
				err = a.Audited(ctx, db, what, func() (_ string, err error) {
					p, err = a.setProject(ctx, db, p, next, without)
					return fmt.Sprintf("mode %s, revision %d", p.Mode, p.Revision), err
				})
				if err != nil {
					return err
				}
				if p.Mode == config.Enforce {
					a.Note("all sites refuse pushes to %s for %s, until no site uses the previous rules any more", p.Project, projects.RulesSettle)
				}
				return a.printProject(ctx, db, p)
			})
		}),
	}
	cmd.Flags().StringArrayVar(&refs, "ref", nil, "guard the refs that match this `pattern` (default: all)")
	cmd.Flags().StringArrayVar(&alsoRefs, "also-ref", nil, "guard the refs that match this `pattern`, even if they are left out by default")
	cmd.Flags().StringArrayVar(&skipRefs, "skip-ref", nil, "do not guard the refs that match this `pattern`")
	cmd.Flags().StringVar(&mode, "mode", "", "log: refuse nothing, but show what would be refused; enforce: refuse it")
	cmd.Flags().StringArrayVar(&without, "without", nil, "do not wait for this `site`, which is gone for good")
	m.addFlags(cmd)
	why.AddFlag(cmd)
	return cmd
}

// enforceLimit bounds how long pushes are refused while the sites are compared.
const enforceLimit = time.Minute

// setProject changes a project's row to next.
func (a *app) setProject(ctx context.Context, db *refdb.DB, p, next driver.Project, without []string) (driver.Project, error) {
	if next.Mode != config.Enforce || p.Mode == config.Enforce {
		limited, cancel := a.Limited(ctx)
		defer cancel()
		return db.Projects().Put(limited, next)
	}
	limited, cancel := context.WithTimeout(ctx, a.AwaitDaemon(enforceLimit))
	defer cancel()
	return projects.SetEnforce(limited, db, p, without, func(sites []string) {
		a.Note("waiting for the report of site %s", strings.Join(sites, ", "))
	})
}

func (a *app) project(ctx context.Context, db *refdb.DB, name string) (driver.Project, error) {
	limited, cancel := a.Limited(ctx)
	defer cancel()
	p, ok, err := db.Projects().Get(limited, name)
	if err == nil && !ok {
		err = exit.With(exit.Failed, "the database has no rules for project "+name+": refdbctl site enable creates them from the site's configuration")
	}
	return p, err
}

func (a *app) printProject(ctx context.Context, db *refdb.DB, p driver.Project) error {
	mirror, err := a.mirror(ctx, db, p)
	if err != nil {
		return err
	}
	return output.One(a.Out, a.Format, a.Palette(a.Out), projectColumns, shownProject{p, mirror})
}
