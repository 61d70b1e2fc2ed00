package lifecycle

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/packs"
)

const (
	// taskAgainFirst and taskAgainLast are the pauses after a project's task has failed.
	taskAgainFirst = time.Second
	taskAgainLast  = 5 * time.Minute
	// taskWaitsLast is the longest pause of a task that waits for something.
	taskWaitsLast = 30 * time.Second
)

// projectTasks are projects that something is to be done about, one after the other.
type projectTasks struct {
	woken chan struct{} // has an item if rows have changed

	mu      sync.Mutex
	changed []string // projects whose rows have changed
	tasks   map[string]*projectTask
}

type projectTask struct {
	reason string // of the last failure; "" if it was not tried
	pack   string // that can't be unpacked, if that is why
	since  time.Time
	pause  time.Duration // after the next failure
	next   time.Time     // when to try
}

func newProjectTasks() *projectTasks {
	return &projectTasks{woken: make(chan struct{}, 1), tasks: map[string]*projectTask{}}
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
	for project, t := range l.tasks {
		if t.reason != "" {
			all = append(all, client.Behind{Project: project, Reason: t.reason, Pack: t.pack, Age: time.Since(t.since).Seconds()})
		}
	}
	slices.SortFunc(all, func(a, b client.Behind) int { return strings.Compare(a.Project, b.Project) })
	return all
}

// add adds a project, unless it is there.
func (l *projectTasks) add(project string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tasks[project] == nil {
		l.tasks[project] = &projectTask{pause: taskAgainFirst, next: time.Now()}
	}
}

// remove removes a project about which nothing is to be done.
func (l *projectTasks) remove(project string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.tasks, project)
}

// next returns the project to try now, the one that has waited longest; "" if there is none, and for how long there is none, at most
// the limit.
func (l *projectTasks) next(limit time.Duration) (project string, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wait = limit
	for name, t := range l.tasks {
		if left := time.Until(t.next); left > 0 {
			wait = min(wait, left)
		} else if project == "" || t.next.Before(l.tasks[project].next) {
			project = name
		}
	}
	return project, wait
}

// later lets a task be tried after a while.
func (l *projectTasks) later(project string, after time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tasks[project].next = time.Now().Add(after)
}

// waits lets a task be tried again, later and later. Nothing is wrong.
func (l *projectTasks) waits(project string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tasks[project]
	t.reason, t.pack, t.next, t.pause = "", "", time.Now().Add(t.pause), min(2*t.pause, taskWaitsLast)
}

// failed records that a task has failed for a reason with an error. It is tried again later and later.
func (l *projectTasks) failed(project, reason string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tasks[project]
	if t.reason == "" {
		t.since = time.Now()
	}
	t.reason, t.pack = reason, packs.HeldBy(err)
	t.next = time.Now().Add(t.pause)
	t.pause = min(2*t.pause, taskAgainLast)
}

// run does the tasks until ctx ends. Consider adds and removes projects: it is called with those whose rows have changed, and with
// all every so often. Do tries one, and then removes it or records its failure.
func (l *projectTasks) run(ctx context.Context, allEvery time.Duration, all func() []string, consider func([]string), do func(project string)) {
	for full := time.Now(); ctx.Err() == nil; {
		if !time.Now().Before(full) {
			consider(all())
			full = time.Now().Add(allEvery)
		}
		project, wait := l.next(allEvery)
		if project != "" {
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
