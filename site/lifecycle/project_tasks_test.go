package lifecycle

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A process that reports changed rows waits for nobody, however many report some and whether or not the tasks still run.
func TestAReportOfChangedRowsWaitsForNobody(t *testing.T) {
	l := newProjectTasks()
	for _, names := range [][]string{{"a"}, nil, {"b", "c"}, {"a"}} {
		l.rowsChanged(names)
	}
	<-l.woken
	if got := l.takeChanged(); !slices.Equal(got, []string{"a", "b", "c", "a"}) {
		t.Error(got)
	}
	if got := l.takeChanged(); len(got) > 0 {
		t.Errorf("once more: %v", got)
	}
}

// A tasksRun runs the tasks of a test.
type tasksRun struct {
	tasks *projectTasks

	mu     sync.Mutex
	wanted map[string]bool // the projects that have a task
	do     func(project string)
	began  time.Time
	tried  []time.Duration // when tasks were tried, since the start
	full   int             // how often all projects were considered
}

func runTasks(t *testing.T, wanted map[string]bool, do func(l *projectTasks, project string)) *tasksRun {
	t.Helper()
	l := newProjectTasks()
	r := &tasksRun{tasks: l, wanted: wanted, do: func(project string) { do(l, project) }, began: time.Now()}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.run(ctx, time.Hour, r.all, r.consider, r.try)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return r
}

func (r *tasksRun) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.full++
	return []string{"a", "b"}
}

func (r *tasksRun) consider(projects []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, project := range projects {
		r.tasks.set(project, r.wanted[project])
	}
}

func (r *tasksRun) try(project string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tried = append(r.tried, time.Since(r.began))
	r.do(project)
}

// passes lets time pass, and then all wait. It returns when tasks were tried meanwhile.
func (r *tasksRun) passes(d time.Duration) (tried []time.Duration) {
	time.Sleep(d)
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	tried, r.tried = r.tried, nil
	return tried
}

// change changes whether a project has a task, and reports that its row has changed.
func (r *tasksRun) change(project string, wanted bool) {
	r.mu.Lock()
	r.wanted[project] = wanted
	r.mu.Unlock()
	r.tasks.rowsChanged([]string{project})
}

func TestATaskThatFailsIsTriedLaterAndLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := runTasks(t, map[string]bool{"a": true}, func(l *projectTasks, project string) {
			l.fail(project, "it is broken", errors.New("x"))
		})
		tried := r.passes(8 * time.Second)
		if want := []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second}; !slices.Equal(tried, want) {
			t.Errorf("it was tried at %v, want %v", tried, want)
		}
		all := r.tasks.failures()
		if len(all) != 1 || all[0].Project != "a" || all[0].Reason != "it is broken" || all[0].Age != 8 {
			t.Errorf("failures are %+v", all)
		}
		r.passes(50 * time.Minute)
		if tried := r.passes(30 * time.Minute); len(tried) != 6 {
			t.Errorf("in half an hour it was tried at %v, want every five minutes", tried)
		}
		if r.full != 2 {
			t.Errorf("all were considered %d times, want each hour", r.full)
		}
		r.change("a", false)
		if tried := r.passes(time.Hour); len(tried) > 0 || len(r.tasks.failures()) > 0 {
			t.Errorf("nothing is to be done about it any more: tried at %v, failures %+v", tried, r.tasks.failures())
		}
	})
}

func TestATaskThatWaitsHasNotFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := runTasks(t, map[string]bool{"a": true}, func(l *projectTasks, project string) {
			l.fail(project, "it is broken", errors.New("x"))
		})
		r.passes(30 * time.Minute)
		r.mu.Lock()
		r.do = r.tasks.wait
		r.mu.Unlock()
		r.passes(5 * time.Minute)
		if all := r.tasks.failures(); len(all) > 0 {
			t.Errorf("failures are %+v", all)
		}
		if tried := r.passes(5 * time.Minute); len(tried) != 10 {
			t.Errorf("in five minutes it was tried at %v, want every 30 seconds", tried)
		}
	})
}

func TestATaskThatIsDueLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tried := 0
		r := runTasks(t, map[string]bool{}, func(l *projectTasks, project string) {
			if tried++; tried == 1 {
				l.later(project, 2*time.Minute)
			} else {
				l.done(project)
			}
		})
		r.passes(time.Minute)
		r.change("b", true)
		if tried, want := r.passes(30*time.Minute), []time.Duration{time.Minute, 3 * time.Minute}; !slices.Equal(tried, want) {
			t.Errorf("it was tried at %v, want %v", tried, want)
		}
		if tried := r.passes(time.Hour); len(tried) != 1 { // it is wanted still
			t.Errorf("it was tried at %v, want once", tried)
		}
	})
}
