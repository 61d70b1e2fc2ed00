package moving

import (
	"context"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/refusal"
)

// A waiter tries again when it is woken. Not every change wakes it: an application that releases a
// lock, and another site that drops a move, leave no trace in the history. So the waiter also polls,
// with pauses that grow from pollFirst to pollLast.
const (
	pollFirst = 50 * time.Millisecond
	pollLast  = 400 * time.Millisecond
)

// A Wait says how long a refused attempt to move refs is repeated.
type Wait struct {
	Project string
	Moves   []refdb.Update
	Until   time.Time
	// Passes reports whether waiting may help against a refusal.
	Passes func(error) bool
	// Gone is closed when nobody waits for the answer any more; nil if the context says so.
	Gone <-chan struct{}
}

// Locked reports whether err refuses a move because another push or a lock has the ref.
func Locked(err error) bool {
	reason := refusal.ReasonOf(err)
	return reason == refusal.Locked || reason == refusal.Held
}

// Await calls try until the refusal is not one that passes. It tries again when a ref of w changes
// or comes free, as far as [Coordinator.Wake] is told, and from time to time. At w.Until it tries
// for the last time. It returns the last refusal, also when ctx ends or the client is gone. When the
// daemon stops, it returns that as the refusal.
func (co *Coordinator) Await(ctx context.Context, w Wait, try func() error) error {
	woken, leave := co.waits.enter(w.Project, w.Moves)
	defer leave()
	poll := backoff.NewExponentialBackOff()
	poll.InitialInterval, poll.MaxInterval, poll.Multiplier = pollFirst, pollLast, 2
	for {
		err := try()
		left := time.Until(w.Until)
		if err == nil || !w.Passes(err) || left <= 0 {
			return err
		}
		timer := time.NewTimer(min(poll.NextBackOff(), left))
		select {
		case <-woken:
		case <-timer.C:
		case <-w.Gone:
			return err
		case <-ctx.Done():
			return err
		case <-co.State.Upkeep.Done():
			return refusal.Stops()
		}
		timer.Stop()
		if ctx.Err() != nil {
			return err // select may have taken the other case
		}
	}
}

// Wake makes those try again that wait for one of the refs.
func (co *Coordinator) Wake(project string, refs ...string) { co.waits.wake(project, refs) }

// wakeFor is Wake for the refs of moves.
func (co *Coordinator) wakeFor(moves []*Move) {
	for _, m := range moves {
		co.Wake(m.Project, m.Ref)
	}
}

// waits holds the calls of Await that are under way, by the refs that they wait for.
type waits struct {
	mu    sync.Mutex
	byRef map[refOf]map[chan struct{}]bool
}

// enter returns a channel that has an item once a ref of moves was woken. The caller calls leave in
// the end.
func (ws *waits) enter(project string, moves []refdb.Update) (woken <-chan struct{}, leave func()) {
	w := make(chan struct{}, 1)
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.byRef == nil {
		ws.byRef = map[refOf]map[chan struct{}]bool{}
	}
	for _, u := range moves {
		k := refOf{project, u.Ref}
		if ws.byRef[k] == nil {
			ws.byRef[k] = map[chan struct{}]bool{}
		}
		ws.byRef[k][w] = true
	}
	return w, func() {
		ws.mu.Lock()
		defer ws.mu.Unlock()
		for _, u := range moves {
			k := refOf{project, u.Ref}
			if delete(ws.byRef[k], w); len(ws.byRef[k]) == 0 {
				delete(ws.byRef, k)
			}
		}
	}
}

func (ws *waits) wake(project string, refs []string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, ref := range refs {
		for w := range ws.byRef[refOf{project, ref}] {
			select {
			case w <- struct{}{}:
			default:
			}
		}
	}
}
