package linearizability

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// A Workload is a random mix of calls that contend for a few refs. It is for one
// goroutine.
type Workload struct {
	Client   *Client
	Rand     *rand.Rand
	Projects []string
	Refs     []string      // of each project: at least three
	Pause    time.Duration // the longest between two turns
	Hold     time.Duration // the longest that a lock is held without doing anything
	// Patience, unless 0, limits the context of one turn in eight, which so may end
	// in the middle of a call.
	Patience time.Duration
	Advisory bool // make updates that heed no locks, too
}

// Run takes turns until ctx ends. It completes each turn. Errors are part of the
// history and do not stop it.
func (w *Workload) Run(ctx context.Context) {
	for ctx.Err() == nil {
		w.Turn(context.WithoutCancel(ctx))
		w.wait(ctx, w.Pause)
	}
}

func (w *Workload) wait(ctx context.Context, most time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Duration(w.Rand.Int64N(int64(most) + 1))):
	}
}

// Turn makes the calls of one turn.
func (w *Workload) Turn(ctx context.Context) {
	if w.Patience > 0 && w.Rand.IntN(8) == 0 {
		limited, cancel := context.WithTimeout(ctx, time.Duration(w.Rand.Int64N(int64(w.Patience))))
		defer cancel()
		ctx = limited
	}
	project := w.Projects[w.Rand.IntN(len(w.Projects))]
	switch n := w.Rand.IntN(10); {
	case n < 2:
		_, _ = w.Client.Get(ctx, project, w.some(3)...)
	case n < 6:
		w.move(ctx, project)
	default:
		w.guard(ctx, project)
	}
}

// some returns up to n of the refs.
func (w *Workload) some(n int) []string {
	var refs []string
	for _, i := range w.Rand.Perm(len(w.Refs))[:1+w.Rand.IntN(n)] {
		refs = append(refs, w.Refs[i])
	}
	return refs
}

// move moves refs from the values that they hold, or held a moment ago.
func (w *Workload) move(ctx context.Context, project string) {
	refs := w.some(2)
	rows, err := w.Client.Get(ctx, project, refs...)
	if err != nil {
		return
	}
	held := values(rows)
	var updates []refdb.Update
	for _, ref := range refs {
		updates = append(updates, refdb.Update{Ref: ref, Old: held[ref], New: w.value()})
	}
	var opts []refdb.UpdateOption
	switch n := w.Rand.IntN(16); {
	case n == 0:
		opts = append(opts, refdb.Adopt())
	case n < 3 && w.Advisory:
		opts = append(opts, refdb.Advisory())
	}
	_ = w.Client.Update(ctx, project, updates, opts...)
}

// value returns a value that nobody else writes, or now and then a deletion.
func (w *Workload) value() refdb.Value {
	if w.Rand.IntN(12) == 0 {
		return refdb.Deleted
	}
	return refdb.Value(fmt.Sprintf("%040x", w.Rand.Uint64()))
}

// guard works in a critical section, and tries to write once more after it.
func (w *Workload) guard(ctx context.Context, project string) {
	lock, err := w.Client.TryLock(ctx, project, w.some(2)...)
	if err != nil {
		return
	}
	g := guarded{w: w, held: make(map[string]refdb.Value)}
	for _, ref := range lock.Refs() {
		if g.held[ref], err = lock.Value(ref); err != nil {
			panic(err) // a lock has its own refs
		}
	}
	for range w.Rand.IntN(3) {
		g.move(func(u []refdb.Update) error { return lock.Update(ctx, u) })
	}
	w.wait(ctx, w.Hold)
	if w.Rand.IntN(2) == 0 { // past its own lock
		g.move(func(u []refdb.Update) error { return w.Client.Update(ctx, project, u) })
	}
	if w.Rand.IntN(4) == 0 { // under another owner's name
		fence := refdb.Under("somebody/else", lock.Token(), lock.Refs()...)
		g.move(func(u []refdb.Update) error { return w.Client.Update(ctx, project, u, fence) })
	}
	if w.Rand.IntN(2) == 0 {
		g.move(func(u []refdb.Update) error { return lock.UpdateAndRelease(ctx, u) })
	}
	_ = lock.Release(ctx)
	if w.Rand.IntN(2) == 0 { // too late
		fence := refdb.Under(lock.Owner(), lock.Token(), lock.Refs()...)
		g.move(func(u []refdb.Update) error { return w.Client.Update(ctx, project, u, fence) })
	}
}

// guarded is the values that a holder knows its refs to have.
type guarded struct {
	w    *Workload
	held map[string]refdb.Value
}

// move moves all of the refs, if that is allowed.
func (g *guarded) move(update func([]refdb.Update) error) {
	var updates []refdb.Update
	for _, ref := range slices.Sorted(maps.Keys(g.held)) {
		updates = append(updates, refdb.Update{Ref: ref, Old: g.held[ref], New: g.w.value()})
	}
	if update(updates) != nil {
		return
	}
	for _, u := range updates {
		g.held[u.Ref] = stored(u)
	}
}
