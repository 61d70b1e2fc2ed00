package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
	"github.com/globalrefdb/globalrefdb/refdb/operator"
)

// A world is a database, a journal and a log that the queues of a test share.
type world struct {
	*testing.T
	database *memory.Database
	journal  Journal
	log      *slog.Logger
}

// inBubble runs test in a bubble, in which leases do not end. No log of a queue may name a target.
func inBubble(t *testing.T, test func(*world)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) { inWorld(t, dir, test) })
}

func inWorld(t *testing.T, dir string, test func(*world)) {
	t.Helper()
	var log bytes.Buffer
	w := &world{T: t, database: memory.New(), journal: Journal(dir), log: slog.New(slog.NewTextHandler(&log, nil))}
	w.Cleanup(func() { // after all queues have been closed
		if strings.Contains(log.String(), "target-") {
			t.Errorf("a log names a target: %s", log.String())
		}
	})
	test(w)
}

// queue returns the queue of another process. script, unless nil, may fail its n-th fenced update.
func (w *world) queue(script func(n int) error) *Queue {
	w.Helper()
	return w.queueWith(refdb.Options{}, &scripted{Driver: w.database.Open(), script: script})
}

func (w *world) queueWith(o refdb.Options, d refdb.Driver) *Queue {
	w.Helper()
	o.Logger = w.log
	db, err := refdb.New(d, o)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { db.Close() })
	return &Queue{DB: db, Project: "work", Log: w.log}
}

// A scripted driver fails some updates under a lock instead of making them.
type scripted struct {
	refdb.Driver
	script func(n int) error
	mu     sync.Mutex
	n      int
}

func (s *scripted) Update(ctx context.Context, r driver.UpdateRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.script != nil && r.Fence != nil {
		s.n++
		if err := s.script(s.n); err != nil {
			return err
		}
	}
	return s.Driver.Update(ctx, r)
}

// A deaf driver does not reach the database with anything about the first lock, once that has made
// two updates.
type deaf struct {
	refdb.Driver
	mu      sync.Mutex
	first   refdb.Token
	updates int
}

func (d *deaf) Update(ctx context.Context, r driver.UpdateRequest) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.Fence != nil {
		d.updates++
		if d.updates == 1 {
			d.first = r.Fence.Token
		}
		if d.updates > 2 && r.Fence.Token == d.first {
			return refdb.ErrUnavailable
		}
	}
	return d.Driver.Update(ctx, r)
}

func (d *deaf) Beat(ctx context.Context, locks []driver.LockID) ([]driver.BeatResult, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.updates > 2 && locks[0].Token == d.first {
		return nil, refdb.ErrUnavailable
	}
	return d.Driver.Beat(ctx, locks)
}

func (d *deaf) Release(ctx context.Context, r driver.ReleaseRequest) (driver.Released, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.Token == d.first {
		return driver.Released{}, refdb.ErrUnavailable
	}
	return d.Driver.Release(ctx, r)
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// rows returns all rows of the project, deleted ones too.
func (w *world) rows(q *Queue) (rows []refdb.Ref) {
	w.Helper()
	for row, err := range q.DB.Refs(w.Context(), q.Project, "", refdb.IncludeDeleted()) {
		w.must(err)
		rows = append(rows, row)
	}
	return rows
}

// wants checks what a target's ref holds, and the steps in its journal.
func (w *world) wants(q *Queue, name string, want refdb.Value, steps int) {
	w.Helper()
	got, err := q.DB.Get(w.Context(), q.Project, prefix+name)
	w.must(err)
	if got != want {
		w.Errorf("%s holds %q, want %q", name, got, want)
	}
	text, err := os.ReadFile(filepath.Join(string(w.journal), name))
	if err != nil && steps > 0 {
		w.Fatal(err)
	}
	if err := inOrder(string(text), steps); err != nil {
		w.Errorf("%s: %v", name, err)
	}
}

// inOrder checks that a journal has steps 1 to n, once each, and that tokens do not become smaller.
func inOrder(journal string, n int) error {
	lines, last := 0, refdb.Token(0)
	for line := range strings.Lines(journal) {
		var step int
		var token refdb.Token
		if _, err := fmt.Sscanf(line, "%d %d\n", &step, &token); err != nil || step != lines+1 || token < last {
			return fmt.Errorf("line %d of the journal is %q, after token %d", lines+1, line, last)
		}
		lines, last = lines+1, token
	}
	if lines != n {
		return fmt.Errorf("%d steps in the journal, want %d", lines, n)
	}
	return nil
}

func TestSubmittingTwiceChangesNothing(t *testing.T) {
	inBubble(t, func(w *world) {
		q := w.queue(nil)
		w.must(q.Submit(w.Context(), "target-a", "target-b"))
		w.must(q.Run(w.Context(), workers, w.journal.Step))
		before := w.rows(q)
		time.Sleep(time.Second)
		w.must(q.Submit(w.Context(), "target-b", "target-c", "target-a", "target-c"))
		after := w.rows(q)
		if len(after) != 3 || !slices.Equal(after[:2], before) {
			w.Errorf("%v became %v", before, after)
		}
		w.wants(q, "target-c", "active", 0)
	})
}

func TestTwoThatSubmitTheSameAtOnceBothSucceed(t *testing.T) {
	inBubble(t, func(w *world) {
		names := make([]string, 2*chunk+1)
		for i := range names {
			names[i] = fmt.Sprintf("target-%05d", i)
		}
		var wg sync.WaitGroup
		for i := range 4 {
			q := w.queue(nil)
			wg.Go(func() {
				if err := q.Submit(w.Context(), names[i*chunk/4:]...); err != nil {
					w.Error(err)
				}
			})
		}
		wg.Wait()
		if got := len(w.rows(w.queue(nil))); got != len(names) {
			w.Errorf("%d rows, want %d", got, len(names))
		}
	})
}

func TestRowsGrowWithTargetsOnlyAndNoLockIsLeft(t *testing.T) {
	inBubble(t, func(w *world) {
		q := w.queue(nil)
		var names []string
		for i := range 40 {
			names = append(names, fmt.Sprint("target-", i))
		}
		w.must(q.Submit(w.Context(), names...))
		w.must(q.Run(w.Context(), workers, w.journal.Step))
		if got := len(w.rows(q)); got != len(names) {
			w.Errorf("%d rows of %d targets", got, len(names))
		}
		for lock, err := range q.DB.Locks(w.Context(), refdb.LockFilter{}) {
			w.Errorf("left over: %v, %v", lock, err)
		}
		for _, name := range names {
			w.wants(q, name, "done", steps)
		}
	})
}

func TestAnErrorOfTheDatabaseIsTreatedByItsClassAndNeverParks(t *testing.T) {
	third := func(err error) func(int) error {
		return func(n int) error {
			if n == 3 {
				return err
			}
			return nil
		}
	}
	outage := func(d time.Duration) func(int) error {
		var end time.Time
		return func(n int) error {
			if n == 3 {
				end = time.Now().Add(d)
			}
			if time.Now().Before(end) {
				return refdb.ErrUnavailable
			}
			return nil
		}
	}
	for name, c := range map[string]struct {
		script func(n int) error // of the first process
		called []string          // the frontiers that its steps had
		left   refdb.Value       // when its run has ended
		steps  int               // in the journal then
		want   error
	}{
		"retryable: again, under the same lock": {
			outage(10 * time.Second), []string{"", "1", "2", "3", "4"}, "done", 5, nil},
		"unknown outcome: stopped, claimed again, the step replayed": {
			third(refdb.ErrUnconfirmed), []string{"", "1", "2", "2", "3", "4"}, "done", 5, nil},
		"lost lock: stopped, claimed again, the step replayed": {
			third(&refdb.LostError{}), []string{"", "1", "2", "2", "3", "4"}, "done", 5, nil},
		"permanent: the run ends, the target is active": {
			third(refdb.ErrSchema), []string{"", "1", "2"}, "active 2", 3, refdb.ErrSchema},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				q := w.queue(c.script)
				w.must(q.Submit(w.Context(), "target-a"))
				var called []string
				err := q.Run(w.Context(), workers, func(ctx context.Context, claim Claim) (Progress, error) {
					called = append(called, claim.Frontier)
					return w.journal.Step(ctx, claim)
				})
				if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
					w.Errorf("the run ended with %v, want %v", err, c.want)
				}
				if !slices.Equal(called, c.called) {
					w.Errorf("steps were called at %q, want %q", called, c.called)
				}
				w.wants(q, "target-a", c.left, c.steps)
				w.must(w.queue(nil).Run(w.Context(), workers, w.journal.Step))
				w.wants(q, "target-a", "done", steps)
			})
		})
	}
}

func TestAnErrorThatLastsLongerThanTheLeaseStopsTheTarget(t *testing.T) {
	var called []string
	var tokens map[refdb.Token]bool
	want := []string{"", "1", "2", "2", "3", "4"}
	// On a slow machine other leases may end, too.
	for staleAfter := 500 * time.Millisecond; staleAfter < time.Minute; staleAfter *= 2 {
		called, tokens = nil, map[refdb.Token]bool{}
		inWorld(t, t.TempDir(), func(w *world) {
			q := w.queueWith(refdb.Options{StaleAfter: staleAfter}, &deaf{Driver: w.database.Open()})
			w.must(q.Submit(w.Context(), "target-a"))
			w.must(q.Run(w.Context(), workers, func(ctx context.Context, claim Claim) (Progress, error) {
				called, tokens[claim.Token] = append(called, claim.Frontier), true
				return w.journal.Step(ctx, claim)
			}))
			w.wants(q, "target-a", "done", steps)
		})
		if slices.Equal(called, want) && len(tokens) == 2 {
			return
		}
	}
	t.Errorf("steps were called at %q under %d locks, want %q under 2", called, len(tokens), want)
}

func TestOnlyAVerdictParks(t *testing.T) {
	errWork := errors.New("the work failed")
	for name, c := range map[string]struct {
		step Step
		left refdb.Value
		want error
	}{
		"a verdict": {func(context.Context, Claim) (Progress, error) {
			return Progress{Parked, "no such repository"}, nil
		}, "parked no such repository", nil},
		"an error": {func(context.Context, Claim) (Progress, error) { return Progress{}, errWork }, "active", errWork},
		"a frontier of 1,001 bytes": {func(context.Context, Claim) (Progress, error) {
			return Progress{Active, strings.Repeat("x", 1001)}, nil
		}, "active", refdb.ErrInvalid},
		"a reason of 1,000 bytes": {func(context.Context, Claim) (Progress, error) {
			return Progress{Parked, strings.Repeat("x", 1000)}, nil
		}, refdb.Value("parked " + strings.Repeat("x", 1000)), nil},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				q := w.queue(nil)
				w.must(q.Submit(w.Context(), "target-a"))
				if err := q.Run(w.Context(), workers, c.step); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
					w.Errorf("the run ended with %v, want %v", err, c.want)
				}
				w.wants(q, "target-a", c.left, 0)
			})
		})
	}
}

func TestACheckpointAheadOfTheJournalParks(t *testing.T) {
	inBubble(t, func(w *world) {
		q := w.queue(nil)
		w.must(q.Submit(w.Context(), "target-a"))
		w.must(q.DB.Update(w.Context(), q.Project, []refdb.Update{{Ref: prefix + "target-a", Old: "active", New: "active 3"}}))
		w.must(q.Run(w.Context(), workers, w.journal.Step))
		w.wants(q, "target-a", "parked the journal is at step 0, the checkpoint at 3", 0)
	})
}

func TestReplayingChangesNothing(t *testing.T) {
	inBubble(t, func(w *world) {
		for _, token := range []refdb.Token{7, 8, 8} {
			if last, err := w.journal.record("target-a", 1, token); err != nil || last != 1 {
				w.Errorf("step %d, %v", last, err)
			}
		}
		text, err := os.ReadFile(filepath.Join(string(w.journal), "target-a"))
		w.must(err)
		if string(text) != "1 7\n" {
			w.Errorf("the journal is %q", text)
		}
	})
}

// A worker lost its lock in the middle of a step and does not know. Another one has the target now.
// Then neither the journal nor the database takes the first one's writes.
func TestAStaleFenceIsNeverAccepted(t *testing.T) {
	inBubble(t, func(w *world) {
		ctx, late, other := w.Context(), w.queue(nil), w.queue(nil)
		w.must(late.Submit(ctx, "target-a"))
		ref := prefix + "target-a"
		lock, err := late.DB.TryLock(ctx, late.Project, ref)
		w.must(err)
		for l, err := range other.DB.Locks(ctx, refdb.LockFilter{}) {
			w.must(err)
			_, err = other.DB.Operator().Purge(ctx, []refdb.LockInfo{l}, operator.PurgeFresh())
			w.must(err)
		}
		w.must(other.Run(ctx, workers, func(ctx context.Context, c Claim) (Progress, error) {
			if c.Frontier != "3" {
				return w.journal.Step(ctx, c)
			}
			_, journal := w.journal.Step(ctx, Claim{c.Name, c.Frontier, lock.Token()})
			checkpoint := late.save(lock, ref, Progress{Active, "3"}, Progress{State: Parked})
			update := late.DB.Update(ctx, late.Project, []refdb.Update{{Ref: ref, Old: "active 3", New: "parked"}},
				refdb.Under(lock.Owner(), lock.Token(), ref))
			for what, err := range map[string]error{"journal": journal, "checkpoint": checkpoint, "update": update} {
				if refdb.ClassOf(err) != refdb.StaleOwner {
					w.Errorf("the %s says %v", what, err)
				}
			}
			return w.journal.Step(ctx, c)
		}))
		w.wants(other, "target-a", "done", steps)
	})
}
