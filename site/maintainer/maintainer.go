// Package maintainer maintains the guarded repositories of a site, one at a time: on request, and
// each once a day. What is done in a repository is in package maintenance.
package maintainer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/follow"
	"github.com/globalrefdb/globalrefdb/site/install"
	"github.com/globalrefdb/globalrefdb/site/internal/pause"
	"github.com/globalrefdb/globalrefdb/site/maintenance"
	"github.com/globalrefdb/globalrefdb/site/packs"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/serving"
	"github.com/globalrefdb/globalrefdb/site/sessions"
	"github.com/globalrefdb/globalrefdb/site/wire"
	"github.com/globalrefdb/globalrefdb/site/witness"
)

const (
	// keptWait bounds what the database is asked for before.
	keptWait = 10 * time.Minute
	// maintainEvery is how often each repository is maintained, if the configuration says so.
	maintainEvery = 24 * time.Hour
	// lookForDue is how often repositories are looked for whose time has come.
	lookForDue = 5 * time.Minute
)

// Deps holds the dependencies of a [Maintainer].
type Deps struct {
	State    *serving.State
	DB       *refdb.DB
	Projects *projects.Cache
	Witness  *witness.Witness
	Pruning  *maintenance.Pruning
	Follower *follow.Follower
	Guards   *sessions.Guards
	Logger   *slog.Logger
}

// A Maintainer maintains one repository at a time.
type Maintainer struct {
	Deps
	turn chan struct{}
}

// New returns a maintainer.
func New(deps Deps) *Maintainer { return &Maintainer{Deps: deps, turn: make(chan struct{}, 1)} }

// Enter waits for the turn, until ctx ends. Waiting is called before it waits.
func (m *Maintainer) Enter(ctx context.Context, waiting func()) error {
	select {
	case m.turn <- struct{}{}:
		return nil
	default:
	}
	waiting()
	select {
	case m.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Leave lets another have the turn.
func (m *Maintainer) Leave() { <-m.turn }

// errBusy says that a repository can't be pruned now.
var errBusy = errors.New("busy")

// leftPrecious says why a repository is neither packed nor pruned whose owner wants that.
const leftPrecious = "extensions.preciousObjects: git removes no objects and packs of it"

// Maintain packs and prunes a repository. Say is called with what it does next.
func (m *Maintainer) Maintain(ctx context.Context, r config.Repository, say func(string)) (did client.Maintained, err error) {
	did.Project, did.Compacted = r.Project, client.CompactedNothing
	if err := m.Enter(ctx, func() { say("waiting for the maintenance of another repository") }); err != nil {
		return did, err
	}
	defer m.Leave()
	defer func() {
		if err != nil && m.State.Stopping() {
			err = errors.New(wire.DaemonStopping)
		}
	}()
	repo, err := gitrepo.OpenDir(r.Path)
	if err != nil {
		return did, err
	}
	// It is tried again tomorrow, whatever comes of it.
	defer func() { err = errors.Join(err, noteMaintained(repo.Dir(), time.Now())) }()
	say("finding objects that other sites may build on")
	kept, why := m.kept(ctx, r)
	if why == nil {
		pins, err := maintenance.Pin(ctx, repo, kept, false)
		if err != nil {
			return did, err
		}
		did.Kept = pins.All
	}
	if did.Peers, err = maintenance.DropPeers(ctx, repo); err != nil {
		return did, err
	}
	say("packing")
	packed, err := maintenance.Pack(ctx, repo)
	did.Packed = string(packed)
	switch {
	case err != nil:
		return did, err
	case ctx.Err() != nil:
		return did, context.Cause(ctx)
	case why != nil:
		did.Left = wire.OneLine(why.Error())
		return did, nil
	}
	var inDatabase error
	did.Compacted, inDatabase = m.compact(ctx, r, repo, say)
	defer func() { err = errors.Join(err, inDatabase) }()
	if repo.IsPrecious() {
		did.Left = leftPrecious
		return did, nil
	}
	say("finding objects to prune")
	n, err := maintenance.Prunable(ctx, repo)
	if err != nil || n == 0 {
		return did, err
	}
	say(fmt.Sprintf("pruning %d files: pushes wait", n))
	did.Pruned, err = m.prune(ctx, r, repo, kept)
	if errors.Is(err, errBusy) {
		did.Left, did.Busy, err = err.Error(), true, nil
	}
	return did, err
}

// kept returns what must be kept in a repository beside what its refs reach. The error says why
// that is not known: then nothing may be pruned.
//
// What comes to be needed later is here, too. A value that the database gets from now on comes with
// a pack, which is unpacked after the prune or is too new to be pruned. What that pack builds on
// the database held within the hour before it was made: now, or within the last hour, or from now
// on.
func (m *Maintainer) kept(ctx context.Context, r config.Repository) ([]string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, keptWait, errors.New("the database takes too long"))
	defer cancel()
	if err := m.State.AwaitServing(ctx); err != nil {
		return nil, err
	}
	if err := m.Witness.MayAct(ctx); err != nil {
		return nil, err
	}
	p, ok := m.Projects.Get(r.Project)
	if !ok {
		return nil, errors.New("the database does not know the project")
	}
	switch id, err := m.Projects.IDs.Of(ctx, r); {
	case err != nil:
		return nil, err
	case id != p.ID:
		return nil, projects.OtherID(r, m.Projects.NameOf(id))
	case !packs.Stored(p.Project):
		return packs.KeptValues(ctx, m.DB, r.Project)
	}
	if err := m.Follower.Receive(ctx, r.Project); err != nil {
		return nil, fmt.Errorf("some objects that other sites have pushed are missing here: %w", err)
	}
	return packs.Kept(ctx, m.DB, r.Project)
}

// prune removes what no ref reaches, while nothing else works on the repository. The error wraps
// errBusy if others did for too long.
func (m *Maintainer) prune(ctx context.Context, r config.Repository, repo *gitrepo.Repo, kept []string) (int, error) {
	// A git that an earlier daemon let through may rely on what no ref reaches.
	if pusher.RunsSince(m.State.Locked, repo.Dir(), m.State.Config().GitPrograms) {
		return 0, fmt.Errorf("%w: a git process from before the daemon's start is running there", errBusy)
	}
	if err := m.mayBePruned(r); err != nil {
		return 0, err
	}
	patience, cancel := context.WithTimeoutCause(ctx, maintenance.PruneWait, fmt.Errorf("%w: a push or a sync was in progress for all of %s", errBusy, maintenance.PruneWait))
	defer cancel()
	if err := m.Pruning.AwaitInherited(patience, r.Path); err != nil {
		return 0, err
	}
	// The processes that share the lock may wait for an answer of the daemon: so it comes first.
	lock, err := maintenance.Exclusive(patience, repo.Dir())
	if err != nil {
		return 0, err
	}
	defer lock.Close()
	release, err := m.Pruning.Exclusive(patience, r.Path)
	if err != nil {
		return 0, err
	}
	defer release()
	if err := m.mayBePruned(r); err != nil {
		return 0, err
	}
	// What was kept by a ref may be left by it since.
	if _, err := maintenance.Pin(ctx, repo, kept, true); err != nil {
		return 0, err
	}
	defer func() {
		m.Pruning.Pruned(r.Path)
		m.Follower.Pruned(r.Project)
	}()
	return maintenance.Prune(ctx, repo, lock)
}

// mayBePruned returns an error while a guard may move refs there that an earlier daemon has let
// through, to what no ref reaches.
func (m *Maintainer) mayBePruned(r config.Repository) error {
	if m.Guards.UnsharedIn(r.Path) {
		return fmt.Errorf("%w: a guard from before the daemon's start may be moving refs there", errBusy)
	}
	return nil
}

func noteMaintained(dir string, at time.Time) error {
	path := maintenance.File(dir)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Chtimes(path, at, at))
}

// Run maintains each repository once a day, one after the other, until ctx ends.
func (m *Maintainer) Run(ctx context.Context) {
	for pause.For(ctx, lookForDue) {
		m.MaintainDue(ctx)
	}
}

// MaintainDue maintains the repositories whose time has come, if the configuration says so.
func (m *Maintainer) MaintainDue(ctx context.Context) {
	c := m.State.Config()
	if !c.Maintain {
		return
	}
	guarded, _ := install.GuardedBy(c) // those that can't be listed have their time later
	for _, r := range guarded {
		if !isDue(r.Path) || ctx.Err() != nil {
			continue
		}
		did, err := m.Maintain(ctx, r, func(string) {})
		which := m.State.Digest(r.Project, "")
		switch {
		case ctx.Err() != nil:
		case err != nil || did.Left != "" && did.Left != leftPrecious && !did.Busy:
			m.Logger.WarnContext(ctx, "a repository could not be maintained: see `refdbctl site maintain`", "repository", which, "class", refdb.ClassOf(err).String())
		default:
			m.Logger.InfoContext(ctx, "a repository was maintained", "repository", which, "packed", did.Packed, "kept", did.Kept, "pruned", did.Pruned, "compacted", string(did.Compacted), "busy", did.Busy)
		}
	}
}

// isDue reports whether a repository is to be maintained now. One that never was gets its time of
// day at random.
func isDue(dir string) bool {
	info, err := os.Stat(maintenance.File(dir))
	if err != nil {
		noteMaintained(dir, time.Now().Add(-rand.N(maintainEvery)))
		return false
	}
	return time.Since(info.ModTime()) > maintainEvery
}
