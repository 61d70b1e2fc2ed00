package site

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/maintenance"
	"github.com/globalrefdb/globalrefdb/site/packs"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

const (
	// pruneWait is how long a prune waits for those that share the repository. New pushes wait meanwhile.
	pruneWait = 30 * time.Second
	// keptWait bounds what the database is asked for before.
	keptWait = 10 * time.Minute
	// maintainEvery is how often each repository is maintained, if the configuration says so.
	maintainEvery = 24 * time.Hour
	// lookForDue is how often repositories are looked for whose time has come.
	lookForDue = 5 * time.Minute
)

// maintainer maintains one repository at a time.
type maintainer struct {
	turn   chan struct{}
	ctx    context.Context // ends when the daemon begins to stop: pushes must not wait for a repack
	cancel context.CancelFunc
}

// enter waits for the turn, until ctx ends. Waiting is called before it waits.
func (m *maintainer) enter(ctx context.Context, waiting func()) error {
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

func (m *maintainer) leave() { <-m.turn }

// errBusy says that a repository can't be pruned now.
var errBusy = errors.New("busy")

// maintainAsked maintains the repository that q names, and tells the client meanwhile what it does.
func (d *Daemon) maintainAsked(conn *net.UnixConn, q wire.Request) wire.Response {
	r, err := d.config.Load().Find(q.Dir)
	if err == nil && !isGuardedHere(d.config.Load(), r) {
		err = fmt.Errorf("%s is not guarded by this daemon", q.Dir)
	}
	if err != nil {
		return wire.Response{Lines: []string{wire.OneLine(err.Error())}}
	}
	hook := waitingHook(conn)
	ctx, stop := hook.keepWaiting(d.maintainer.ctx)
	m, err := d.maintain(ctx, r, hook.say)
	stop()
	var text []byte
	if err == nil {
		text, err = json.Marshal(m)
	}
	if err != nil {
		return wire.Response{Lines: []string{wire.OneLine(err.Error())}}
	}
	return wire.Response{OK: true, Lines: []string{string(text)}}
}

// maintain packs and prunes a repository. Say is called with what it does next.
func (d *Daemon) maintain(ctx context.Context, r config.Repository, say func(string)) (m client.Maintained, err error) {
	m.Project, m.Compacted = r.Project, client.CompactedNothing
	if err := d.maintainer.enter(ctx, func() { say("waiting for the maintenance of another repository") }); err != nil {
		return m, err
	}
	defer d.maintainer.leave()
	defer func() {
		if err != nil && d.stopping.Load() {
			err = errors.New(wire.DaemonStopping)
		}
	}()
	repo, err := gitrepo.OpenDir(r.Path)
	if err != nil {
		return m, err
	}
	// It is tried again tomorrow, whatever comes of it.
	defer func() { err = errors.Join(err, noteMaintained(repo.Dir(), time.Now())) }()
	say("looking for what other sites may build on")
	kept, why := d.kept(ctx, r)
	if why == nil {
		pins, err := maintenance.Pin(ctx, repo, kept, false)
		if err != nil {
			return m, err
		}
		m.Kept = pins.All
	}
	if m.Peers, err = maintenance.DropPeers(ctx, repo); err != nil {
		return m, err
	}
	say("packing")
	packed, err := maintenance.Pack(ctx, repo)
	m.Packed = string(packed)
	switch {
	case err != nil:
		return m, err
	case ctx.Err() != nil:
		return m, context.Cause(ctx)
	case why != nil:
		m.Left = wire.OneLine(why.Error())
		return m, nil
	}
	var inDatabase error
	m.Compacted, inDatabase = d.compact(ctx, r, repo, say)
	defer func() { err = errors.Join(err, inDatabase) }()
	say("looking for what can be pruned")
	n, err := maintenance.Prunable(ctx, repo)
	if err != nil || n == 0 {
		return m, err
	}
	say(fmt.Sprintf("pruning %d files: pushes wait", n))
	m.Pruned, err = d.prune(ctx, r, repo, kept)
	if errors.Is(err, errBusy) {
		m.Left, m.Busy, err = err.Error(), true, nil
	}
	return m, err
}

// kept returns what must be kept in a repository beside what its refs reach. The error says why that is not known: then
// nothing may be pruned.
//
// What comes to be needed later is here, too. A value that the database gets from now on comes with a pack, which is unpacked
// after the prune or is too new to be pruned. What that pack builds on the database held within the hour before it
// was made: now, or within the last hour, or from now on.
func (d *Daemon) kept(ctx context.Context, r config.Repository) ([]string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, keptWait, errors.New("the database takes too long"))
	defer cancel()
	if err := d.awaitServing(ctx); err != nil {
		return nil, err
	}
	if err := d.mayAct(ctx); err != nil {
		return nil, err
	}
	p, ok := d.projects.Get(r.Project)
	if !ok {
		return nil, errors.New("the database does not know the project")
	}
	switch id, err := d.projects.IDs.Of(ctx, r); {
	case err != nil:
		return nil, err
	case id != p.ID:
		return nil, projects.OtherID(r)
	case !packs.Stored(p.Project):
		return packs.KeptValues(ctx, d.db, r.Project)
	}
	if err := d.follower.Receive(ctx, r.Project); err != nil {
		return nil, fmt.Errorf("not all that other sites have pushed is here: %w", err)
	}
	return packs.Kept(ctx, d.db, r.Project)
}

// prune removes what no ref reaches, while nothing else works on the repository. The error wraps errBusy if others did for
// too long.
func (d *Daemon) prune(ctx context.Context, r config.Repository, repo *gitrepo.Repo, kept []string) (int, error) {
	// A git that an earlier daemon let through may rely on what no ref reaches.
	if pusher.RunsSince(d.locked, repo.Dir(), d.config.Load().GitPrograms) {
		return 0, fmt.Errorf("%w: a git has been running there since before the daemon started", errBusy)
	}
	if err := d.mayBePruned(r); err != nil {
		return 0, err
	}
	patience, cancel := context.WithTimeoutCause(ctx, pruneWait, fmt.Errorf("%w: for %s there was always a push or a sync under way", errBusy, pruneWait))
	defer cancel()
	if err := d.awaitInheritedPrune(patience, r.Path); err != nil {
		return 0, err
	}
	// The processes that share the lock may wait for a hook's answer: so it comes first.
	lock, err := maintenance.Alone(patience, repo.Dir())
	if err != nil {
		return 0, err
	}
	defer lock.Close()
	release, err := d.pruning.alone(patience, r.Path)
	if err != nil {
		return 0, err
	}
	defer release()
	if err := d.mayBePruned(r); err != nil {
		return 0, err
	}
	// What was kept by a ref may be left by it since.
	if _, err := maintenance.Pin(ctx, repo, kept, true); err != nil {
		return 0, err
	}
	defer func() {
		d.pruning.pruned(r.Path)
		d.follower.Pruned(r.Project)
	}()
	return maintenance.Prune(ctx, repo, lock)
}

// mayBePruned returns an error while a guard may move refs there that an earlier daemon has let through, to what no ref reaches.
func (d *Daemon) mayBePruned(r config.Repository) error {
	if d.guards.unsharedIn(r.Path) {
		return fmt.Errorf("%w: a guard may move refs there since before the daemon started", errBusy)
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

// keepMaintaining maintains each repository once a day, one after the other, until ctx ends.
func (d *Daemon) keepMaintaining(ctx context.Context) {
	for pauseFor(ctx, lookForDue) {
		d.maintainDue(ctx)
	}
}

// maintainDue maintains the repositories whose time has come, if the configuration says so.
func (d *Daemon) maintainDue(ctx context.Context) {
	c := d.config.Load()
	if !c.Maintain {
		return
	}
	guarded, _ := guardedHere(c) // those that can't be listed have their time later
	for _, r := range guarded {
		if !isDue(r.Path) || ctx.Err() != nil {
			continue
		}
		m, err := d.maintain(ctx, r, func(string) {})
		which := d.digest(r.Project, "")
		switch {
		case ctx.Err() != nil:
		case err != nil || m.Left != "" && !m.Busy:
			d.o.Logger.WarnContext(ctx, "a repository could not be maintained: see `refdbctl site maintain`", "repository", which, "class", refdb.ClassOf(err).String())
		default:
			d.o.Logger.InfoContext(ctx, "a repository was maintained", "repository", which, "packed", m.Packed, "kept", m.Kept, "pruned", m.Pruned, "compacted", string(m.Compacted), "busy", m.Busy)
		}
	}
}

// isDue reports whether a repository is to be maintained now. One that never was gets its time of day at random.
func isDue(dir string) bool {
	info, err := os.Stat(maintenance.File(dir))
	if err != nil {
		noteMaintained(dir, time.Now().Add(-rand.N(maintainEvery)))
		return false
	}
	return time.Since(info.ModTime()) > maintainEvery
}
