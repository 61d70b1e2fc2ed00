package site

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/intent"
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
	turn     chan struct{} // held by the goroutine that decides about this push
	snapshot *snapshot     // guarded by the lock of pushes; nil if there is none

	// The holder of the turn changes these.
	dead    bool
	dir     string             // of the repository that it asked about last
	locks   []gitrepo.LockFile // that it may have had there then
	renames bool               // it has renamed a branch, which its end settles

	objects objects.Pushed

	mu      sync.Mutex // guards what follows, for readers without the turn
	pending map[refOf]*intent.Move
	failed  error // nil, or an outage
	// admitted counts the refs that update let through since the last transaction.
	admitted int
	overfull bool // it has refused a ref since, because they were too many
	shares   map[string]*share
	ended    bool // the process: nothing is shared any more
}

// A refOf names a ref of a project.
type refOf struct{ project, ref string }

// enter waits for the turn, at most until ctx ends.
func (p *push) enter(ctx context.Context) error {
	select {
	case p.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// tryEnter takes the turn if nobody has it.
func (p *push) tryEnter() bool {
	select {
	case p.turn <- struct{}{}:
		return true
	default:
		return false
	}
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

func (p *push) leave() { <-p.turn }

func (p *push) list() []*intent.Move {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.pending))
}

func (p *push) find(project, ref string) *intent.Move {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pending[refOf{project, ref}]
}

// add takes the place of what p had about the same refs.
func (p *push) add(moves ...*intent.Move) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range moves {
		p.pending[refOf{m.Project, m.Ref}] = m
	}
}

func (p *push) drop(moves []*intent.Move) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range moves {
		if k := (refOf{m.Project, m.Ref}); p.pending[k] == m {
			delete(p.pending, k)
		}
	}
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

// pending counts the moves that are not ended.
func (ps *pushes) pending() (n int) {
	for _, p := range ps.all() {
		n += len(p.list())
	}
	return n
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
	p := &push{agent: a, process: process, turn: make(chan struct{}, 1), pending: map[refOf]*intent.Move{}}
	if ps.byAgent == nil {
		ps.byAgent = map[pusher.Agent]*push{}
	}
	ps.byAgent[a] = p
	d.tasks.Go(func() { d.awaitEnd(ctx, p) })
	return p, nil
}

// awaitEnd waits for the end of the push's process and resolves what it left.
func (d *Daemon) awaitEnd(ctx context.Context, p *push) {
	defer p.process.Close()
	defer context.AfterFunc(ctx, p.process.Close)()
	if p.process.Wait() != nil || p.enter(ctx) != nil {
		return // the daemon ends: the process may go on
	}
	defer p.leave()
	p.dead = true
	if p.dir != "" {
		d.moved.Raise(p.dir) // a hook that was killed has told nothing
	}
	defer d.endShares(p)
	defer d.removeAbandoned(ctx, p.dir, p.locks)
	defer d.storage.DropUnused(&p.objects)
	if moves := p.list(); len(moves) > 0 {
		for dir, files := range d.lockFilesOf(moves) {
			defer d.removeAbandoned(ctx, dir, files)
		}
		if !p.renames {
			d.counters.deaths.Add(1)
		}
		ctx, cancel := context.WithTimeout(ctx, d.config.Load().Timeout)
		defer cancel()
		d.end(ctx, p, moves)
	}
	d.pushes.mu.Lock()
	defer d.pushes.mu.Unlock()
	delete(d.pushes.byAgent, p.agent)
}

// pushOf returns the push that runs the hook, which is watched from now on. If the push met an outage, that is the
// error.
func (d *Daemon) pushOf(c *config.Config, hook pusher.Hook, said *wire.Process) (*push, error) {
	a, err := hook.Agent(c.GitPrograms, said, d.boot)
	var p *push
	if err == nil {
		p, err = d.track(d.work, a)
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
		if slices.ContainsFunc(push.list(), func(m *intent.Move) bool { return m.Project == r.Project }) {
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
		if m := p.find(k.Project, k.Ref); m != nil && m.Token == k.Token {
			return !m.Over.Load()
		}
	}
	return true
}

// lives reports whether who has announced a move may still make it.
func (d *Daemon) lives(agent string) bool {
	if t, ok := pusher.ParseTransaction(agent); ok {
		return d.guards.MayMove(t, d.boot)
	}
	return pusher.Running(agent, d.boot)
}
