// Package workqueue hands out work by key: each key to one worker at a time, the key that has
// waited longest first. A key whose work has failed waits longer after each failure, and delays no
// other key.
package workqueue

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/site/internal/broadcast"
)

// never is a pause that outlasts the process.
const never = 100 * 365 * 24 * time.Hour

// A Queue hands out work of type W.
type Queue[W any] struct {
	merge       func(W, W) W
	first, soon time.Duration

	mu       sync.Mutex
	items    map[string]*item[W]
	arrivals uint64
	changed  broadcast.Broadcast // when a key may be handed out
}

type item[W any] struct {
	work      W    // of nothing unless it is waiting
	waiting   bool // it has work that no worker has
	busy      bool // a worker has the key, or a holder
	arrival   uint64
	notBefore time.Time
	pause     time.Duration // the last one after a failure
}

// New returns an empty queue. Merge combines the work that a key has, possibly the zero W, with
// more work. First is the pause after a key's first failure; each further failure doubles it. New
// work shortens the pause to soon.
func New[W any](merge func(W, W) W, first, soon time.Duration) *Queue[W] {
	return &Queue[W]{merge: merge, first: first, soon: soon, items: map[string]*item[W]{}}
}

// Put adds work for a key.
func (q *Queue[W]) Put(key string, w W) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := q.item(key)
	q.add(i, w)
	if soon := time.Now().Add(q.soon); i.notBefore.After(soon) {
		i.notBefore = soon
	}
}

// item returns the item of a key. q.mu is held, as for all lower-case methods.
func (q *Queue[W]) item(key string) *item[W] {
	i := q.items[key]
	if i == nil {
		i = &item[W]{}
		q.items[key] = i
	}
	return i
}

func (q *Queue[W]) add(i *item[W], w W) {
	if !i.waiting {
		q.arrivals++
		i.arrival, i.waiting = q.arrivals, true
	}
	i.work = q.merge(i.work, w)
	q.changed.Send()
}

// Next waits for a key with work, until ctx ends, and hands it out: its work ends with
// [Queue.Done], [Queue.Again] or [Queue.Later].
func (q *Queue[W]) Next(ctx context.Context) (key string, w W, ok bool) {
	for ctx.Err() == nil {
		q.mu.Lock()
		key, w, wait, ok := q.try()
		if ok {
			q.mu.Unlock()
			return key, w, true
		}
		changed := q.changed.Wait()
		q.mu.Unlock()
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
	return "", w, false
}

// Try is [Queue.Next] without waiting. If there is no key to hand out, it returns how long there
// will be none unless work is added.
func (q *Queue[W]) Try() (key string, w W, wait time.Duration, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.try()
}

func (q *Queue[W]) try() (key string, w W, wait time.Duration, ok bool) {
	wait = never
	now := time.Now()
	var first *item[W]
	for k, i := range q.items {
		switch left := i.notBefore.Sub(now); {
		case i.busy || !i.waiting:
		case left > 0:
			wait = min(wait, left)
		case first == nil || i.arrival < first.arrival:
			key, first = k, i
		}
	}
	if first == nil {
		return "", w, wait, false
	}
	w = first.work
	*first = item[W]{busy: true, notBefore: first.notBefore, pause: first.pause}
	return key, w, 0, true
}

// Done ends the work on a key. It succeeded: new work does not wait.
func (q *Queue[W]) Done(key string) {
	q.end(key, func(i *item[W]) { i.pause, i.notBefore = 0, time.Time{} })
}

// Again ends the work on a key: w is left, and tried again after a pause, of at most last.
func (q *Queue[W]) Again(key string, w W, last time.Duration) {
	q.end(key, func(i *item[W]) {
		i.pause = min(max(2*i.pause, q.first), last)
		i.notBefore = time.Now().Add(i.pause)
		q.add(i, w)
	})
}

// Later ends the work on a key: w is left, and due after some time. That is no failure.
func (q *Queue[W]) Later(key string, w W, after time.Duration) {
	q.end(key, func(i *item[W]) {
		i.notBefore = time.Now().Add(after)
		q.add(i, w)
	})
}

func (q *Queue[W]) end(key string, how func(*item[W])) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := q.items[key]
	i.busy = false
	how(i)
	q.tidy(key, i)
}

// tidy forgets a key that has no work.
func (q *Queue[W]) tidy(key string, i *item[W]) {
	if !i.busy && !i.waiting {
		delete(q.items, key)
	}
	q.changed.Send()
}

// Drop removes the work of a key, unless a worker has it.
func (q *Queue[W]) Drop(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := q.items[key]; i != nil {
		var nothing W
		i.work, i.waiting = nothing, false
		q.tidy(key, i)
	}
}

// Hold waits until no worker has a key, and keeps workers from it until [Queue.Release].
func (q *Queue[W]) Hold(ctx context.Context, key string) error {
	for {
		q.mu.Lock()
		i := q.item(key)
		if !i.busy {
			i.busy = true
			q.mu.Unlock()
			return nil
		}
		changed := q.changed.Wait()
		q.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Release ends a [Queue.Hold].
func (q *Queue[W]) Release(key string) {
	q.end(key, func(*item[W]) {})
}

// Keys returns the keys that have work or are handed out or held, in order.
func (q *Queue[W]) Keys() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Sorted(maps.Keys(q.items))
}

// Len returns the number of these keys.
func (q *Queue[W]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items)
}
