package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	// Workers of a site. Slow ones hold their locks for seconds.
	quickWorkers = 6
	slowWorkers  = 2
	quickRefs    = 12
	slowRefs     = 3

	// opLimit limits an operation, and so the wait for a lock.
	opLimit = 4 * time.Second
	// shortLimit limits a few operations, so that callers give up at any point.
	shortLimit = 20 * time.Millisecond
)

func quickRef(i int) string { return fmt.Sprintf("refs/heads/quick-%02d", i) }
func slowRef(i int) string  { return fmt.Sprintf("refs/heads/slow-%d", i) }

// allRefs are the refs that the sites share.
func allRefs() (refs []string) {
	for i := range quickRefs {
		refs = append(refs, quickRef(i))
	}
	for i := range slowRefs {
		refs = append(refs, slowRef(i))
	}
	return refs
}

// A worker does one operation after the other.
type worker struct {
	*site
	random *rand.Rand
}

func (w *worker) run(ctx context.Context, slow bool) {
	for ctx.Err() == nil {
		w.work.RLock()
		if slow {
			w.holdLong(ctx)
		} else {
			w.quick(ctx)
		}
		w.work.RUnlock()
		sleep(ctx, w.Pause/2+w.upTo(w.Pause))
	}
}

// quick does one short operation.
func (w *worker) quick(ctx context.Context) {
	limit := opLimit
	if w.random.IntN(50) == 0 {
		limit = w.upTo(shortLimit)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	switch dice := w.random.IntN(100); {
	case dice < 30:
		w.section(ctx, w.pick(1), false, w.upTo(20*time.Millisecond))
	case dice < 50:
		w.section(ctx, w.pick(1), true, w.upTo(10*time.Millisecond))
	case dice < 55:
		w.section(ctx, w.pick(2+w.random.IntN(2)), true, w.upTo(10*time.Millisecond))
	case dice < 60:
		w.section(ctx, w.pickAny(2+w.random.IntN(2)), false, w.upTo(10*time.Millisecond))
	case dice < 88:
		w.unfenced(ctx, w.pickAny(1))
	default:
		w.unfenced(ctx, w.pickAny(2+w.random.IntN(3)))
	}
}

// pick returns n different quick refs.
func (w *worker) pick(n int) []string {
	refs := make([]string, n)
	for i, k := range w.random.Perm(quickRefs)[:n] {
		refs[i] = quickRef(k)
	}
	return refs
}

// pickAny returns n refs, now and then with a slow one among them. It is not for
// calls that wait: everyone who queues behind them for a quick ref would wait as long.
func (w *worker) pickAny(n int) []string {
	refs := w.pick(n)
	if w.random.IntN(8) == 0 {
		refs[0] = slowRef(w.random.IntN(slowRefs))
	}
	return refs
}

// unfenced reads refs and moves them without a lock.
func (w *worker) unfenced(ctx context.Context, refs []string) {
	from := now()
	rows, err := w.db.GetAll(ctx, project, refs...)
	if err != nil {
		return
	}
	values := make(map[string]refdb.Value)
	for _, row := range rows {
		values[row.Name] = row.Value
		w.read(from, row.Name, row.Value)
	}
	w.update(refs, values, 0, func(u []refdb.Update) error { return w.db.Update(ctx, project, u) })
}

// read notes what a call returned. The call began at from.
func (w *worker) read(from instant, ref string, v refdb.Value) {
	w.journal.write(entry{Kind: got, From: from, T: now(), Refs: []string{ref}, Value: string(v)})
}

// update moves refs from the given values to values that were never written
// before. It reports whether the update is known to have happened, and sets values then.
func (w *worker) update(refs []string, values map[string]refdb.Value, token refdb.Token, send func([]refdb.Update) error) bool {
	id := w.id()
	var updates []refdb.Update
	var moves []move
	for i, ref := range refs {
		old, new := values[ref], refdb.Value(fmt.Sprintf("%s#%d", id, i))
		if old.IsAbsent() {
			return false // the nemesis creates all refs, and none is ever deleted
		}
		updates = append(updates, refdb.Update{Ref: ref, Old: old, New: new})
		moves = append(moves, move{ref, string(old), string(new)})
	}
	from := now()
	w.journal.write(entry{Kind: asked, T: from, ID: id, Moves: moves, Token: int64(token)})
	err := send(updates)
	answer := entry{Kind: answered, T: now(), ID: id, Outcome: accepted}
	var mismatch *refdb.MismatchError
	if err != nil {
		answer.Outcome, answer.Error = refused, err.Error()
		if refdb.ClassOf(err) == refdb.OutcomeUnknown {
			answer.Outcome = unknown
		} else if errors.As(err, &mismatch) {
			answer.Mismatch = true
			for _, m := range mismatch.Mismatches {
				w.read(from, m.Ref, m.Have)
			}
		}
	}
	w.journal.write(answer)
	if err != nil {
		return false
	}
	for _, u := range updates {
		values[u.Ref] = u.New
	}
	w.ops.Add(1)
	return true
}

// sleep waits for d or for the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// upTo returns a random time below d.
func (w *worker) upTo(d time.Duration) time.Duration {
	return time.Duration(w.random.Int64N(int64(d)))
}
