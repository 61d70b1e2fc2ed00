// Package check audits the repositories of a site: whether their pushes are guarded, and whether
// their refs have the database's values. It repairs what is safe to repair, and moves no ref that
// has a value.
package check

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/hookdir"
	"github.com/globalrefdb/globalrefdb/site/install"
	"github.com/globalrefdb/globalrefdb/site/projects"
)

// Codes of findings, besides those of packages install and hookdir. They don't change: monitoring
// may rely on them.
const (
	DaemonDown        = "daemon-down"         // the daemon does not answer, or reports a fault
	RepositoryBroken  = "repository"          // the repository can't be read
	RepositoryUnknown = "repository-unknown"  // the daemon does not serve it
	SocketLink        = "socket"              // the hook can't find the daemon
	Setting           = "setting"             // a git setting is wrong
	GuardedFetch      = "guarded-fetch"       // git fetch, or git push, would write to guarded refs
	Symref            = "symref"              // a guarded ref is symbolic
	RefBroken         = "ref-broken"          // git, or the database, can't accept it as a ref
	LocalUnknown      = "local-unknown"       // here, but not in the database
	LocalDiffers      = "local-differs"       // another value here than in the database
	GlobalMissingHere = "global-missing-here" // in the database, but not here
	NameConflict      = "name-conflict"       // the database has two refs that git can't store both
	DatabaseBehind    = "database-behind"     // the database has an older value than it once had
	NotEnforced       = "not-enforced"        // nothing is refused, because of the project's mode
	IntentPending     = "intent-pending"      // an announced push that was neither completed nor dropped
	IntentDecided     = "intent-decided"      // an operator's decision that this site has not applied
	LeftoverLock      = "leftover-lock"       // a lock file of a git process that has ended
	ForeignOwner      = "foreign-owner"       // files of another user than the repository's owner
	PeerRef           = "peer-ref"            // prevents the refs of a peer
	Behind            = "behind"              // the repository can't catch up, or the project can't be cloned
	NoBase            = "no-base"             // the database lacks objects that it should keep
	PacksUnused       = "packs-unused"        // many packs in the database that no push has used
	NotMaintained     = "not-maintained"      // the daily maintenance does not happen
	ObjectDamaged     = "object-damaged"      // a file with objects is damaged
	ObjectMissing     = "object-missing"      // an object that refs reach is missing
	ObjectsUnread     = "objects-unread"      // the repository has objects elsewhere, which were not read
	RootGone          = "root-gone"           // the site's root is missing
	ObjectMalformed   = "object-malformed"    // git's fsck rejects the object
	ProjectRemoved    = "project-removed"     // a removed project's repository still exists
	Moved             = "moved"               // a copy of another project than its path stands for
	HeadDiffers       = "head-differs"        // HEAD differs from the database, and it is unknown which one is right
	NotGuarded        = "not-guarded"         // the repository was never put under guard
)

// intentPatience is how old an intent must be to become a finding, and how long an operator's
// decision may wait until the daemon applies it.
const intentPatience = 30 * time.Second

// A Finding is a problem that an operator should know about.
type Finding struct {
	Project string // "" for the site as a whole
	Code    string
	Subject string // the ref, file or setting concerned
	Detail  string // what was found, and what to do
	Mended  bool
}

// Options are the options of [Run].
type Options struct {
	// Hook is the path of the hook's program, which the installed hooks should equal; "" if it is
	// unknown.
	Hook string
	// Repair repairs what is safe to repair: hooks, settings, the link to the socket, abandoned
	// lock files, refs without a value, objects that the database has. It moves no ref that has a
	// value: for a project whose objects the database keeps, it asks the daemon to update the refs.
	Repair bool
	// Objects enables reading all objects, which takes as long as reading the disk.
	Objects bool
	// NotCompared, unless nil, is called with each unguarded repository, whose refs and objects are
	// not checked. It may be called concurrently.
	NotCompared func(config.Repository)
	// Progress, unless nil, is called with the number of repositories that have been checked.
	Progress func(done, total int)
}

// checkLimit is how many repositories are checked concurrently: some wait for the database while
// others use the processors.
const checkLimit = 16

// Run finds gaps in the repositories' guard, and differences from the database. It calls found for
// each finding, in the order of the repositories. With a nil db it does not compare with the
// database. Refs that move during the check are not findings; a repository that can't be read is
// one. An error means that the check is incomplete: ctx has ended, or the database does not answer,
// in which case the remaining repositories are checked without it.
func Run(ctx context.Context, c *config.Config, db *refdb.DB, repositories []config.Repository, o Options, found func(Finding)) error {
	var program []byte
	if o.Hook != "" {
		var err error
		if program, err = install.ReadHook(o.Hook); err != nil {
			return err
		}
	}
	status, detail := daemonStatus(ctx, c.Socket)
	if detail != "" {
		found(Finding{Code: DaemonDown, Subject: c.Socket, Detail: detail})
	}
	if status.RootGone {
		found(Finding{Code: RootGone, Subject: c.Root, Detail: "it can't be read, or is empty although the daemon has followed repositories there: mount its disk; its repositories can't be checked"})
	}
	f := &siteCheck{Config: c, Options: o, db: db, program: program, obstructed: map[string]bool{}, looked: map[string]bool{}}
	for _, r := range repositories {
		f.looked[filepath.Join(r.Path, "objects")] = true
	}
	f.siteHooks(ctx, repositories, found)
	if db != nil {
		f.failed(f.uncloned(ctx, found))
	}
	f.behind(status, repositories, found)
	malformed(status, repositories, found)
	if len(repositories) == 1 {
		f.found = found // a single repository may have any number of findings
	}
	if db != nil {
		f.failed(f.readIntents(ctx, repositories))
		rules, err := projects.Rows(ctx, db, repositories)
		f.rules = rules
		f.failed(err)
		f.failed(f.unused(ctx, found))
	}
	done := 0
	config.InParallel(ctx, repositories, checkLimit, f.look, func(_ config.Repository, findings []Finding) {
		for _, one := range findings {
			found(one)
		}
		if done++; o.Progress != nil {
			o.Progress(done, len(repositories))
		}
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := f.failure.Load(); err != nil {
		return fmt.Errorf("%d of %d repositories were not compared with the database: %w", f.uncompared.Load(), len(repositories), *err)
	}
	return nil
}

// Unserved finds the repositories below the site's root that don't belong to the site. A check of
// all repositories of the site excludes them.
func Unserved(c *config.Config, found func(Finding)) error {
	all, err := c.Unserved()
	for _, u := range all {
		found(Finding{Code: RepositoryUnknown, Subject: u.Path, Detail: "it is not checked, and pushes to it are not guarded: " + u.Reason.Error()})
	}
	return err
}

// daemonStatus returns the daemon's status, and its fault, if it has one.
func daemonStatus(ctx context.Context, socket string) (status client.Status, fault string) {
	ctx, _, cancel := client.Within(ctx)
	defer cancel()
	status, err := client.Query(ctx, socket)
	switch {
	case err != nil:
		return status, err.Error() + ": pushes are refused until it does; start it: systemctl start refdb-site"
	case !status.Presence:
		return status, "the daemon does not hold its site's name, and refuses pushes: " + status.PresenceError
	case !status.Database:
		return status, "the daemon does not reach the database, and refuses pushes: " + status.DatabaseError
	}
	return status, ""
}

// A siteCheck is the state that the checks of all repositories share.
type siteCheck struct {
	*config.Config
	Options
	db      *refdb.DB
	program []byte
	intents siteIntents
	rules   map[string]driver.Project // by project, where a row exists
	// obstructed are the projects that can't be cloned because their paths are taken.
	obstructed map[string]bool
	looked     map[string]bool // directories of objects of the repositories
	found      func(Finding)   // nil: findings are kept until the repository's turn

	failure    atomic.Pointer[error] // of the database, which is no longer asked
	uncompared atomic.Int64          // repositories
}

// failed records an error of the database.
func (f *siteCheck) failed(err error) {
	if err != nil {
		f.failure.CompareAndSwap(nil, &err)
	}
}

// look checks one repository.
func (f *siteCheck) look(ctx context.Context, r config.Repository) (findings []Finding) {
	k := &repositoryCheck{siteCheck: f, Config: f.Config, Repository: r, db: f.db, found: f.found}
	if k.found == nil {
		k.found = func(one Finding) { findings = append(findings, one) }
	}
	if f.failure.Load() != nil {
		k.db = nil
	}
	var err error
	if row, ok := f.rules[r.Project]; ok {
		k.Config, err = projects.WithRulesOf(f.Config, row)
		switch row.Mode {
		case config.Enforce:
		case config.Removed:
			k.find(ProjectRemoved, row.Project, fmt.Sprintf("the project was removed, but its repository is still here: move it out of site.root, or bring the project back with `refdbctl site enable --new %s`", row.Project), nil)
			return findings
		default:
			k.find(NotEnforced, row.Project, fmt.Sprintf("it is not guarded, because its mode is %s: run `refdbctl project set %s --mode enforce`", row.Mode, row.Project), nil)
		}
	}
	if err == nil {
		err = k.run(ctx)
	}
	switch {
	case ctx.Err() != nil:
	case err != nil && refdb.ClassOf(err) == refdb.Retryable:
		f.failed(err)
		k.db = nil
	case err != nil:
		k.find(RepositoryBroken, r.Path, err.Error(), nil)
	}
	if f.db != nil && k.db == nil {
		f.uncompared.Add(1)
	}
	return findings
}

// A repositoryCheck checks one repository.
type repositoryCheck struct {
	*siteCheck
	*config.Config // with the rules of the repository's project
	config.Repository
	db    *refdb.DB // nil: the database is not asked
	repo  *gitrepo.Repo
	found func(Finding)

	dangling map[string]string // symbolic refs to nothing, and what they point to
	brought  time.Time         // the daemon's deadline for updating refs, once it was asked
	broken   []string          // refs found to be broken
}

func (k *repositoryCheck) run(ctx context.Context) error {
	if foreign, err := k.foreign(); err != nil || foreign {
		return err
	}
	var err error
	if k.repo, err = gitrepo.OpenDir(k.Path); err != nil {
		return err
	}
	v, err := install.ReadVariables(ctx, k.repo)
	if err != nil {
		return err
	}
	unguarded, err := k.unguarded(ctx, v)
	if err != nil {
		return err
	}
	guarded := !unguarded
	if guarded {
		if moved, err := k.moved(ctx, v); err != nil || moved {
			return err
		}
		if err := k.hooks(ctx, v); err != nil {
			return err
		}
		k.link()
		k.known(ctx)
		k.settings(ctx, v)
		k.hidesRefs(ctx, v)
		if err := k.fetches(ctx, v); err != nil {
			return err
		}
	}
	if err := k.owners(); err != nil {
		return err
	}
	if err := k.leftovers(ctx); err != nil {
		return err
	}
	if guarded {
		// Objects first: refs only get values whose objects are here.
		if err := k.objects(ctx); err != nil {
			return err
		}
		if err := k.refs(ctx); err != nil {
			return err
		}
		if err := k.head(ctx); err != nil {
			return err
		}
		if err := k.maintained(); err != nil {
			return err
		}
	} else if k.NotCompared != nil {
		k.NotCompared(k.Repository)
	}
	if k.db == nil {
		return nil
	}
	k.pending()
	if !guarded {
		return nil
	}
	return k.packs(ctx)
}

// find reports a finding. Mend, unless nil, repairs it and returns how.
func (k *repositoryCheck) find(code, subject, detail string, mend func() (string, error)) {
	f := Finding{Project: k.Project, Code: code, Subject: subject, Detail: detail}
	if mend != nil && !k.Repair && !strings.Contains(detail, "--repair") {
		f.Detail += fmt.Sprintf("; `refdbctl site check %s --repair` repairs it", k.Project)
	}
	if k.Repair && mend != nil {
		did, err := mend()
		if err != nil {
			f.Detail += "; could not be repaired: " + err.Error()
		} else {
			f.Detail, f.Mended = did, true
		}
	}
	k.found(f)
}

func (k *repositoryCheck) hooks(ctx context.Context, v install.Variables) error {
	h, err := install.HooksOf(ctx, k.Config, k.repo, v)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		k.find(install.HooksPath, v.Last("core.hooksPath"), err.Error(), nil)
		return nil
	}
	for _, f := range h.Faults() {
		mend := func() (string, error) { return install.RepairHooks(ctx, h, k.program) }
		if f.ByHand {
			mend = nil
		}
		k.find(f.Code, f.Subject, f.Detail, mend)
	}
	return nil
}

// siteHooks finds defects in the directory of the site's hooks, which all repositories share.
func (f *siteCheck) siteHooks(ctx context.Context, repositories []config.Repository, found func(Finding)) {
	dir := hookdir.Dir(f.Hooks)
	faults := dir.Faults(f.program)
	if len(faults) == 0 {
		return
	}
	if _, err := os.Lstat(f.Hooks); errors.Is(err, fs.ErrNotExist) {
		needed := slices.ContainsFunc(repositories, func(r config.Repository) bool {
			text, _ := os.ReadFile(filepath.Join(r.Path, "config"))
			return strings.Contains(string(text), dir.HooksPath())
		})
		if !needed {
			return
		}
	}
	var did string
	err := errors.New("refdb-hook is neither beside this program nor in PATH: name it with --hook")
	if f.Repair && f.program != nil {
		did, err = dir.Provide(ctx, f.program, true)
	}
	for _, fault := range faults {
		one := Finding{Code: fault.Code, Subject: fault.Path, Detail: fault.Detail}
		switch {
		case f.Repair && err == nil:
			one.Detail, one.Mended = did, true
		case f.Repair:
			one.Detail += "; could not be repaired: " + err.Error()
		default:
			one.Detail += "; `refdbctl site check --repair` repairs it"
		}
		found(one)
	}
}

func (k *repositoryCheck) link() {
	path := install.SocketLink(k.repo)
	if target, err := os.Readlink(path); err != nil || target != k.Socket {
		detail := fmt.Sprintf("it should be a symbolic link to %s", k.Socket)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			detail = "it is missing: " + detail
		case err == nil:
			detail = fmt.Sprintf("it points to %s: %s", target, detail)
		}
		k.find(SocketLink, path, detail, func() (string, error) { return install.LinkSocket(k.repo, k.Socket) })
	}
}

// known checks whether the daemon serves this repository.
func (k *repositoryCheck) known(ctx context.Context) {
	if refusal, err := client.Refusal(ctx, k.Socket, k.repo.Dir()); err == nil && refusal != "" {
		k.find(RepositoryUnknown, k.Path, "the daemon refuses pushes to it: "+refusal+": if the configuration says otherwise, reload the daemon's configuration", nil)
	}
}

// fetches finds refspecs of remotes that cover guarded refs, unless the project is a mirror that
// this site fetches.
func (k *repositoryCheck) fetches(ctx context.Context, v install.Variables) error {
	found := install.GuardedFetches(k.Config, k.Project, v)
	if len(found) == 0 {
		return nil
	}
	mirror := ""
	if k.db != nil {
		var err error
		if mirror, err = projects.Mirror(ctx, k.db, k.rules[k.Project]); err != nil || mirror == k.Site {
			return err
		}
	}
	for _, f := range found {
		k.find(GuardedFetch, f.Key, f.Why(k.repo.Dir(), k.Project, mirror, k.Site), nil)
	}
	return nil
}

func (k *repositoryCheck) settings(ctx context.Context, v install.Variables) {
	config := install.GitConfig{Repo: k.repo}
	for _, s := range install.Settings {
		value, ok := v.Get(s.Key)
		if ok && s.Holds(value) {
			continue
		}
		detail := fmt.Sprintf("it is not set, and should be %s: %s", s.Value, s.Why)
		if ok {
			detail = fmt.Sprintf("it is %q, and should be %s: %s", value, s.Value, s.Why)
		}
		k.find(Setting, s.Key, detail, func() (string, error) { return config.Apply(ctx, v, s) })
	}
}
