package follow

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/broadcast"
)

// work is what is to be looked at in one repository.
type work struct {
	all    bool
	refs   map[string]bool
	reason string // why refs are left
	// missing: the last attempt lacked objects of some.
	missing bool
	// unplaced is how many refs git refused to move in the last attempt.
	unplaced int
}

func (w work) empty() bool { return !w.all && len(w.refs) == 0 }

func (w *work) add(ref, reason string) {
	if w.refs == nil {
		w.refs = map[string]bool{}
	}
	w.refs[ref] = true
	w.reason = reason
}

func (w *work) merge(other work) {
	w.all, w.missing = w.all || other.all, w.missing || other.missing
	for ref := range other.refs {
		w.add(ref, other.reason)
	}
	if len(w.refs) > maxRefs {
		w.all, w.refs = true, nil
	}
}

// maxRefs is how many refs of a repository are kept apart; if more change, all are compared.
const maxRefs = 10_000

// guarded returns those of the refs that c guards, in order.
func (w work) guarded(c *config.Config, project string) []string {
	refs := slices.Sorted(maps.Keys(w.refs))
	return slices.DeleteFunc(refs, func(ref string) bool { return !c.Guards(project, ref) })
}

// A queue hands out the repositories that have work, each to one worker at a time, those that wait longest first. One that
// failed waits longer and longer.
type queue struct {
	mu       sync.Mutex
	items    map[string]*item
	arrivals uint64
	changed  broadcast.Broadcast // when there may be work
}

type item struct {
	work
	since     uint64 // its place in the order of arrivals
	notBefore time.Time
	pause     time.Duration // after the next failure
	busy      bool          // a worker has it, or who called take
}

func newQueue() *queue { return &queue{items: map[string]*item{}} }

func (q *queue) add(project string, refs ...string) {
	w := work{}
	for _, ref := range refs {
		w.add(ref, "")
	}
	q.put(project, w)
}

func (q *queue) addAll(project string) { q.put(project, work{all: true}) }

func (q *queue) put(project string, w work) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := q.items[project]
	if i == nil {
		i = &item{}
		q.items[project] = i
	}
	if i.empty() {
		q.arrivals++
		i.since = q.arrivals
	}
	i.merge(w)
	if soon := time.Now().Add(retryNew); i.notBefore.After(soon) {
		i.notBefore = soon
	}
	q.changed.Send()
}

// next waits for a repository with work, until ctx ends.
func (q *queue) next(ctx context.Context) (project string, w work, ok bool) {
	for {
		q.mu.Lock()
		project, wait := q.pick()
		if project != "" {
			i := q.items[project]
			w, i.work = i.work, work{}
			i.busy = true
			q.mu.Unlock()
			return project, w, true
		}
		changed := q.changed.Wait()
		q.mu.Unlock()
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return "", work{}, false
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// pick returns the project to take next; "" if there is none, and after how long to look again. q.mu is held.
func (q *queue) pick() (project string, wait time.Duration) {
	wait = time.Hour
	now := time.Now()
	for name, i := range q.items {
		switch left := i.notBefore.Sub(now); {
		case i.busy || i.empty():
		case left > 0:
			wait = min(wait, left)
		case project == "" || i.since < q.items[project].since:
			project = name
		}
	}
	return project, wait
}

// take waits until no worker has the project, and keeps it from them until give.
func (q *queue) take(ctx context.Context, project string) error {
	for {
		q.mu.Lock()
		i := q.items[project]
		if i == nil {
			i = &item{}
			q.items[project] = i
		}
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

// give lets workers have the project that take returned.
func (q *queue) give(project string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := q.items[project]
	if i.busy = false; i.empty() {
		delete(q.items, project)
	}
	q.changed.Send()
}

// done puts back what is left of the work that next returned.
func (q *queue) done(project string, again work) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := q.items[project]
	i.busy = false
	if again.empty() {
		i.pause, i.notBefore = 0, time.Time{}
	} else {
		i.pause = min(max(2*i.pause, retryFirst), retryLast)
		i.notBefore = time.Now().Add(i.pause)
		if i.empty() {
			q.arrivals++
			i.since = q.arrivals
		}
		i.merge(again)
	}
	if i.empty() {
		delete(q.items, project)
	}
	q.changed.Send()
}

func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items)
}

// projects returns the projects that have work, or are being worked on.
func (q *queue) projects() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Sorted(maps.Keys(q.items))
}
