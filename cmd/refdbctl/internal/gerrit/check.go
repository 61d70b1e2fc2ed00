package gerrit

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/site"
	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	sitecheck "github.com/globalrefdb/globalrefdb/site/check"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/gerrit"
	"github.com/globalrefdb/globalrefdb/site/presence"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// Codes of findings about a Gerrit. They don't change: monitoring may rely on them.
const (
	gerritSetting   = "gerrit-setting"   // a key of its configuration is not as the guard needs it
	gerritRoot      = "gerrit-root"      // its repositories are not the site's
	gerritJar       = "gerrit-jar"       // the guard's jar is missing, or another one is needed
	gerritVersion   = "gerrit-version"   // its version is unknown, or none of those that the guard is for
	gerritOther     = "gerrit-other"     // another ref database guards it
	gerritSession   = "gerrit-session"   // the daemon and the jar speak different versions, or a session is broken
	gerritUnguarded = "gerrit-unguarded" // it runs without the guard
	gerritUnwatched = "gerrit-unwatched" // the daemon does not look whether it runs without the guard
	gerritInstances = "gerrit-instance"  // its instance ID is missing, or another site's
	gerritServer    = "gerrit-server"    // its server ID is missing, or not that of the other sites
	gerritRules     = "gerrit-rules"     // a project's rules leave out patch sets or drafts
	gerritIndexes   = "gerrit-indexes"   // how the last comparison of its indexes went can't be read
	gerritSequence  = "gerrit-sequence"  // a sequence would give numbers out again
	gerritProject   = "gerrit-project"   // it has a project of which the site has no repository
)

func (a *app) checkCommand() *cobra.Command {
	var f gerritFlags
	var compare bool
	cmd := &cobra.Command{
		Use:   "check SITE_PATH",
		Short: "Find what leaves this site's Gerrit unguarded or out of step",
		Long: `Check the Gerrit with the site directory SITE_PATH, whether it runs or not: its configuration, the guard's jar,
versions and IDs; whether the daemon has a session with it; and the sequences from which it takes the numbers of
changes and accounts. Then check all repositories of the site, as refdbctl site check does: hooks, settings, lock
files, and each ref against the database. Each finding is one line. The exit status is 1 if there is any finding. Run
the command as root or as the daemon's user; as root, it switches to that user.

Indexes are not checked: only a running Gerrit can do that. Its guard keeps them up to date, and compares all of them
with the repositories if it may have missed something. The result of the last comparison is printed. --compare
requests another comparison from the running Gerrit, in the background, which reindexes what is stale: run the check
again to see the result.

The codes are stable: gerrit-setting, gerrit-root, gerrit-jar, gerrit-version, gerrit-other, gerrit-session,
gerrit-unguarded, gerrit-unwatched, gerrit-instance, gerrit-server, gerrit-rules, gerrit-indexes, gerrit-sequence,
gerrit-project, and those of refdbctl site check.

JSON: an object with "findings", a list of ` + output.Names(site.FindingColumns) + `;
and repositories, looked_at, not_compared, mended, ok; and indexes, an object: state (unknown, comparing, cut-off,
compared), time, compared, stale (how many of the compared were stale, and reindexed), asked (whether another
comparison was requested that has not begun).`,
		Example: `  refdbctl gerrit check /srv/gerrit
  refdbctl gerrit check /srv/gerrit -o json`,
		Args: cobra.ExactArgs(1),
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, args []string) error {
			c, err := a.Load(ctx, f.Flags)
			if err != nil {
				return err
			}
			dir, err := gerrit.Open(ctx, args[0])
			if err == nil {
				err = site.BecomeOwner(c.State)
			}
			if err != nil {
				return err
			}
			repositories, err := c.Repositories()
			if err != nil {
				return err
			}
			if f.hook == "" {
				f.hook = site.FindHook()
			}
			if compare {
				if err := compareIndexes(dir); err != nil {
					return err
				}
			}
			said, err := a.indexes(dir)
			k := &gerritCheck{app: a, config: c, dir: dir, repositories: repositories, unread: err}
			return a.Check(ctx, c, repositories, sitecheck.Options{Hook: f.hook}, k.run, output.Field{Name: "indexes", Value: said})
		}),
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&compare, "compare", false, "ask the running Gerrit to compare its indexes with the repositories")
	return cmd
}

// A gerritCheck checks a Gerrit.
type gerritCheck struct {
	*app
	config       *config.Config
	dir          *gerrit.Directory
	repositories []config.Repository
	unread       error // why the result of the last comparison of the indexes is unknown
	found        func(sitecheck.Finding)
}

// run checks the Gerrit. With a nil db it checks nothing in the database. It returns an error if
// ctx has ended or the database does not respond.
func (k *gerritCheck) run(ctx context.Context, db *refdb.DB, found func(sitecheck.Finding)) error {
	k.found = found
	if err := k.configuration(ctx); err != nil {
		k.find(gerritSetting, "etc", "%s", err)
	}
	if k.unread != nil {
		k.find(gerritIndexes, k.dir.Path, "can't read the result of the last comparison of the indexes: %s", k.unread)
	}
	if err := sitecheck.Unserved(k.config, k.found); err != nil {
		return err
	}
	session := k.jars()
	k.daemon(ctx, session)
	if err := k.sequences(ctx); err != nil {
		return err
	}
	if db == nil {
		return nil
	}
	return errors.Join(k.ids(ctx, db), k.rules(ctx, db))
}

func (k *gerritCheck) find(code, subject, format string, args ...any) {
	k.found(sitecheck.Finding{Code: code, Subject: subject, Detail: fmt.Sprintf(format, args...)})
}

const enableAgain = "stop Gerrit, and run refdbctl gerrit enable"

func (k *gerritCheck) configuration(ctx context.Context) error {
	if err := k.dir.CheckRoot(k.config.Root); err != nil {
		k.find(gerritRoot, "gerrit.basePath", "%s", err)
	}
	if others := k.dir.OtherGuards(); len(others) > 0 {
		k.find(gerritOther, strings.Join(others, ", "), "another ref database guards this Gerrit: stop Gerrit, and remove these files and settings")
	}
	missing, have, err := k.dir.Missing(ctx, k.dir.Settings(k.config.Socket, gerritInstance(k.config.Site)))
	for i, s := range missing {
		code := gerritSetting
		if s.Key == "gerrit.instanceId" {
			code = gerritInstances
		}
		k.find(code, s.File+": "+s.Key, "it is %s, and should be %s: %s; %s", orNone(have[i]), s.Value, s.Why, enableAgain)
	}
	return err
}

func orNone(value string) string {
	if value == "" {
		return "not set"
	}
	return strconv.Quote(value)
}

// jars checks versions. It returns the version of the guard's protocol in the jar; "" if unknown.
func (k *gerritCheck) jars() (session string) {
	jars, err := k.dir.InstalledJars()
	switch {
	case err != nil:
		k.find(gerritJar, "lib", "%s; %s", err, enableAgain)
	case len(jars) == 0:
		k.find(gerritJar, "lib", "the guard's jar is missing: %s", enableAgain)
	case len(jars) > 1:
		k.find(gerritJar, "lib", "the guard has %d jars, and Gerrit may load either: %s", len(jars), enableAgain)
	}
	version, err := gerrit.VersionOf(k.dir.WAR())
	series := ""
	if err == nil {
		series, err = version.Series()
	}
	if err != nil {
		k.find(gerritVersion, k.dir.WAR(), "%s", err)
		return ""
	}
	if len(jars) != 1 || jars[0].Series == "" {
		return ""
	}
	if jars[0].Series != series {
		k.find(gerritJar, filepath.Base(jars[0].Path), "Gerrit is %s, and needs %s: %s", version.Text, gerrit.JarName(series), enableAgain)
	}
	return jars[0].Session
}

// daemon checks that the daemon has the session of this Gerrit.
func (k *gerritCheck) daemon(ctx context.Context, session string) {
	holder, held, err := gerrit.HolderOf(k.dir.Path)
	if err != nil {
		k.find(gerritUnguarded, k.dir.Path, "can't determine whether Gerrit runs: %s", err)
	}
	if held && !holder.Offline() {
		k.withoutRepository(ctx, holder)
	}
	if held && holder.PID == 0 {
		k.find(gerritUnguarded, k.dir.Path, "Gerrit runs, but whether with the guard can't be determined: its process is in another PID namespace, or on another machine: run it where the daemon runs")
		held = false
	}
	s, err := k.siteDaemon(ctx, k.config)
	if err != nil {
		// The check of the repositories reports that, unless the daemon is another site's.
		if !errors.Is(err, errNoAnswer) {
			k.find(gerritSession, k.config.Socket, "%s", err)
		}
		if held && !holder.Offline() {
			k.find(gerritUnguarded, k.dir.Path, "Gerrit runs (process %d), but no daemon has its session", holder.PID)
		}
		return
	}
	speaks := strconv.Itoa(s.SessionVersion)
	switch {
	case s.SessionVersion == 0:
		k.find(gerritSession, k.config.Socket, "the daemon's release is older than this program's: restart the daemon")
	case s.SessionVersion != wire.SessionVersion:
		k.find(gerritSession, k.config.Socket, "the daemon speaks version %s of the guards' protocol, this program version %d: they are of different releases", speaks, wire.SessionVersion)
	case session != "" && session != speaks:
		k.find(gerritSession, "lib", "the guard's jar speaks version %s, the daemon %s: install both from one release, and run refdbctl gerrit enable", session, speaks)
	}
	if !samePath(watched(s), k.dir.Path) {
		k.find(gerritUnwatched, "site.gerrit", "the daemon watches %s, not %s: set site.gerrit, and reload the daemon's configuration", orNone(watched(s)), k.dir.Path)
	}
	if held && !holder.Offline() {
		k.session(s, holder)
	}
}

// withoutRepository reports the projects that only the running Gerrit knows, unless their
// repositories are back.
func (k *gerritCheck) withoutRepository(ctx context.Context, holder gerrit.Holder) {
	started, err := holder.Started()
	if err != nil { // such as a process that can't be seen from here
		started = time.Time{}
	}
	names, err := k.dir.ProjectsWithoutRepository(started)
	if err != nil {
		k.find(gerritProject, k.dir.Path, "can't read which projects Gerrit finds no repository of: %s", err)
	}
	for _, name := range names {
		i := slices.IndexFunc(k.repositories, func(r config.Repository) bool { return r.Project == name })
		opens := false
		if i >= 0 {
			_, err := gitrepo.Open(ctx, k.repositories[i].Path)
			opens = err == nil
		}
		if !opens {
			k.found(sitecheck.Finding{Code: gerritProject, Project: name,
				Detail: "Gerrit has this project in its list or its index, but finds no repository of it: make the directory readable, or restore it by refdbctl site clone. If it was deleted by hand and the directory above is empty, remove that, too: then Gerrit forgets the project within a minute"})
		}
	}
}

// session checks the session of a running Gerrit.
func (k *gerritCheck) session(s client.Status, holder gerrit.Holder) {
	for _, one := range s.Sessions {
		if one.PID != holder.PID {
			continue
		}
		if one.State != client.SessionOpen {
			k.find(gerritSession, one.Name, "process %d has had no session for %s: see its error_log", one.PID, output.Ago(site.Seconds(one.Age)))
		}
		if version, err := gerrit.VersionOf(k.dir.WAR()); err == nil && one.Name != "Gerrit "+version.Text && one.Name != "" {
			k.find(gerritVersion, one.Name, "process %d runs another version than %s, which is %s: restart Gerrit", one.PID, k.dir.WAR(), version.Text)
		}
		return
	}
	if !holder.Listens() {
		k.find(gerritSession, k.dir.Path, "Gerrit is starting (process %d), and has no session yet: if it does not get one, see its error_log", holder.PID)
		return
	}
	k.find(gerritUnguarded, k.dir.Path, "Gerrit runs without the guard (process %d): %s", holder.PID, enableAgain)
}

// sequences checks that each sequence is ahead of the numbers in use, which it would hand out
// again.
func (k *gerritCheck) sequences(ctx context.Context) error {
	var largest gerrit.Numbers
	repos := map[string]*gitrepo.Repo{}
	for _, r := range k.repositories {
		repo, err := gitrepo.Open(ctx, r.Path)
		if err != nil {
			continue // the check of the repositories reports that
		}
		repos[r.Project] = repo
		for ref, err := range repo.Refs(ctx, func(string) {}) {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				k.found(sitecheck.Finding{Code: gerritSequence, Project: r.Project, Detail: "can't read which numbers are in use: " + err.Error()})
				break
			}
			largest.Add(ref.Name)
		}
	}
	for _, s := range []struct {
		project, ref string
		used         int
	}{{k.dir.AllProjects(), gerrit.ChangeSequence, largest.Change}, {k.dir.AllUsers(), gerrit.AccountSequence, largest.Account}} {
		repo := repos[s.project]
		if repo == nil {
			k.found(sitecheck.Finding{Code: gerritSequence, Project: s.project, Subject: s.ref, Detail: "the site has no repository of the project: refdbctl site clone " + s.project})
			continue
		}
		next, err := gerrit.NextNumber(ctx, repo, s.ref)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		finding := sitecheck.Finding{Code: gerritSequence, Project: s.project, Subject: s.ref}
		switch {
		case err != nil:
			finding.Detail = err.Error()
		case next <= s.used && s.used > 0:
			finding.Detail = fmt.Sprintf("its next number is %d, but %d is in use: Gerrit would overwrite existing data: run gerrit sequence set", next, s.used)
		default:
			continue
		}
		k.found(finding)
	}
	return nil
}

// ids checks the IDs against those of the other sites.
func (k *gerritCheck) ids(ctx context.Context, db *refdb.DB) error {
	if k.dir.ServerID() == "" {
		k.find(gerritServer, "gerrit.serverId", "it is not set: it must be the same at all sites")
	}
	err := presence.CheckServer(ctx, db, k.config.Site, presence.Server{Instance: k.dir.InstanceID(), Server: k.dir.ServerID()})
	switch {
	case errors.Is(err, presence.ErrInstance):
		k.find(gerritInstances, "gerrit.instanceId", "%s", err)
	case errors.Is(err, presence.ErrServer):
		k.find(gerritServer, "gerrit.serverId", "%s", err)
	case err != nil:
		return err
	}
	return nil
}

// rules checks that the projects' rules guard the refs that Gerrit needs.
func (k *gerritCheck) rules(ctx context.Context, db *refdb.DB) error {
	rows, err := projects.Rows(ctx, db, k.repositories)
	if err != nil {
		return err
	}
	for _, r := range k.repositories {
		row, ok := rows[r.Project]
		if !ok || row.Mode == config.Removed {
			continue
		}
		ruled, err := projects.WithRulesOf(k.config, row)
		if err != nil {
			return err
		}
		if missing := unguardedPatterns(ruled, r.Project); len(missing) > 0 {
			k.found(sitecheck.Finding{Code: gerritRules, Project: r.Project, Subject: strings.Join(missing, ", "),
				Detail: "the project's rules exclude these refs: the other sites get changes without their commits: " + enableAgain})
		}
	}
	return nil
}
