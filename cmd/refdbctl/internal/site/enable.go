package site

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/refs"
	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/install"
	"github.com/globalrefdb/globalrefdb/site/packs"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

const HookFlagHelp = "`path` of the hook's program (default: refdb-hook beside this program or in PATH)"

var stepColumns = []output.Column[install.Step]{
	{Name: "step", Value: func(s install.Step) any { return s.Name }},
	{Name: "detail", Value: func(s install.Step) any { return s.Detail }},
}

func (a *App) enableCommand() *cobra.Command {
	var f Flags
	var hook string
	var noImport, all bool
	var claim claimFlags
	cmd := &cobra.Command{
		Use:   "enable [REPO]",
		Short: "Put a repository under guard",
		Long: `Put REPO under guard. REPO is a project in this site's configuration, or the path of its repository. The command sets
git's settings, the link to the daemon's socket, and core.hooksPath, which points git to the site's hooks
(site.hooks); then it imports the refs that the database does not know. The daemon must run. Run the command as root,
which can read the database's address and then switches to the user who owns the repository, or as that user.

A project that is new to the database gets the rules in the configuration (guard.ref, guard.skipRef). From then on
they hold at all sites; refdbctl project set changes them.

  - If the database knows nothing of the project, but the repository has refs, the project's name may be wrong, for
    example because of another site.root. --new confirms that the name is right.
  - If the database knows the project, REPO becomes a copy of it if REPO has refs. An empty REPO becomes one only with
    --copy, because the name may be that of another project, which was deleted.
  - If the database keeps the project's objects, REPO must have all objects of its own refs, and share some with the
    project, if both have any.

The repository's own hooks stay where they are, and run before the site's. Git no longer runs hooks of kinds that the
site does not have, such as push-to-checkout: a repository with an executable one is refused. Without the site's hooks
pushes are refused. The previous git settings are recorded; refdbctl site disable restores them.

The command can be repeated: whatever is right is left as it is. A repository that an earlier version enabled, with
the site's hooks in the places of its own, is converted. Refs that have another value in the database are reported:
refdbctl site check says how to update them.

Fields: ` + output.Names(stepColumns) + `.

--all enables all repositories of the site, eight at a time. As root, it switches to the daemon's user, who must own
all of them. A repository that can't be enabled does not stop the others; Ctrl-C starts no further ones. The output
lists the repositories that failed, or have refs with another value in the database. JSON: an object with
"repositories", a list of
` + output.Names(enabledColumns) + ` (result: differs or failed); and total, reached, failed, complete, guarded, differ, imported.
The exit status is 1 if a repository failed, else 5 if refs differ.`,
		Example: `  refdbctl site enable team/app
  refdbctl site enable --all
  refdbctl site enable /srv/git/team/app.git --hook /usr/libexec/refdb/refdb-hook`,
		Args: oneOrAll(&all),
		RunE: a.Body(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			hook, err := HookOr(hook)
			if err != nil {
				return err
			}
			if all {
				c, err := a.Load(ctx, f)
				if err != nil {
					return err
				}
				return a.enableAll(ctx, c, hook, claim.claim(), !noImport)
			}
			c, r, err := a.siteAnd(ctx, f, args[0])
			if err != nil {
				return err
			}
			return a.WithSiteDB(ctx, func(db *refdb.DB) error {
				did, ruled, err := register(ctx, c, db, r, claim.claim())
				if err != nil {
					return err
				}
				return a.enable(ctx, ruled, db, r, hook, install.Step{Name: "project", Detail: did}, !noImport)
			})
		}),
	}
	f.Add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&hook, "hook", "", HookFlagHelp)
	flags.BoolVar(&all, "all", false, allFlagHelp)
	claim.add(cmd)
	flags.BoolVar(&noImport, "no-import", false, "don't import refs into the database; pushes to refs that it does not know are refused")
	return cmd
}

// claimFlags are the flags that say whether a repository's project is new to the database.
type claimFlags struct{ isNew, isCopy bool }

func (f *claimFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.isNew, "new", false, "the repository belongs to a project that the database does not know")
	cmd.Flags().BoolVar(&f.isCopy, "copy", false, "the repository is a copy of the project that the database knows by its name")
	cmd.MarkFlagsMutuallyExclusive("new", "copy")
}

func (f *claimFlags) claim() projects.Claim {
	switch {
	case f.isNew:
		return projects.New
	case f.isCopy:
		return projects.Copy
	}
	return projects.NoClaim
}

// register ensures that the database knows the repository's project. It returns a description of
// what it did, and the configuration with the project's rules.
func register(ctx context.Context, c *config.Config, db *refdb.DB, r config.Repository, claim projects.Claim) (did string, ruled *config.Config, err error) {
	if err := db.Operator().CheckRights(ctx, "site enable"); err != nil {
		return "", nil, err
	}
	if did, err = projects.Register(ctx, c, db, r, claim); err != nil {
		return "", nil, err
	}
	if err = install.ForgetDisabled(ctx, r); err == nil {
		ruled, err = projects.WithRules(ctx, c, db, r.Project)
	}
	return did, ruled, err
}

func (a *App) disableCommand() *cobra.Command {
	var f Flags
	var force bool
	cmd := &cobra.Command{
		Use:   "disable REPO",
		Short: "End the guard of a repository",
		Long: `End the guard of REPO, a project in this site's configuration or the path of its repository. Git's previous settings
are restored, so that git runs the repository's own hooks again. The refs that were hidden from clients are removed:
they keep objects for other sites, and hold what was force-pushed away. From then on pushes at this site are no longer
compared with those of other sites. The refs stay in the database.

The command is refused while a push that this site announced is pending, unless --force is given.

Fields: ` + output.Names(stepColumns),
		Example: `  refdbctl site disable team/app`,
		Args:    cobra.ExactArgs(1),
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, args []string) error {
			c, r, err := a.siteAndAny(ctx, f, args[0])
			if err != nil {
				return err
			}
			if force {
				return a.disable(ctx, c, nil, r)
			}
			return a.WithSiteDB(ctx, func(db *refdb.DB) error { return a.disable(ctx, c, db, r) })
		}),
	}
	f.Add(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "even if pushes are pending; does not use the database")
	return cmd
}

// siteAnd loads the configuration and finds a repository in it, to write to it: as root it switches
// to the repository's owner, who must be the daemon's user.
func (a *App) siteAnd(ctx context.Context, f Flags, repo string) (*config.Config, config.Repository, error) {
	c, err := a.Load(ctx, f)
	if err != nil {
		return nil, config.Repository{}, err
	}
	r, err := siteRepository(ctx, c, repo)
	if err == nil {
		err = sameOwner(c, r)
	}
	if err == nil {
		err = BecomeOwner(r.Path)
	}
	return c, r, err
}

// siteAndAny is siteAnd for a repository that may belong to another user than the daemon's.
func (a *App) siteAndAny(ctx context.Context, f Flags, repo string) (*config.Config, config.Repository, error) {
	c, err := a.Load(ctx, f)
	if err != nil {
		return nil, config.Repository{}, err
	}
	r, err := siteRepository(ctx, c, repo)
	if err == nil {
		err = BecomeOwner(r.Path)
	}
	return c, r, err
}

// sameOwner returns an error if a repository belongs to another user than the site's daemon, which
// could not serve it.
func sameOwner(c *config.Config, r config.Repository) error {
	var uids []uint32
	for _, path := range []string{c.State, r.Path} {
		info, err := os.Stat(path)
		if err != nil {
			return nil // reported where the file is needed
		}
		if s, ok := info.Sys().(*syscall.Stat_t); ok {
			uids = append(uids, s.Uid)
		}
	}
	if len(uids) == 2 && uids[0] != uids[1] {
		return fmt.Errorf("%s belongs to user %d, but the site's daemon serves only repositories of user %d, to whom %s belongs: nothing was changed; as root: chown -R %[3]d %[1]s",
			r.Path, uids[1], uids[0], c.State)
	}
	return nil
}

// HookOr returns the path of refdb-hook that --hook names, or, if that is empty, the one that
// [FindHook] returns.
func HookOr(named string) (path string, err error) {
	if path = named; path == "" {
		path = FindHook()
	}
	if path == "" {
		err = errors.New("refdb-hook is neither beside this program nor in PATH: name it with --hook")
	}
	return path, err
}

// FindHook returns the path of refdb-hook, beside this program or in PATH; "" if it is in neither.
func FindHook() string {
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

// steps calls do, and prints each step that it reports.
func (a *App) steps(do func(step func(name, detail string)) error) error {
	w := output.NewWriter(a.Out, a.Format, a.Palette(a.Out), stepColumns)
	err := do(func(name, detail string) { w.Write(install.Step{Name: name, Detail: detail}) })
	return errors.Join(err, w.Close())
}

func (a *App) enable(ctx context.Context, c *config.Config, db *refdb.DB, r config.Repository, hook string, project install.Step, imports bool) error {
	if !guardsAny(c, r) {
		a.Note("warning: the configuration guards neither branches nor tags of %s", r.Project)
	}
	if err := warnOfFetches(ctx, c, db, r, func(line string) { a.Note("%s", line) }); err != nil {
		return err
	}
	differ := 0
	err := a.steps(func(step func(name, detail string)) error {
		step(project.Name, project.Detail)
		if err := install.Enable(ctx, c, r, hook, func(s install.Step) { step(s.Name, s.Detail) }); err != nil || !imports {
			return err
		}
		// From now on refs that the database does not know can't move.
		got, err := a.importGuarded(ctx, c, db, r, func(line string) { a.Note("%s", line) })
		if err != nil {
			return fmt.Errorf("the hooks are in place, but not all refs were imported: run the command again: %w", err)
		}
		differ = got.Different
		step("import", fmt.Sprintf("%d imported, %d equal, %d different, %d locked, %d refused, %d not guarded",
			got.Imported, got.Equal, got.Different, got.Locked, got.Refused, got.Skipped))
		did, err := a.storeFirst(ctx, c, db, r)
		if err != nil {
			return fmt.Errorf("the repository is guarded, but its objects are not all in the database: run refdbctl site store compact %s: %w", r.Project, err)
		}
		if did != "" {
			step("store", did)
		}
		return nil
	})
	if err != nil {
		return err
	}
	mode := config.Enforce
	p, ok, err := db.Projects().Get(ctx, r.Project)
	switch {
	case err != nil:
		return err
	case ok:
		mode = p.Mode
	}
	switch {
	case differ > 0 && mode == config.Enforce:
		return exit.With(exit.Mismatch, fmt.Sprintf("%s is guarded; pushes to %s are refused, because the database has another value for them: "+
			"`refdbctl site check %[1]s` says how to update them", r.Project, output.Count(differ, "ref")))
	case differ > 0:
		return exit.With(exit.Mismatch, fmt.Sprintf("%s is not guarded yet: its mode is %s; the database has another value for %s: `refdbctl site check %[1]s` says how to update them",
			r.Project, mode, output.Count(differ, "ref")))
	case mode != config.Enforce:
		a.Note("%s is not guarded yet: its mode is %s: refdbctl project set %s --mode %s", r.Project, mode, r.Project, config.Enforce)
	default:
		a.Note("%s is guarded", r.Project)
	}
	return nil
}

// guardsAny reports whether branches or tags of the repository are guarded.
func guardsAny(c *config.Config, r config.Repository) bool {
	return c.Guards(r.Project, "refs/heads/main") || c.Guards(r.Project, "refs/tags/v1")
}

// warnOfFetches notes refspecs of remotes that cover guarded refs, unless the project is a mirror
// that this site fetches.
func warnOfFetches(ctx context.Context, c *config.Config, db *refdb.DB, r config.Repository, note func(string)) error {
	repo, err := gitrepo.Open(ctx, r.Path)
	if err != nil {
		return err
	}
	v, err := install.ReadVariables(ctx, repo)
	if err != nil {
		return err
	}
	found := install.GuardedFetches(c, r.Project, v)
	if len(found) == 0 {
		return nil
	}
	row, _, err := db.Projects().Get(ctx, r.Project)
	if err != nil {
		return err
	}
	mirror, err := projects.Mirror(ctx, db, row)
	if err != nil || mirror == c.Site {
		return err
	}
	for _, f := range found {
		note(fmt.Sprintf("warning: %s: %s", f.Key, f.Why(repo.Dir(), r.Project, mirror, c.Site)))
	}
	return nil
}

// importGuarded imports the guarded refs that the database does not know, and notes those that it
// can't import.
func (a *App) importGuarded(ctx context.Context, c *config.Config, db *refdb.DB, r config.Repository, note func(string)) (*refs.Importer, error) {
	repo, err := gitrepo.Open(ctx, r.Path)
	if err != nil {
		return nil, err
	}
	if err := dropMultiSite(ctx, db, r.Project, note); err != nil {
		return nil, err
	}
	im := refs.NewImporter(a.Run, db, r.Project)
	refused := func(why string) {
		im.Refused++
		note(why)
	}
	unfinished := packs.ImportIsPending(repo.Dir())
	if err := packs.BeginImport(repo.Dir()); err != nil {
		return nil, err
	}
	err = im.Send(ctx, func(yield func(gitrepo.Ref, error) bool) {
		for ref, err := range repo.Refs(ctx, func(line string) { refused("git says: " + line) }) {
			if err == nil {
				_, symbolic := refdb.Value(ref.Value).Target()
				invalid := errors.Join(driver.CheckKey(r.Project, ref.Name), driver.CheckPlaceable(ref.Name), driver.CheckValue(refdb.Value(ref.Value)))
				switch {
				case !c.Guards(r.Project, ref.Name):
					im.Skipped++
					continue
				case symbolic:
					refused(ref.Name + " is a symbolic ref: pushes to it are refused; `" + wire.RemoveSymbolicRef(r.Path, ref.Name) + "` removes it")
					continue
				case invalid != nil:
					refused(invalid.Error() + ": pushes to it are refused")
					continue
				}
			}
			if !yield(ref, err) {
				return
			}
		}
	})
	if err == nil && im.Imported == 0 && !unfinished {
		err = packs.EndImport(repo.Dir())
	}
	return im, err
}

// dropMultiSite deletes the rows that Gerrit's plugin multi-site left in the database. The plugin
// can't run beside the guard, and nothing else reads these rows. Other rows below its prefix, which
// may be refs of users, are only noted.
func dropMultiSite(ctx context.Context, db *refdb.DB, project string, note func(string)) error {
	for ref, err := range db.Refs(ctx, project, config.MultiSitePrefix) {
		switch {
		case err != nil || ref.Value.IsDeleted():
		case config.IsMultiSites(ref.Name):
			_, err = db.Put(ctx, project, ref.Name, refdb.Deleted)
		default:
			note("warning: the database has a row " + ref.Name + ", which is not guarded: its namespace is reserved for Gerrit's plugin multi-site")
		}
		if err != nil {
			return fmt.Errorf("the plugin multi-site has left %s: %w", config.MultiSitePrefix, err)
		}
	}
	return nil
}

func (a *App) disable(ctx context.Context, c *config.Config, db *refdb.DB, r config.Repository) error {
	err := a.steps(func(step func(name, detail string)) error {
		return install.Disable(ctx, c, db, r, func(s install.Step) { step(s.Name, s.Detail) })
	})
	if err != nil {
		return err
	}
	if err := install.RecordDisabled(ctx, r); err != nil {
		return err
	}
	a.Note("%s is no longer guarded; its refs stay in the database: refdbctl project remove removes them, if no other site needs them", r.Project)
	return nil
}
