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
	// taskAgainFirst and taskAgainLast bound the back-off after a project's task has failed.
	taskAgainFirst = time.Second
	taskAgainLast  = 5 * time.Minute
	// taskWaitsLast is the longest pause of a task that waits for an event.
	taskWaitsLast = 30 * time.Second
)

// projectTasks is a queue of projects with a pending task. Tasks run one at a time.
type projectTasks struct {
	queue *workqueue.Queue[struct{}]
	woken chan struct{} // receives an item when rows have changed

	mu      sync.Mutex
	changed []string // projects whose rows have changed
	failed  map[string]failedTask
}

// A failedTask is the last failure of a project's task.
type failedTask struct {
	reason string
	pack   string    // the pack that can't be unpacked, if that is the reason
	since  time.Time // of the first failure
}

func newProjectTasks() *projectTasks {
	either := func(struct{}, struct{}) struct{} { return struct{}{} }
	return &projectTasks{
		queue: workqueue.New(either, taskAgainFirst, taskAgainLast), woken: make(chan struct{}, 1), failed: map[string]failedTask{},
	}
}

// rowsChanged reports that the rows of these projects have changed.
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

// takeChanged returns the projects whose rows have changed since the last call.
func (l *projectTasks) takeChanged() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	changed := l.changed
	l.changed = nil
	return changed
}

// failures returns the projects whose tasks have failed, sorted by name, with the reasons.
func (l *projectTasks) failures() (all []client.Behind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for project, f := range l.failed {
		all = append(all, client.Behind{Project: project, Reason: f.reason, Pack: f.pack, Age: time.Since(f.since).Seconds()})
	}
	slices.SortFunc(all, func(a, b client.Behind) int { return strings.Compare(a.Project, b.Project) })
	return all
}

// set adds the task of a project, unless it is already queued, or removes it.
func (l *projectTasks) set(project string, task bool) {
	if task {
		l.queue.Put(project, struct{}{})
	} else {
		l.queue.Drop(project)
		l.forget(project)
	}
}

// forget clears the failure of a project's task.
func (l *projectTasks) forget(project string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.failed, project)
}

// done completes the task of a project.
func (l *projectTasks) done(project string) {
	l.queue.Done(project)
	l.forget(project)
}

// wait retries a task with back-off. Waiting is not a failure.
func (l *projectTasks) wait(project string) {
	l.queue.Again(project, struct{}{}, taskWaitsLast)
	l.forget(project)
}

// later retries a task after some time.
func (l *projectTasks) later(project string, after time.Duration) {
	l.queue.Later(project, struct{}{}, after)
}

// fail records that a task has failed for a reason with an error, and retries the task with
// back-off.
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

// run runs the tasks until ctx ends. Consider adds and removes tasks: it is called with the
// projects whose rows have changed, and periodically with all projects. Do tries one task, and then
// calls done, wait, later or fail.
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
