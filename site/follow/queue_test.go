package follow

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func taken(t *testing.T, q *queue) (string, work) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	project, w, ok := q.Next(ctx)
	if !ok {
		t.Fatal("nothing to do")
	}
	return project, w
}

func idle(t *testing.T, q *queue, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if project, _, ok := q.Next(ctx); ok || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Errorf("%s is handed out", project)
	}
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

// A repository in which others hold a lock file that every move needs is tried again soon, however
// often that has failed: each attempt waits for the file.
func TestABusyRepositoryIsTriedAgainSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.add("a", "refs/heads/x")
		for range 20 {
			began := time.Now()
			_, w := taken(t, q)
			if waited := time.Since(began); waited > retryNew {
				t.Fatalf("waited %s", waited)
			}
			w.held = true
			q.done("a", w)
		}
	})
}

func TestManyRefsAreAllRefs(t *testing.T) {
	var refs []string
	for i := range maxRefs + 1 {
		refs = append(refs, fmt.Sprint("refs/heads/", i))
	}
	for name, add := range map[string]func(q *queue){
		"one by one": func(q *queue) {
			for _, ref := range refs {
				q.add("a", ref)
			}
		},
		"at once": func(q *queue) { q.add("a", refs...) },
	} {
		q := newQueue()
		if add(q); q.Len() != 1 {
			t.Errorf("%s: %d projects", name, q.Len())
		}
		if _, w := taken(t, q); !w.all || len(w.refs) > 0 {
			t.Errorf("%s: all: %v, %d refs", name, w.all, len(w.refs))
		}
	}
}
