package gerrit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/site"
	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/compare"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/gerrit"
	"github.com/globalrefdb/globalrefdb/site/packs"
	"github.com/globalrefdb/globalrefdb/site/presence"
)

func (a *app) joinCommand() *cobra.Command {
	var f gerritFlags
	var war, etc, java string
	cmd := &cobra.Command{
		Use:   "join SITE_PATH --war FILE --etc DIR",
		Short: "Set up the Gerrit of a second site",
		Long: `Set up SITE_PATH as the site directory of this site's Gerrit, a second one beside the guarded Gerrit of a first site.
SITE_PATH must be new, or contain nothing but the empty directory of the repositories, the site's root. The site's
daemon must run. Run the command as root or as the daemon's user, who must also own Gerrit's files; as root, it
switches to that user.

--etc is a directory with a copy of the first site's etc, and of its plugins, lib and static, if it has them. They are
copied; secrets, such as secure.config and the SSH host keys, become readable by their owner alone. gerrit.basePath
and refdb.socket become this site's, and gerrit.instanceId becomes gerrit-NAME. All projects come from the database,
as with refdbctl site clone --all. Then "java -jar FILE init --batch --no-auto-start" runs, which builds the indexes;
its output is in logs/refdb-init.log. Its changes in etc are listed; it must not move refs of All-Projects and
All-Users.

After an interruption, run the command again: parts that already exist are left as they are. Edit what differs between
the sites, such as gerrit.canonicalWebUrl, before Gerrit is started.

Fields: ` + output.Names(gerritColumns) + changesHelp + `
JSON: an object with "changes"; and files (copied), cloned (projects), complete.`,
		Example: `  rsync -a eu:/srv/gerrit/{etc,plugins,lib,static,bin} /tmp/eu
  refdbctl gerrit join /srv/gerrit --war /tmp/eu/bin/gerrit.war --etc /tmp/eu`,
		Args: cobra.ExactArgs(1),
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, args []string) error {
			if war == "" || etc == "" {
				return exit.Usage("--war and --etc are required: the first site's WAR, and a copy of its etc with plugins, lib and static beside it")
			}
			if err := f.findHook(); err != nil {
				return err
			}
			c, err := a.Load(ctx, f.Flags)
			if err != nil {
				return err
			}
			j := gerritJoining{app: a, config: c, war: war, hook: f.hook}
			if err := j.prepare(ctx, f, args[0], etc, java); err != nil {
				return err
			}
			if j.joined(ctx) {
				a.Note("%s has already joined: nothing was changed", j.path)
				return j.report()
			}
			err = site.AsOwner(c.State, func() error {
				return a.WithSiteDB(ctx, func(db *refdb.DB) error { return j.goesWithOthers(ctx, db) })
			})
			if err != nil {
				return err
			}
			changes, edits := siteChanges(c, string(f.Config), j.path)
			if j.config, err = a.changeSite(ctx, f.Flags, c, edits); err != nil {
				return err
			}
			j.changes = changes
			if err := j.beOwner(); err != nil {
				return err
			}
			return a.WithSiteDB(ctx, func(db *refdb.DB) error { return j.run(ctx, db) })
		}),
	}
	f.add(cmd)
	f.addJar(cmd)
	cmd.Flags().StringVar(&war, "war", "", "`path` of Gerrit's WAR, of the first site's version")
	cmd.Flags().StringVar(&etc, "etc", "", "a `directory` with a copy of the first site's etc, plugins, lib and static")
	cmd.Flags().StringVar(&java, "java", "", "`path` of the program java (default: in PATH)")
	return cmd
}

// gerritJoining sets up the Gerrit of a second site.
type gerritJoining struct {
	*app
	config    *config.Config
	path      string // the new site directory
	source    gerrit.Source
	war, java string
	jar       gerrit.Jar
	hook      string

	changes       []gerrit.Change
	files, cloned int
}

// prepare checks everything that could make the join fail.
func (j *gerritJoining) prepare(ctx context.Context, f gerritFlags, path, etc, java string) (err error) {
	if j.path, err = filepath.Abs(path); err != nil {
		return err
	}
	if real, err := filepath.EvalSymlinks(filepath.Dir(j.path)); err == nil {
		j.path = filepath.Join(real, filepath.Base(j.path))
	}
	if real, err := filepath.EvalSymlinks(j.path); err == nil {
		j.path = real
	}
	if j.config.Root == "" {
		return fmt.Errorf("the site has no root: set site.root = %s in its configuration", filepath.Join(j.path, "git"))
	}
	if err := gerritStopped(j.path); err != nil {
		return err
	}
	if j.source, err = gerrit.OpenSource(ctx, etc); err != nil {
		return err
	}
	if j.war, err = filepath.Abs(j.war); err != nil {
		return err
	}
	if j.jar, err = f.findJar(j.war); err != nil {
		return err
	}
	if java == "" {
		java = "java"
	}
	if j.java, err = exec.LookPath(java); err != nil {
		return fmt.Errorf("java, which runs init: %w: name it with --java", err)
	}
	if _, err := j.siteDaemon(ctx, j.config); err != nil {
		return err
	}
	if j.joined(ctx) {
		return nil
	}
	return gerrit.CheckEmpty(j.path, j.config.Root, j.config.RemovedTo)
}

// joined reports whether the directory is a guarded Gerrit of this site.
func (j *gerritJoining) joined(ctx context.Context) bool {
	d, err := gerrit.Open(ctx, j.path)
	if err != nil || gerrit.Joining(j.path) {
		return false
	}
	missing, _, err := d.Missing(ctx, d.Settings(j.config.Socket, ""))
	return err == nil && len(missing) == 0 && d.CheckRoot(j.config.Root) == nil
}

// beOwner switches this process to the daemon's user, who owns the directory. Root creates the
// directory first, because the user may lack the permission.
func (j *gerritJoining) beOwner() error {
	if os.Geteuid() == 0 {
		uid, err := ownerOf(j.config.State)
		if err == nil {
			err = os.MkdirAll(j.path, 0o755)
		}
		if err == nil {
			err = os.Chown(j.path, int(uid), -1)
		}
		if err != nil {
			return err
		}
	}
	return site.BecomeOwner(j.config.State)
}

func (j *gerritJoining) run(ctx context.Context, db *refdb.DB) error {
	if err := gerrit.BeginJoin(j.path, j.config.Root, j.config.RemovedTo); err != nil {
		return err
	}
	var err error
	if j.files, err = j.source.CopyTo(ctx, j.path); err != nil {
		return err
	}
	dir, err := gerrit.Open(ctx, j.path)
	if err != nil {
		return err
	}
	if err := j.configure(ctx, dir); err != nil {
		return err
	}
	if err := j.clone(ctx, db); err != nil {
		return err
	}
	if dir, err = gerrit.Open(ctx, j.path); err != nil {
		return err
	}
	if err := j.initialize(ctx, db, dir); err != nil {
		return err
	}
	if err := gerrit.EndJoin(j.path); err != nil {
		return err
	}
	return j.report()
}

// goesWithOthers checks that the copy's server ID is that of the other sites, and that the database
// has Gerrit's projects and their objects.
func (j *gerritJoining) goesWithOthers(ctx context.Context, db *refdb.DB) error {
	own := presence.Server{Instance: gerritInstance(j.config.Site), Server: j.source.ServerID()}
	if err := presence.CheckServer(ctx, db, j.config.Site, own); err != nil {
		return err
	}
	rows, err := db.Projects().After(ctx, 0)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	var without []string
	for _, row := range rows {
		if row.Mode == config.Removed || !j.config.GuardsProject(row.Project) {
			continue
		}
		known[row.Project] = true
		if _, err := j.config.Repository(row.Project); err != nil && !packs.Stored(row) {
			without = append(without, row.Project)
		}
	}
	for _, project := range []string{j.source.AllProjects(), j.source.AllUsers()} {
		if !known[project] {
			return fmt.Errorf("the database has no project %s: run refdbctl gerrit enable at the first site", project)
		}
	}
	if slices.Sort(without); len(without) > 0 {
		return fmt.Errorf("the database does not keep the objects of %s: run refdbctl site store start at the first site, for each", output.Enumerate(without))
	}
	return nil
}

// configure adapts the copied configuration to this site.
func (j *gerritJoining) configure(ctx context.Context, dir *gerrit.Directory) error {
	settings := dir.Settings(j.config.Socket, gerritInstance(j.config.Site))
	if dir.InstanceID() == j.source.InstanceID() {
		settings = append(settings, gerrit.OwnInstance(gerritInstance(j.config.Site)))
	}
	if dir.CheckRoot(j.config.Root) != nil {
		settings = append(settings, gerrit.BasePathAt(j.config.Root))
	}
	plan, err := dir.PlanSettings(ctx, settings)
	if err != nil {
		return err
	}
	jars, err := dir.PlanJar(j.jar)
	if err != nil {
		return err
	}
	if err := dir.InstallJar(j.jar); err != nil {
		return err
	}
	if err := plan.Apply(ctx); err != nil {
		return err
	}
	j.changes = append(append(j.changes, jars...), plan.Changes...)
	return nil
}

// clone makes the repositories that are missing.
func (j *gerritJoining) clone(ctx context.Context, db *refdb.DB) error {
	projects, err := site.ProjectsToClone(ctx, j.config, db)
	if err != nil {
		return err
	}
	var bar cli.Progress
	defer bar.Stop()
	if cli.IsTerminal(j.Err) && len(projects) > 0 {
		bar.Bar = cli.NewBar(j.Err, "projects", len(projects))
	}
	for _, project := range projects {
		_, err := j.CloneOne(ctx, j.config, db, project, j.hook)
		// The daemon may have been faster (site.autoClone).
		if err != nil && !errors.Is(err, config.ErrExists) {
			return fmt.Errorf("%d of %s were cloned: run the command again to continue: %w", j.cloned, output.Count(len(projects), "project"), err)
		}
		j.cloned++
		bar.Add(1)
	}
	return nil
}

// clonesPatience is how long the daemon may take to finish the repositories that it is creating.
const clonesPatience = 10 * time.Minute

// awaitClones waits until the daemon has finished the repositories that it is creating. Gerrit
// would take an unfinished repository for a project and, when it vanishes, mark no index as
// complete.
func (j *gerritJoining) awaitClones(ctx context.Context) error {
	told := false
	for deadline := time.Now().Add(j.AwaitDaemon(clonesPatience)); time.Now().Before(deadline); told = true {
		unfinished, err := unfinishedIn(j.config.Root)
		if err != nil || unfinished == "" {
			return err
		}
		if !told {
			j.Note("waiting until the daemon has finished the repositories that it is creating, such as %s", unfinished)
		}
		if err := cli.Sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return nil // left by a killed daemon: it does not vanish
}

// unfinishedIn returns the path of an unfinished repository below root, or "".
func unfinishedIn(root string) (found string, err error) {
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed meanwhile
			return nil
		case err != nil:
			return err
		case !entry.IsDir(), entry.Name() == config.UnfinishedDir:
			return nil
		case strings.HasPrefix(entry.Name(), config.Unfinished):
			found = path
			return fs.SkipAll
		case strings.HasSuffix(entry.Name(), ".git"):
			return fs.SkipDir
		}
		return nil
	})
	return found, err
}

// initialize runs init, which builds the indexes, and checks its other changes.
func (j *gerritJoining) initialize(ctx context.Context, db *refdb.DB, dir *gerrit.Directory) error {
	before, err := dir.Snapshot(ctx)
	if err != nil {
		return err
	}
	if err := j.awaitClones(ctx); err != nil {
		return err
	}
	if err := j.runInit(ctx); err != nil {
		return err
	}
	unready, err := dir.UnreadyIndexes(ctx)
	if err != nil {
		return err
	}
	if len(unready) > 0 {
		if err := os.RemoveAll(filepath.Join(j.path, "index")); err != nil { // init builds only what is not there
			return err
		}
		return fmt.Errorf("init has not built %s: see %s, then run this command again", output.Enumerate(unready), filepath.Join(j.path, initLog))
	}
	after, err := dir.Snapshot(ctx)
	if err != nil {
		return err
	}
	for _, c := range before.Differences(after) {
		c.Where += " (by init)"
		j.changes = append(j.changes, c)
	}
	for _, project := range []string{dir.AllProjects(), dir.AllUsers()} {
		differ, err := j.differ(ctx, db, project)
		if err != nil {
			return err
		}
		if len(differ) > 0 {
			return fmt.Errorf("refs of %s differ from the database, for example because init moved them without the guard: %s: run "+
				"refdbctl site sync, then this command again", project, output.Enumerate(differ))
		}
	}
	return nil
}

// initLog is the file with the output of init.
const initLog = "logs/refdb-init.log"

func (j *gerritJoining) runInit(ctx context.Context) error {
	path := filepath.Join(j.path, initLog)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	log, err := os.Create(path)
	if err != nil {
		return err
	}
	defer log.Close()
	j.Note("java -jar %s init builds the indexes: see %s", j.war, path)
	cmd := exec.CommandContext(ctx, j.java, "-jar", j.war, "init", "--batch", "--no-auto-start", "-d", j.path)
	cmd.Dir = j.path
	cmd.Env = gitrepo.Environ()
	cmd.Stdout, cmd.Stderr = log, log
	err = cmd.Run()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("init failed (%w): see %s, then run this command again", err, path)
	}
	return nil
}

// followPatience is how long a ref may differ from the database because the site is catching up.
const followPatience = 10 * time.Second

// differ returns the refs of a project that differ from the database. It gives the daemon time to
// catch up with other sites.
func (j *gerritJoining) differ(ctx context.Context, db *refdb.DB, project string) (refs []string, err error) {
	r, err := j.config.Repository(project)
	if err != nil {
		return nil, err
	}
	repo, err := gitrepo.Open(ctx, r.Path)
	if err != nil {
		return nil, err
	}
	for p, err := range compare.Pairs(ctx, j.config, db, repo, project, func(string) {}) {
		if err != nil {
			return nil, err
		}
		if !p.Agree() {
			refs = append(refs, p.Ref)
		}
	}
	for deadline := time.Now().Add(j.AwaitDaemon(followPatience)); len(refs) > 0; {
		looks, err := compare.LookAgain(ctx, db, repo, project, refs)
		if err != nil {
			return nil, err
		}
		refs = nil
		for _, l := range looks {
			if !l.Agree() {
				refs = append(refs, l.Ref)
			}
		}
		if len(refs) == 0 || time.Now().After(deadline) {
			break
		}
		if err := cli.Sleep(ctx, 200*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return refs, nil
}

func (j *gerritJoining) report() error {
	err := cli.PrintList(j.Run, "changes", gerritColumns, cli.All(j.changes),
		output.Field{Name: "files", Value: j.files}, output.Field{Name: "cloned", Value: j.cloned}, output.Field{Name: "complete", Value: true})
	if err != nil {
		return err
	}
	if j.files == 0 && j.cloned == 0 && len(j.changes) == 0 {
		return nil
	}
	j.Note("%s: %s copied, %s cloned: check etc/gerrit.config for values of the first site (%s), then start Gerrit", j.path, output.Count(j.files, "file"),
		output.Count(j.cloned, "project"), strings.Join([]string{"gerrit.canonicalWebUrl", "httpd.listenUrl", "sshd.listenAddress"}, ", "))
	return nil
}
