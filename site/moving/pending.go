package moving

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/claims"
	"github.com/globalrefdb/globalrefdb/site/refusal"
)

// A refOf names a ref of a project.
type refOf struct{ project, ref string }

// Pending holds the moves that one git process has announced and that are not settled. Git runs one
// transaction at a time, so that there is at most one move of each ref.
type Pending struct {
	turn chan struct{} // held by the goroutine that decides about the process

	mu    sync.Mutex // guards what follows, for readers without the turn
	moves map[refOf]*Move
}

// NewPending returns the moves of a git process that has announced none. The coordinator knows them
// until [Coordinator.Forget].
func (co *Coordinator) NewPending() *Pending {
	p := &Pending{turn: make(chan struct{}, 1), moves: map[refOf]*Move{}}
	co.mu.Lock()
	defer co.mu.Unlock()
	if co.pending == nil {
		co.pending = map[*Pending]bool{}
	}
	co.pending[p] = true
	return p
}

// Forget is called when the process of p has ended.
func (co *Coordinator) Forget(p *Pending) {
	co.mu.Lock()
	defer co.mu.Unlock()
	delete(co.pending, p)
}

// Enter waits for the turn, at most until ctx ends.
func (p *Pending) Enter(ctx context.Context) error {
	select {
	case p.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// TryEnter takes the turn if nobody has it.
func (p *Pending) TryEnter() bool {
	select {
	case p.turn <- struct{}{}:
		return true
	default:
		return false
	}
}

// Leave ends the turn.
func (p *Pending) Leave() { <-p.turn }

// All returns all moves.
func (p *Pending) All() []*Move {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.moves))
}

// Find returns the move of a ref; nil if there is none.
func (p *Pending) Find(project, ref string) *Move {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.moves[refOf{project, ref}]
}

// Add adds moves. They replace those of the same refs.
func (p *Pending) Add(moves ...*Move) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range moves {
		p.moves[refOf{m.Project, m.Ref}] = m
	}
}

// Drop removes moves, unless others have replaced them.
func (p *Pending) Drop(moves []*Move) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range moves {
		if k := (refOf{m.Project, m.Ref}); p.moves[k] == m {
			delete(p.moves, k)
		}
	}
}

// all returns the moves of all processes.
func (co *Coordinator) all() []*Pending {
	co.mu.Lock()
	defer co.mu.Unlock()
	return slices.Collect(maps.Keys(co.pending))
}

// Count counts the moves that git processes have announced and that are not settled.
func (co *Coordinator) Count() (n int) {
	for _, p := range co.all() {
		n += len(p.All())
	}
	return n
}

// UnderWay returns the refusal of moves if a git process has announced a move of one of their refs
// that is not settled.
func (co *Coordinator) UnderWay(project string, moves []refdb.Update) error {
	all := co.all()
	for _, u := range moves {
		for _, p := range all {
			if m := p.Find(project, u.Ref); m != nil {
				return claims.UnderWay(u.Ref, m.Since)
			}
		}
	}
	return nil
}

// Adopt adds to p the intents of its process that this daemon does not know: an earlier daemon
// recorded them, or the reply to the request was lost. It resolves those whose transaction has
// ended. The caller has the turn.
func (co *Coordinator) Adopt(ctx context.Context, p *Pending, intents []driver.Intent) error {
	var unknown, over []*Move
	for _, i := range intents {
		m := p.Find(i.Project, i.Ref)
		switch {
		case m == nil || m.Token != i.Token:
			unknown = append(unknown, MoveOf(i))
		case m.Over.Load():
			over = append(over, m)
		}
	}
	// They may have ended since they were listed.
	slices.SortStableFunc(unknown, func(a, b *Move) int { return strings.Compare(a.Project, b.Project) })
	for len(unknown) > 0 {
		n := slices.IndexFunc(unknown, func(m *Move) bool { return m.Project != unknown[0].Project })
		if n < 0 {
			n = len(unknown)
		}
		still, err := co.StillPending(ctx, unknown[:n])
		if err != nil {
			return err
		}
		p.Add(still...)
		unknown = unknown[n:]
	}
	ended, err := co.Resolve(ctx, over)
	p.Drop(ended)
	co.wakeFor(ended) // again, for guards: UnderWay refuses them until here
	return err
}

// ForgetEnded drops moves that have ended by a request whose reply was lost: the database did not
// list them among its intents when it was asked, after start.
func (co *Coordinator) ForgetEnded(start time.Time, intents []driver.Intent) {
	still := make(map[Key]bool, len(intents))
	for _, i := range intents {
		still[KeyOf(i)] = true
	}
	for _, p := range co.all() {
		if !p.TryEnter() {
			continue
		}
		p.Drop(slices.DeleteFunc(p.All(), func(m *Move) bool {
			return !m.Over.Load() || still[m.Key()] || m.Since.After(start)
		}))
		p.Leave()
	}
}

// Unannounced returns the moves that p has not announced yet: git runs transactions within others,
// and both announce the same moves. A different move of an announced ref shows that the earlier
// transaction has ended, because git runs one at a time. Unannounced resolves the moves of such a
// transaction. The caller has the turn.
func (co *Coordinator) Unannounced(ctx context.Context, p *Pending, project string, moves []refdb.Update) ([]refdb.Update, error) {
	var over, again []*Move
	var left []refdb.Update
	for _, u := range moves {
		m := p.Find(project, u.Ref)
		switch {
		case m == nil:
			left = append(left, u)
		case m.Over.Load() || m.Adopted || !m.Old.Equivalent(u.Old) || !m.New.Equivalent(u.New):
			over = append(over, m)
			left = append(left, u)
		default:
			again = append(again, m)
		}
	}
	if len(again) > 0 {
		// An operator may have ended some of them.
		still, err := co.StillPending(ctx, again)
		if err != nil {
			return nil, refusal.DatabaseFailed(err)
		}
		for _, m := range again {
			if !slices.Contains(still, m) {
				p.Drop([]*Move{m})
				left = append(left, m.Update)
			}
		}
	}
	if len(over) > 0 {
		if err := co.End(ctx, p, over); err != nil {
			return nil, refusal.DatabaseFailed(err)
		}
	}
	return left, nil
}
