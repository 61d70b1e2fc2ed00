package lifecycle

import (
	"context"
	"errors"
	"slices"
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

// run runs tasks, by their projects. It returns when each was done, since the start, and how often all projects were considered.
func run(t *testing.T, l *projectTasks, wanted map[string]bool, do func(project string)) (done *[]time.Duration, full *int) {
	t.Helper()
	done, full = new([]time.Duration), new(int)
	began := time.Now()
	all := func() []string {
		*full++
		return []string{"a", "b"}
	}
	consider := func(projects []string) {
		for _, project := range projects {
			l.set(project, wanted[project])
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.run(ctx, time.Hour, all, consider, func(project string) {
			*done = append(*done, time.Since(began))
			do(project)
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return done, full
}

// passes lets time pass, and then everybody wait.
func passes(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestATaskThatFailsIsTriedLaterAndLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newProjectTasks()
		wanted := map[string]bool{"a": true}
		done, full := run(t, l, wanted, func(project string) { l.fail(project, "it is broken", errors.New("x")) })
		passes(8 * time.Second)
		if want := []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second}; !slices.Equal(*done, want) {
			t.Errorf("it was tried at %v, want %v", *done, want)
		}
		all := l.failures()
		if len(all) != 1 || all[0].Project != "a" || all[0].Reason != "it is broken" || all[0].Age != 8 {
			t.Errorf("failures are %+v", all)
		}
		passes(50 * time.Minute)
		*done = nil
		passes(30 * time.Minute)
		if n := len(*done); n != 6 {
			t.Errorf("in half an hour it was tried %d times, want every five minutes", n)
		}
		if *full != 2 {
			t.Errorf("all were considered %d times, want each hour", *full)
		}
		wanted["a"] = false
		l.rowsChanged([]string{"a"})
		synctest.Wait()
		*done = nil
		passes(time.Hour)
		if len(*done) > 0 || len(l.failures()) > 0 {
			t.Errorf("nothing is to be done about it any more: tried at %v, failures %+v", *done, l.failures())
		}
	})
}

func TestATaskThatWaitsHasNotFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newProjectTasks()
		fails := true
		done, _ := run(t, l, map[string]bool{"a": true}, func(project string) {
			if fails {
				l.fail(project, "it is broken", errors.New("x"))
			} else {
				l.wait(project)
			}
		})
		passes(30 * time.Minute)
		fails = false
		passes(5 * time.Minute)
		if all := l.failures(); len(all) > 0 {
			t.Errorf("failures are %+v", all)
		}
		*done = nil
		passes(5 * time.Minute)
		if n := len(*done); n != 10 {
			t.Errorf("in five minutes it was tried %d times, want every 30 seconds", n)
		}
	})
}

func TestATaskThatIsDueLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newProjectTasks()
		wanted := map[string]bool{}
		tried := 0
		done, _ := run(t, l, wanted, func(project string) {
			if tried++; tried == 1 {
				l.later(project, 2*time.Minute)
			} else {
				l.done(project)
			}
		})
		passes(time.Minute)
		wanted["b"] = true
		l.rowsChanged([]string{"b", "a"})
		passes(30 * time.Minute)
		if want := []time.Duration{time.Minute, 3 * time.Minute}; !slices.Equal(*done, want) {
			t.Errorf("it was tried at %v, want %v", *done, want)
		}
		passes(time.Hour) // it is wanted still
		if len(*done) != 3 {
			t.Errorf("it was tried at %v", *done)
		}
	})
}
