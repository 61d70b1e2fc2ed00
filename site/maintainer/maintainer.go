// Package maintainer maintains the guarded repositories of a site, one at a time: each repository
// once a day, and on request. Package maintenance does the work in a repository.
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
	// keptWait bounds the time for finding the objects that must be kept.
	keptWait = 10 * time.Minute
	// maintainEvery is how often each repository is maintained, if the configuration says so.
	maintainEvery = 24 * time.Hour
	// lookForDue is the interval at which the daemon looks for repositories that are due.
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
	turn chan struct{} // has a value while a repository is maintained
}

// New returns a maintainer.
func New(deps Deps) *Maintainer { return &Maintainer{Deps: deps, turn: make(chan struct{}, 1)} }

// Enter waits for its turn until ctx ends. It calls waiting before it waits.
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

// Leave ends the turn.
func (m *Maintainer) Leave() { <-m.turn }

// errBusy means that a repository can't be pruned now.
var errBusy = errors.New("busy")

// leftPrecious is the reason why objects of a repository are neither packed nor pruned: its owner
// has forbidden that.
const leftPrecious = "extensions.preciousObjects: git removes no objects and packs of it"

// Maintain packs and prunes a repository. It calls say before each step, with a description of the
// step.
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
	// The next attempt is tomorrow, even after an error.
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

// kept returns the object IDs that must be kept in a repository, besides everything that its refs
// reach. An error says why they are not known; then nothing may be pruned.
//
// Objects that become necessary later are here, too. A value that the database gets from now on
// comes with a pack, which is unpacked after the prune or is too new to be pruned. The bases of
// that pack are values that the database held at some time in the hour before the pack was made. So
// the database holds them now, held them within the last hour, or gets them from now on.
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

// prune removes objects that no ref reaches while it has the repository exclusively. The error
// wraps errBusy if other processes used the repository for too long.
func (m *Maintainer) prune(ctx context.Context, r config.Repository, repo *gitrepo.Repo, kept []string) (int, error) {
	// A git that started under an earlier daemon may rely on objects that no ref reaches.
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
	// Processes that share the lock may wait for a response of the daemon, so the lock is acquired
	// first.
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
	// A ref that reached a kept object may have moved since.
	if _, err := maintenance.Pin(ctx, repo, kept, true); err != nil {
		return 0, err
	}
	defer func() {
		m.Pruning.Pruned(r.Path)
		m.Follower.Pruned(r.Project)
	}()
	return maintenance.Prune(ctx, repo, lock)
}

// mayBePruned returns an error while a guard that an earlier daemon has allowed to move refs may
// still do so: no ref may reach the new values yet.
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

// MaintainDue maintains the repositories that are due, if the configuration says so.
func (m *Maintainer) MaintainDue(ctx context.Context) {
	c := m.State.Config()
	if !c.Maintain {
		return
	}
	guarded, _ := install.GuardedBy(c) // repositories that can't be listed now are due later
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

// isDue reports whether a repository is to be maintained now. A repository that was never
// maintained gets a random time of the day.
func isDue(dir string) bool {
	info, err := os.Stat(maintenance.File(dir))
	if err != nil {
		noteMaintained(dir, time.Now().Add(-rand.N(maintainEvery)))
		return false
	}
	return time.Since(info.ModTime()) > maintainEvery
}
