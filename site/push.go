package site

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/claims"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/moving"
	"github.com/globalrefdb/globalrefdb/site/objects"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// A push is what the daemon knows about a git process that moves refs, until the process has ended:
// what was read for it, and what it announced.
type push struct {
	agent    pusher.Agent
	process  *pusher.Watched
	pending  *moving.Pending
	snapshot *snapshot // guarded by the lock of pushes; nil if there is none

	// The holder of the turn of pending changes these.
	dead    bool
	dir     string             // of the repository that it asked about last
	locks   []gitrepo.LockFile // that it may have had there then
	renames bool               // it has renamed a branch, which its end settles

	objects objects.Pushed

	mu     sync.Mutex // guards what follows, for readers without the turn
	failed error      // nil, or an outage
	// admitted counts the refs that update let through since the last transaction.
	admitted int
	overfull bool // it has refused a ref since, because they were too many
	shares   map[string]*share
	follows  []followed // what it moves as the database has it
	ended    bool       // the process: nothing is shared any more
}

// followed is what a git moves to what the database has.
type followed struct {
	claim *claims.Claim
	list  func() // that it has moved
}

// admit counts n refs that the update hook lets through, and refuses those that are too many for the
// transaction that follows: if the transaction were refused, git would close the connection without a
// message. Only the first refusal has a text: git says of each ref that it was declined, and
// thousands of lines would hide that text.
func (p *push) admit(n int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.admitted+n > refdb.MaxLockRefs {
		if p.overfull {
			return refusal.Because(refusal.TooMany, refusal.Lines{})
		}
		p.overfull = true
		return refusal.Because(refusal.TooMany, refusal.Lines{wire.TooManyInPush(refdb.MaxLockRefs)})
	}
	p.admitted += n
	return nil
}

// resetAdmitted is called when a transaction has begun with the refs that update let through.
func (p *push) resetAdmitted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.admitted, p.overfull = 0, false
}

// pushes are all that this daemon knows of, by their agents.
type pushes struct {
	mu      sync.Mutex
	byAgent map[pusher.Agent]*push
}

func (ps *pushes) get(a pusher.Agent) *push {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.byAgent[a]
}

// remember keeps a snapshot for a push until the push has ended, unless all snapshots together would
// have too many refs: then the database is asked for each ref.
func (ps *pushes) remember(p *push, s *snapshot) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p.snapshot = nil
	kept := len(s.values)
	for _, other := range ps.byAgent {
		if other.snapshot != nil && other.snapshot.old() {
			other.snapshot = nil
		}
		if other.snapshot != nil {
			kept += len(other.snapshot.values)
		}
	}
	if kept <= snapshotRefs {
		p.snapshot = s
	}
}

// snapshot returns the snapshot of a push, which must not be changed; nil if there is none.
func (ps *pushes) snapshot(a pusher.Agent) *snapshot {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p := ps.byAgent[a]; p != nil {
		return p.snapshot
	}
	return nil
}

// all returns the pushes in the order of their agents.
func (ps *pushes) all() []*push {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	all := make([]*push, 0, len(ps.byAgent))
	for _, p := range ps.byAgent {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *push) int { return strings.Compare(a.agent.String(), b.agent.String()) })
	return all
}

// track returns the push of a process, which is watched from now on, until ctx ends. The error is
// [pusher.ErrGone] if the process has ended.
func (d *Daemon) track(ctx context.Context, a pusher.Agent) (*push, error) {
	ps := &d.pushes
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p := ps.byAgent[a]; p != nil {
		return p, nil
	}
	process, err := pusher.Watch(a)
	if err != nil {
		return nil, err
	}
	p := &push{agent: a, process: process, pending: d.moving.NewPending()}
	if ps.byAgent == nil {
		ps.byAgent = map[pusher.Agent]*push{}
	}
	ps.byAgent[a] = p
	d.state.Tasks.Go(func() { d.awaitEnd(ctx, p) })
	return p, nil
}

// awaitEnd waits for the end of the push's process and resolves what it left.
func (d *Daemon) awaitEnd(ctx context.Context, p *push) {
	defer p.process.Close()
	defer context.AfterFunc(ctx, p.process.Close)()
	if p.process.Wait() != nil || p.pending.Enter(ctx) != nil {
		return // the daemon ends: the process may go on
	}
	defer p.pending.Leave()
	p.dead = true
	if p.dir != "" {
		d.moved.Raise(p.dir) // a hook that was killed has told nothing
	}
	defer d.endShares(p)
	defer d.guards.RemoveLeft(ctx, p.dir, p.locks)
	defer d.storage.DropUnused(&p.objects)
	if moves := p.pending.All(); len(moves) > 0 {
		for dir, files := range d.moving.LockFiles(moves) {
			defer d.guards.RemoveLeft(ctx, dir, files)
		}
		if !p.renames {
			d.state.Counts.Deaths.Add(1)
		}
		ctx, cancel := context.WithTimeout(ctx, d.state.Config().Timeout)
		defer cancel()
		d.moving.End(ctx, p.pending, moves)
	}
	d.moving.Forget(p.pending)
	d.pushes.mu.Lock()
	defer d.pushes.mu.Unlock()
	delete(d.pushes.byAgent, p.agent)
}

// pushOf returns the push that runs the hook, which is watched from now on. If the push met an outage, that is the
// error.
func (d *Daemon) pushOf(c *config.Config, hook pusher.Hook, said *wire.Process) (*push, error) {
	a, err := hook.Agent(c.GitPrograms, said, d.state.Boot)
	var p *push
	if err == nil {
		p, err = d.track(d.state.Work, a)
	}
	if err == nil {
		err = hook.RunBy(a)
	}
	if err != nil {
		return nil, refusal.Because(refusal.Pusher, fmt.Errorf("%s: %w", wire.NothingWasChanged, err))
	}
	return p, p.outage()
}

func (p *push) outage() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// remember records err if it is an outage, and returns it.
func (p *push) remember(err error) error {
	if o := (refusal.Outage{}); errors.As(err, &o) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.failed = o
	}
	return err
}

// unsettledIn returns an error while a push or a guard's transaction in a repository may still move refs, or is not settled.
func (d *Daemon) unsettledIn(r config.Repository) error {
	for _, push := range d.pushes.all() {
		if slices.ContainsFunc(push.pending.All(), func(m *moving.Move) bool { return m.Project == r.Project }) {
			return fmt.Errorf("a push to %s is not settled yet", r.Project)
		}
	}
	if d.guards.OpenIn(r.Path) {
		return fmt.Errorf("a transaction of a guard in %s is not settled yet", r.Project)
	}
	return nil
}

// mayMove reports whether the process that announced a move may still make it.
func (d *Daemon) mayMove(k refdb.Known) bool {
	if !d.lives(k.Agent) {
		return false
	}
	a, _ := pusher.ParseAgent(k.Agent)
	if p := d.pushes.get(a); p != nil {
		if m := p.pending.Find(k.Project, k.Ref); m != nil && m.Token == k.Token {
			return !m.Over.Load()
		}
	}
	return true
}

// lives reports whether who has announced a move may still make it.
func (d *Daemon) lives(agent string) bool {
	if t, ok := pusher.ParseTransaction(agent); ok {
		return d.guards.MayMove(t, d.state.Boot)
	}
	return pusher.Running(agent, d.state.Boot)
}
