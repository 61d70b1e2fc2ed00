package hooks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/moving"
	"github.com/globalrefdb/globalrefdb/site/objects"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// A push is what the daemon knows about a git process that moves refs, until the process has ended:
// what was read for the process, and what it has announced.
type push struct {
	agent    pusher.Agent
	process  *pusher.Watched
	gone     chan struct{} // closed when the process has ended
	pending  *moving.Pending
	snapshot *snapshot // guarded by the lock of pushes; nil if there is none

	// The holder of the turn of pending changes these.
	dead    bool
	dir     string             // the repository of its last transaction
	locks   []gitrepo.LockFile // that it may have had there
	renames bool               // it has renamed a branch, which is settled when it ends

	objects objects.Pushed

	mu     sync.Mutex // guards what follows, for readers without the turn
	failed error      // nil, or an outage
	// admitted counts the refs that update let through since the last transaction.
	admitted int
	overfull bool // update has refused a ref since, because there were too many
	shares   map[string]*share
	ended    bool // the process has ended: it shares no repository any more
}

// admit counts n refs that the update hook lets through, and refuses those that are too many for
// the transaction that follows: if the transaction were refused, git would close the connection
// without a message. Only the first refusal has a text: git says of each ref that it was declined,
// and thousands of lines would hide that text.
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

// pushes holds all pushes that the daemon knows, by the identities of their processes.
type pushes struct {
	mu      sync.Mutex
	byAgent map[pusher.Agent]*push
}

func (ps *pushes) get(a pusher.Agent) *push {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.byAgent[a]
}

// remember keeps a snapshot for a push until the push has ended, unless all snapshots together
// would have too many refs: then the database is asked for each ref.
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

// Admitted returns how many pushes have passed update, and have not begun the transaction that
// follows.
func (h *Hooks) Admitted() (n int) {
	for _, p := range h.pushes.all() {
		p.mu.Lock()
		if p.admitted > 0 && !p.ended {
			n++
		}
		p.mu.Unlock()
	}
	return n
}

// track returns the push of a process, which is watched from now on, until ctx ends. The error is
// [pusher.ErrGone] if the process has ended.
func (h *Hooks) track(ctx context.Context, a pusher.Agent) (*push, error) {
	ps := &h.pushes
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p := ps.byAgent[a]; p != nil {
		return p, nil
	}
	process, err := pusher.Watch(a)
	if err != nil {
		return nil, err
	}
	p := &push{agent: a, process: process, gone: make(chan struct{}), pending: h.Moving.NewPending()}
	if ps.byAgent == nil {
		ps.byAgent = map[pusher.Agent]*push{}
	}
	ps.byAgent[a] = p
	h.State.Tasks.Go(func() { h.awaitEnd(ctx, p) })
	return p, nil
}

// awaitEnd waits for the end of the push's process and resolves what it left.
func (h *Hooks) awaitEnd(ctx context.Context, p *push) {
	defer p.process.Close()
	defer context.AfterFunc(ctx, p.process.Close)()
	if p.process.Wait() != nil {
		return // the daemon ends: the process may go on
	}
	close(p.gone) // before the turn, which a hook has that waits
	if p.pending.Enter(ctx) != nil {
		return
	}
	defer p.pending.Leave()
	p.dead = true
	if p.dir != "" {
		h.Marks.Raise(p.dir) // a hook that was killed has told nothing
	}
	defer h.endShares(p)
	defer h.Guards.RemoveLeft(ctx, p.dir, p.locks)
	defer h.Storage.DropUnused(&p.objects)
	if moves := p.pending.All(); len(moves) > 0 {
		for dir, files := range h.Moving.LockFiles(moves) {
			defer h.Guards.RemoveLeft(ctx, dir, files)
		}
		if !p.renames {
			h.State.Counts.Deaths.Add(1)
		}
		ctx, cancel := context.WithTimeout(ctx, h.State.Config().Timeout)
		defer cancel()
		h.Moving.End(ctx, p.pending, moves)
	}
	h.Moving.Forget(p.pending)
	h.pushes.mu.Lock()
	defer h.pushes.mu.Unlock()
	delete(h.pushes.byAgent, p.agent)
}

// pushOf returns the push whose process runs the hook, and which is watched from now on. If the
// push has met an outage, that is the error.
func (h *Hooks) pushOf(c *config.Config, hook pusher.Hook, said *wire.Process) (*push, error) {
	a, err := hook.Agent(c.GitPrograms, said, h.State.Boot)
	var p *push
	if err == nil {
		p, err = h.track(h.State.Work, a)
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

// forget forgets an outage that the push is to outwait.
func (p *push) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = nil
}

// Unsettled reports whether a git process has announced moves of a project that are not settled.
func (h *Hooks) Unsettled(project string) bool {
	for _, p := range h.pushes.all() {
		if slices.ContainsFunc(p.pending.All(), func(m *moving.Move) bool { return m.Project == project }) {
			return true
		}
	}
	return false
}

// MayMove reports whether the git process that announced a move may still make it.
func (h *Hooks) MayMove(k driver.Known) bool {
	if !pusher.Running(k.Agent, h.State.Boot) {
		return false
	}
	a, _ := pusher.ParseAgent(k.Agent)
	if p := h.pushes.get(a); p != nil {
		if m := p.pending.Find(k.Project, k.Ref); m != nil && m.Token == k.Token {
			return !m.Over.Load()
		}
	}
	return true
}

// DropResolved drops the move of a push whose intent an operator has resolved.
func (h *Hooks) DropResolved(i driver.Intent) {
	a, _ := pusher.ParseAgent(i.Agent)
	p := h.pushes.get(a)
	if p == nil || !p.pending.TryEnter() {
		return
	}
	defer p.pending.Leave()
	if m := p.pending.Find(i.Project, i.Ref); m != nil && m.Token == i.Token {
		p.pending.Drop([]*moving.Move{m})
	}
}

// Status returns the pushes with unsettled moves, by their processes and projects.
func (h *Hooks) Status() []client.Push {
	all := []client.Push{}
	for _, p := range h.pushes.all() {
		byProject := map[string]client.Push{}
		for _, m := range p.pending.All() {
			push := byProject[m.Project]
			byProject[m.Project] = client.Push{
				Project: m.Project, PID: p.agent.PID, Refs: push.Refs + 1, Age: max(push.Age, time.Since(m.Since).Seconds()),
			}
		}
		for _, project := range slices.Sorted(maps.Keys(byProject)) {
			all = append(all, byProject[project])
		}
	}
	return all
}

// Reconcile resolves or adopts the intents of one git process, which name identifies.
func (h *Hooks) Reconcile(ctx context.Context, name string, intents []driver.Intent) error {
	a, ok := pusher.ParseAgent(name)
	if !ok || a.Boot != h.State.Boot {
		return h.resolveAbandoned(ctx, intents)
	}
	p, err := h.track(h.State.Work, a)
	switch {
	case errors.Is(err, pusher.ErrGone):
		return h.resolveAbandoned(ctx, intents)
	case err != nil:
		return err
	case !p.pending.TryEnter():
		// A hook of the push is being answered. What can't be ended then is reconciled later.
		return nil
	}
	defer p.pending.Leave()
	if p.dead {
		return nil
	}
	return h.Moving.Adopt(ctx, p.pending, intents)
}

// resolveAbandoned resolves the intents of a process that has ended.
func (h *Hooks) resolveAbandoned(ctx context.Context, intents []driver.Intent) error {
	moves := moving.MovesOfIntents(intents)
	// Once the intents have ended, others may lock those refs.
	leftovers := h.Moving.LockFiles(moves)
	ended, err := h.Moving.Resolve(ctx, moves)
	if len(ended) == len(moves) {
		for dir, files := range leftovers {
			h.Guards.RemoveLeft(h.State.Work, dir, files)
		}
	}
	return err
}
