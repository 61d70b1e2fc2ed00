package site

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// A push is what is known of a process of git that moves refs, until that has
// ended: what was read for it, and what it announced.
type push struct {
	agent    agent
	process  *process
	turn     chan struct{} // taken by whoever decides about this push
	snapshot *snapshot     // guarded by the lock of pushes; nil if there is none

	// Changed by whoever has the turn.
	dead bool

	mu      sync.Mutex // guards what follows, for those who only look
	pending []*pending
	failed  error // nil, or an outage
	// admitted counts the refs that update let through since the last transaction.
	admitted int
}

// A pending move of a ref: what the database has as an intent.
type pending struct {
	project string
	path    string // of the repository; "" if it is to be found by the project
	owner   string // of the intent: this daemon, or one before it
	token   refdb.Token
	refdb.Update
	since time.Time

	// over says that git is through with it, one way or the other.
	over bool
	// adopted says that it was found in the database.
	adopted bool
}

func (m *pending) is(project, ref string) bool { return m.project == project && m.Ref == ref }

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

// admit counts n refs that update lets through, and refuses those that the transaction to
// come has no room for: refused there, git would break the connection off without a word.
func (p *push) admit(n int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.admitted+n > refdb.MaxLockRefs {
		return refused{fmt.Sprintf("more than %d refs in one push: push the others again", refdb.MaxLockRefs)}
	}
	p.admitted += n
	return nil
}

// transacted says that a transaction of git's has what update let through.
func (p *push) transacted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.admitted = 0
}

func (p *push) leave() { <-p.turn }

func (p *push) list() []*pending {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.pending)
}

func (p *push) find(project, ref string) *pending {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.pending {
		if m.is(project, ref) {
			return m
		}
	}
	return nil
}

func (p *push) add(moves ...*pending) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending = append(p.pending, moves...)
}

func (p *push) drop(moves []*pending) {
	gone := make(map[*pending]bool, len(moves))
	for _, m := range moves {
		gone[m] = true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending = slices.DeleteFunc(p.pending, func(m *pending) bool { return gone[m] })
}

// pushes are all that this daemon knows of, by their agents.
type pushes struct {
	mu      sync.Mutex
	byAgent map[agent]*push
}

func (ps *pushes) get(a agent) *push {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.byAgent[a]
}

// remember keeps a snapshot for a push until that has ended, unless all pushes
// together have too much to keep: then the database is asked for each ref.
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

// snapshot returns what was read for a push, to be read only; nil if there is none.
func (ps *pushes) snapshot(a agent) *snapshot {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p := ps.byAgent[a]; p != nil {
		return p.snapshot
	}
	return nil
}

// all are in the order of their processes' IDs.
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

// track returns the push of a process, watched from now on. The error is
// errOrphan if the process has ended. It runs within a task of ctx.
func (d *Daemon) track(ctx context.Context, a agent) (*push, error) {
	ps := &d.pushes
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p := ps.byAgent[a]; p != nil {
		return p, nil
	}
	process, err := watch(a)
	if err != nil {
		return nil, err
	}
	p := &push{agent: a, process: process, turn: make(chan struct{}, 1)}
	if ps.byAgent == nil {
		ps.byAgent = map[agent]*push{}
	}
	ps.byAgent[a] = p
	d.tasks.Go(func() { d.attend(ctx, p) })
	return p, nil
}

// attend waits for the end of the push's process and resolves what it left.
func (d *Daemon) attend(ctx context.Context, p *push) {
	defer p.process.close()
	defer context.AfterFunc(ctx, p.process.close)()
	if p.process.wait() != nil || p.enter(ctx) != nil {
		return // the daemon ends: the process may go on
	}
	defer p.leave()
	p.dead = true
	if moves := p.list(); len(moves) > 0 {
		d.counters.deaths.Add(1)
		ctx, cancel := context.WithTimeout(ctx, d.config.Load().Timeout)
		defer cancel()
		d.end(ctx, p, moves)
	}
	d.pushes.mu.Lock()
	defer d.pushes.mu.Unlock()
	delete(d.pushes.byAgent, p.agent)
}
