package lifecycle

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/internal/workqueue"
	"github.com/globalrefdb/globalrefdb/site/packs"
)

const (
	// taskAgainFirst and taskAgainLast are the pauses after a project's task has failed.
	taskAgainFirst = time.Second
	taskAgainLast  = 5 * time.Minute
	// taskWaitsLast is the longest pause of a task that waits for something.
	taskWaitsLast = 30 * time.Second
)

// projectTasks are the projects about which something has to be done, one after the other.
type projectTasks struct {
	queue *workqueue.Queue[struct{}]
	woken chan struct{} // has an item if rows have changed

	mu      sync.Mutex
	changed []string // projects whose rows have changed
	failed  map[string]failedTask
}

// A failedTask says why a project's task failed last.
type failedTask struct {
	reason string
	pack   string    // that can't be unpacked, if that is why
	since  time.Time // of the first failure
}

func newProjectTasks() *projectTasks {
	either := func(struct{}, struct{}) struct{} { return struct{}{} }
	return &projectTasks{
		queue: workqueue.New(either, taskAgainFirst, taskAgainLast), woken: make(chan struct{}, 1), failed: map[string]failedTask{},
	}
}

// rowsChanged says which projects' rows have changed.
func (l *projectTasks) rowsChanged(names []string) {
	if len(names) == 0 {
		return
	}
	l.mu.Lock()
	l.changed = append(l.changed, names...)
	l.mu.Unlock()
	select {
	case l.woken <- struct{}{}:
	default:
	}
}

// takeChanged returns the projects whose rows have changed since it was called last.
func (l *projectTasks) takeChanged() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	changed := l.changed
	l.changed = nil
	return changed
}

// failures returns the projects whose tasks have failed, and why, in order.
func (l *projectTasks) failures() (all []client.Behind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for project, f := range l.failed {
		all = append(all, client.Behind{Project: project, Reason: f.reason, Pack: f.pack, Age: time.Since(f.since).Seconds()})
	}
	slices.SortFunc(all, func(a, b client.Behind) int { return strings.Compare(a.Project, b.Project) })
	return all
}

// set adds a project that has a task, unless it is there, or removes one that has none.
func (l *projectTasks) set(project string, task bool) {
	if task {
		l.queue.Put(project, struct{}{})
	} else {
		l.queue.Drop(project)
		l.forget(project)
	}
}

// forget forgets that a project's task has failed.
func (l *projectTasks) forget(project string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.failed, project)
}

// done ends the task of a project.
func (l *projectTasks) done(project string) {
	l.queue.Done(project)
	l.forget(project)
}

// wait has a task tried again, later and later. Nothing is wrong.
func (l *projectTasks) wait(project string) {
	l.queue.Again(project, struct{}{}, taskWaitsLast)
	l.forget(project)
}

// later has a task tried again after some time.
func (l *projectTasks) later(project string, after time.Duration) {
	l.queue.Later(project, struct{}{}, after)
}

// fail records that a task has failed for a reason with an error. It is tried again, later and
// later.
func (l *projectTasks) fail(project, reason string, err error) {
	l.queue.Again(project, struct{}{}, taskAgainLast)
	l.mu.Lock()
	defer l.mu.Unlock()
	since := time.Now()
	if f, failing := l.failed[project]; failing {
		since = f.since
	}
	l.failed[project] = failedTask{reason, packs.HeldBy(err), since}
}

// run does the tasks until ctx ends. Consider adds and removes projects: it is called with the
// projects whose rows have changed, and periodically with all. Do tries one task, and then calls
// done, wait, later or fail.
func (l *projectTasks) run(ctx context.Context, allEvery time.Duration, all func() []string, consider func([]string), do func(project string)) {
	for full := time.Now(); ctx.Err() == nil; {
		if !time.Now().Before(full) {
			consider(all())
			full = time.Now().Add(allEvery)
		}
		project, _, wait, ok := l.queue.Try()
		if ok {
			do(project)
			continue
		}
		select {
		case <-l.woken:
			consider(l.takeChanged())
		case <-time.After(min(wait, time.Until(full))):
		case <-ctx.Done():
		}
	}
}
