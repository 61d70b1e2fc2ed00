package follow

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func taken(t *testing.T, q *queue) (string, work) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	project, w, ok := q.next(ctx)
	if !ok {
		t.Fatal("nothing to do")
	}
	return project, w
}

func idle(t *testing.T, q *queue, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if project, _, ok := q.next(ctx); ok || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Errorf("%s is handed out", project)
	}
}

func TestRepositoriesAreServedInTheOrderOfArrival(t *testing.T) {
	q := newQueue()
	q.add("b", "refs/heads/1")
	q.add("a", "refs/heads/1")
	q.add("b", "refs/heads/2")
	project, w := taken(t, q)
	if refs := slices.Sorted(maps.Keys(w.refs)); project != "b" || !slices.Equal(refs, []string{"refs/heads/1", "refs/heads/2"}) {
		t.Errorf("%s: %v", project, refs)
	}
	if project, _ := taken(t, q); project != "a" {
		t.Error(project)
	}
}

func TestARepositoryIsWithOneWorkerAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.add("a", "refs/heads/1")
		taken(t, q)
		q.add("a", "refs/heads/2")
		idle(t, q, time.Minute)
		q.done("a", work{})
		if project, w := taken(t, q); project != "a" || len(w.refs) != 1 || !w.refs["refs/heads/2"] {
			t.Errorf("%s: %+v", project, w)
		}
		q.done("a", work{})
		if n := q.len(); n != 0 {
			t.Errorf("%d left", n)
		}
	})
}

// A repository that fails waits longer and longer, and holds up no other.
func TestWhatFailsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.addAll("bad")
		for pause := retryFirst; pause < 4*retryLast; pause *= 2 {
			began := time.Now()
			_, w := taken(t, q)
			if waited := time.Since(began); waited > retryLast {
				t.Errorf("waited %s", waited)
			}
			q.add("good", "refs/heads/1")
			if project, _ := taken(t, q); project != "good" {
				t.Errorf("%s goes first", project)
			}
			q.done("good", work{})
			q.done("bad", w)
			idle(t, q, min(pause, retryLast)-time.Millisecond)
		}
		// Something new is a reason to try soon.
		q.add("bad", "refs/heads/new")
		began := time.Now()
		taken(t, q)
		if waited := time.Since(began); waited > retryNew {
			t.Errorf("waited %s after a change", waited)
		}
		q.done("bad", work{})
		q.add("bad", "refs/heads/1")
		began = time.Now()
		taken(t, q)
		if time.Since(began) > 0 {
			t.Error("a repository that was brought up waits")
		}
	})
}

func TestManyRefsAreAllRefs(t *testing.T) {
	q := newQueue()
	for i := range maxRefs + 1 {
		q.add("a", "refs/heads/"+string(rune('a'+i%26))+time.Duration(i).String())
	}
	if _, w := taken(t, q); !w.all || len(w.refs) > 0 {
		t.Errorf("all: %v, %d refs", w.all, len(w.refs))
	}
}
