// Package clone makes a copy of a repository from the database alone.
package clone

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/head"
	"github.com/globalrefdb/globalrefdb/site/install"
	"github.com/globalrefdb/globalrefdb/site/maker"
	"github.com/globalrefdb/globalrefdb/site/packs"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// ErrNotStored: the database does not keep the objects of the project.
var ErrNotStored = errors.New("the database does not keep the project's objects")

// Options are the options of [Clone] and [CloneAndGuard].
type Options struct {
	Project string
	Path    string // of the repository, which must not be there
	// Site is the site that it is for. Its intents on the project are of pushes into a repository that is gone: they are
	// resolved, with the new value, whose objects the database has. "" for a copy that belongs to no site.
	Site string
	By   string // who clones, for the record of that
	// Hook, unless "", is the path of the hook's program, with which the repository begins: it takes no push before it is guarded.
	Hook string
	// At, unless 0, is the position as of which the refs are.
	At refdb.Position
	// Each, unless nil, is called with each pack that was unpacked.
	Each func(driver.Pack)
	// Malformed is that of [packs.Receiver].
	Malformed func(p driver.Pack, objection string)
}

// A Report says what a clone has.
type Report struct {
	Path  string
	Refs  int
	Packs int
	// Resolved are the refs whose push was made into the repository that is gone, and is complete now.
	Resolved []string
}

// Clone makes a bare repository with all refs of a project that the rules guard, and their objects, from the database. It appears at its
// path when it is whole. It is not guarded: see [CloneAndGuard]. Below site.root such a copy takes no push, unless it is put under guard.
func Clone(ctx context.Context, c *config.Config, db *refdb.DB, o Options) (rep Report, err error) {
	if o.Path, err = filepath.Abs(o.Path); err != nil {
		return rep, err
	}
	var m *maker.Maker
	switch {
	case !c.IsBelowRoot(o.Path):
		o.Hook = ""
		m, err = maker.Outside(o.Path)
	case o.Hook == "":
		err = fmt.Errorf("%s is below site.root, where every repository must be guarded: that takes refdb-hook, which is neither beside this program "+
			"nor in PATH: name it with --hook, or another path", o.Path)
	default:
		m, err = maker.New(ctx, c, o.Path)
	}
	if err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	return build(ctx, c, db, o, m, func(string) error { return nil })
}

// build makes a repository, calls complete with its directory, and brings it to its path.
func build(ctx context.Context, c *config.Config, db *refdb.DB, o Options, m *maker.Maker, complete func(dir string) error) (rep Report, err error) {
	row, ok, err := db.Projects().Get(ctx, o.Project)
	switch {
	case err != nil:
		return rep, err
	case !ok:
		return rep, fmt.Errorf("the database has no project %s: `refdbctl project list` has those there are", o.Project)
	case row.Mode == config.Removed:
		return rep, errors.New(wire.RemovedProject(o.Project))
	case !packs.Stored(row):
		return rep, fmt.Errorf("%w: run `refdbctl site store start %s` at a site that has it", ErrNotStored, o.Project)
	}
	dir, err := m.Dir()
	if err == nil && o.Hook != "" {
		err = install.Seal(ctx, c, dir, o.Hook)
	}
	if err != nil {
		return rep, err
	}
	if rep, err = fill(ctx, c, db, row, dir, o); err == nil {
		err = complete(dir)
	}
	if err != nil {
		return rep, fmt.Errorf("cloning %s from the database: %w", o.Project, err)
	}
	rep.Path = o.Path
	return rep, m.Finish()
}

// fill makes the repository in dir, which is empty.
func fill(ctx context.Context, c *config.Config, db *refdb.DB, row driver.Project, dir string, o Options) (rep Report, err error) {
	global, err := db.Get(ctx, o.Project, head.Ref)
	if err != nil {
		return rep, err
	}
	receiver, err := newReceiver(ctx, db, dir, o.Project)
	if err != nil {
		return rep, err
	}
	repo := receiver.Repo
	receiver.Malformed = o.Malformed
	receiver.Each = func(p driver.Pack) {
		rep.Packs++
		if o.Each != nil {
			o.Each(p)
		}
	}
	if o.Site != "" {
		if err := receiver.Receive(ctx); err != nil {
			return rep, err
		}
		left := AbandonedIntents{Project: o.Project, Site: o.Site, By: o.By, Why: "the site's repository was cloned anew: pushes that it had accepted count as made"}
		if rep.Resolved, err = left.resolve(ctx, db, repo); err != nil {
			return rep, err
		}
	}
	// Packs that are read later have all that these refs hold.
	values, err := refs(ctx, c, db, row, o)
	if err != nil {
		return rep, err
	}
	if err := receiver.Receive(ctx); err != nil {
		return rep, err
	}
	if err := connected(ctx, repo, values); err != nil {
		return rep, err
	}
	if err := create(ctx, repo, values); err != nil {
		return rep, err
	}
	rep.Refs = len(values)
	target, ok := global.Target()
	if !ok {
		target = branch(values)
	}
	if target != "" {
		if err := run(ctx, repo, nil, "symbolic-ref", "HEAD", target); err != nil {
			return rep, err
		}
	}
	if ok {
		if err := head.NoteAgreed(repo.Dir(), global); err != nil {
			return rep, err
		}
	}
	if o.Site == "" {
		return rep, nil
	}
	return rep, projects.RecordID(ctx, config.Repository{Project: o.Project, Path: repo.Dir()}, row.ID)
}

// branch returns what HEAD is to point to in a copy if the database does not say that, such as where it is detached: a branch that exists, so that whoever clones
// the copy gets files; "" if there is none.
func branch(values []refdb.Ref) (first string) {
	there := map[string]bool{}
	for _, ref := range values {
		if strings.HasPrefix(ref.Name, "refs/heads/") {
			there[ref.Name] = true
			if first == "" || ref.Name < first {
				first = ref.Name
			}
		}
	}
	for _, usual := range []string{"refs/heads/main", "refs/heads/master"} {
		if there[usual] {
			return usual
		}
	}
	return first
}

// objectFormat returns git's name of the format of a project's object IDs.
func objectFormat(ctx context.Context, db *refdb.DB, project string) (string, error) {
	for ref, err := range db.Refs(ctx, project, "refs/") {
		if err != nil {
			return "", err
		}
		if len(ref.Value) == 64 && ref.Value.IsObjectID() {
			return "sha256", nil
		}
		break
	}
	return "sha1", nil
}

// newReceiver makes a repository in dir, and returns what unpacks the project's packs there.
func newReceiver(ctx context.Context, db *refdb.DB, dir, project string) (r packs.Receiver, err error) {
	format, err := objectFormat(ctx, db, project)
	if err != nil {
		return r, err
	}
	if err := initialise(ctx, dir, format); err != nil {
		return r, err
	}
	repo, err := gitrepo.OpenDir(dir)
	if err != nil {
		return r, err
	}
	state, err := db.HistoryState(ctx)
	if err != nil {
		return r, err
	}
	mark, err := packs.ReadMark(dir)
	if err != nil {
		return r, err
	}
	mark.Enter(state.Epochs)
	return packs.Receiver{DB: db, Repo: repo, Project: project, Mark: mark}, nil
}

func initialise(ctx context.Context, dir, format string) error {
	cmd := exec.CommandContext(ctx, "git", "-c", noHooks, "init", "--quiet", "--bare", "--object-format="+format, dir)
	cmd.Env = append(gitrepo.Environ(), "LC_ALL=C")
	if _, err := cmd.Output(); err != nil {
		return fmt.Errorf("git init: %w", gitrepo.Failure(ctx, err))
	}
	repo, err := gitrepo.OpenDir(dir)
	if err != nil {
		return err
	}
	// Durable as all that follows, and as the guard has it later.
	before, err := install.ReadVariables(ctx, repo)
	for _, s := range install.Settings {
		if err == nil && s.Key == "core.fsync" {
			_, err = install.GitConfig{Repo: repo}.Apply(ctx, before, s)
		}
	}
	return err
}

// refs returns the guarded refs with an object.
func refs(ctx context.Context, c *config.Config, db *refdb.DB, row driver.Project, o Options) (values []refdb.Ref, err error) {
	ruled, err := projects.WithRulesOf(c, row)
	if err != nil {
		return nil, err
	}
	all := db.Refs(ctx, o.Project, "refs/")
	if o.At != 0 {
		all = db.RefsAt(ctx, o.Project, "refs/", o.At)
	}
	for ref, err := range all {
		if err != nil {
			return nil, err
		}
		if ruled.Guards(o.Project, ref.Name) && ref.Value.IsObjectID() && !ref.Value.IsDeleted() {
			values = append(values, ref)
		}
	}
	return values, nil
}

// connected returns an error unless all objects of the values are here.
func connected(ctx context.Context, repo *gitrepo.Repo, values []refdb.Ref) error {
	ids := make([]string, len(values))
	for i, ref := range values {
		ids[i] = string(ref.Value)
	}
	slices.Sort(ids)
	whole, err := repo.Connected(ctx, slices.Compact(ids))
	if err != nil {
		return err
	}
	for _, ref := range values {
		if !whole[string(ref.Value)] {
			return fmt.Errorf("%w: of %s, which is %s: run `refdbctl site store compact` at a site that has it", packs.ErrIncomplete, ref.Name, ref.Value.Abbrev())
		}
	}
	return nil
}

// create makes the refs, in one transaction, and packs them.
func create(ctx context.Context, repo *gitrepo.Repo, values []refdb.Ref) error {
	var in bytes.Buffer
	for _, ref := range values {
		fmt.Fprintf(&in, "create %s\x00%s\x00", ref.Name, ref.Value)
	}
	if err := run(ctx, repo, &in, "update-ref", "--no-deref", "-m", "refdb: cloned from the global database", "--stdin", "-z"); err != nil {
		return err
	}
	return run(ctx, repo, nil, "pack-refs", "--all")
}

// noHooks is git's setting by which what makes a repository gets past the hook that is in it from the beginning.
const noHooks = "core.hooksPath=/dev/null"

func run(ctx context.Context, repo *gitrepo.Repo, in *bytes.Buffer, args ...string) error {
	cmd := repo.Command(ctx, append([]string{"-c", noHooks}, args...)...)
	if in != nil {
		cmd.Stdin = in
	}
	if _, err := cmd.Output(); err != nil {
		return fmt.Errorf("git %s: %w", strings.Join(args[:1], " "), gitrepo.Failure(ctx, err))
	}
	return nil
}
