package refdb

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/heartbeat"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/engine"
)

// A fake is a driver with the answers of a test. Where a test gives none, it answers
// like a database without rows.
type fake struct {
	Driver // nil: a method that no test expects panics
	start  time.Time

	mu       sync.Mutex
	acquires []call[driver.AcquireRequest]
	beats    []call[[]driver.LockID]
	releases []call[driver.ReleaseRequest]
	abandons []call[driver.AbandonRequest]
	updates  []call[driver.UpdateRequest]
	prepares []call[driver.PrepareRequest]
	finishes []call[driver.FinishRequest]
	resolves []call[driver.ResolveRequest]
	revokes  []call[driver.PrepareRequest]

	acquire func(n int, r driver.AcquireRequest) (driver.Acquired, error) // n counts from 1
	beat    func(n int, locks []driver.LockID) ([]driver.BeatResult, error)
	release func(n int, r driver.ReleaseRequest) (driver.Released, error)
	abandon func(n int) error
	update  func(n int, r driver.UpdateRequest) error
	prepare func(n int, r driver.PrepareRequest) (driver.Prepared, error)
	finish  func(n int, r driver.FinishRequest) error
	revoke  func(n int) error
	get     func(refs []string) ([]Ref, error)
	resolve func(n int, r driver.ResolveRequest) ([]bool, error)
	states  func(refs []string) ([]driver.State, error)
}

// A call is one request, and when it came.
type call[T any] struct {
	at  time.Duration
	arg T
}

func note[T any](f *fake, calls *[]call[T], arg T) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	*calls = append(*calls, call[T]{time.Since(f.start), arg})
	return len(*calls)
}

func (f *fake) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.Acquired, error) {
	n := note(f, &f.acquires, r)
	if err := ctx.Err(); err != nil {
		return driver.Acquired{}, err
	}
	if f.acquire == nil {
		return driver.Acquired{Token: 1}, nil
	}
	return f.acquire(n, r)
}

func (f *fake) Beat(_ context.Context, locks []driver.LockID) ([]driver.BeatResult, error) {
	n := note(f, &f.beats, locks)
	if f.beat == nil {
		return slices.Repeat([]driver.BeatResult{driver.BeatRenewed}, len(locks)), nil
	}
	return f.beat(n, locks)
}

func (f *fake) Release(_ context.Context, r driver.ReleaseRequest) (driver.Released, error) {
	n := note(f, &f.releases, r)
	if f.release == nil {
		return driver.Released{}, nil
	}
	return f.release(n, r)
}

// acquireCalls returns the calls of Acquire so far. It may run beside further calls.
func (f *fake) acquireCalls() []call[driver.AcquireRequest] {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.acquires)
}

func (f *fake) Abandon(_ context.Context, r driver.AbandonRequest) error {
	n := note(f, &f.abandons, r)
	if f.abandon == nil {
		return nil
	}
	return f.abandon(n)
}

func (f *fake) Update(_ context.Context, r driver.UpdateRequest) error {
	n := note(f, &f.updates, r)
	if f.update == nil {
		return nil
	}
	return f.update(n, r)
}

func (f *fake) Prepare(_ context.Context, r driver.PrepareRequest) (driver.Prepared, error) {
	n := note(f, &f.prepares, r)
	if f.prepare == nil {
		return driver.Prepared{Token: 1}, nil
	}
	return f.prepare(n, r)
}

func (f *fake) Finish(_ context.Context, r driver.FinishRequest) error {
	n := note(f, &f.finishes, r)
	if f.finish == nil {
		return nil
	}
	return f.finish(n, r)
}

func (f *fake) Get(_ context.Context, _ string, refs []string) ([]Ref, error) {
	if f.get == nil {
		return nil, nil
	}
	return f.get(refs)
}

func (f *fake) Resolve(_ context.Context, r driver.ResolveRequest) ([]bool, error) {
	n := note(f, &f.resolves, r)
	if f.resolve == nil {
		return slices.Repeat([]bool{true}, len(r.Intents)), nil
	}
	return f.resolve(n, r)
}

func (f *fake) Revoke(_ context.Context, r driver.PrepareRequest) error {
	n := note(f, &f.revokes, r)
	if f.revoke == nil {
		return nil
	}
	return f.revoke(n)
}

func (f *fake) States(_ context.Context, _ string, refs []string) ([]driver.State, error) {
	if f.states == nil {
		return nil, nil
	}
	return f.states(refs)
}

func (f *fake) Locks(context.Context, driver.LockQuery) (driver.LockPage, error) {
	return driver.LockPage{}, nil
}
func (f *fake) Close() error { return nil }

// A notifyingFake is a fake that sends notifications.
type notifyingFake struct {
	*fake
	listen func(ctx context.Context, started func(), wake func(driver.Wakeup)) error // nil: until ctx ends
	wakeUp func(driver.Wakeup)                                                       // the wake of Listen
	queues bool                                                                      // the Next of a release enters the queue, and is not woken
}

func (f *notifyingFake) Release(ctx context.Context, r driver.ReleaseRequest) (driver.Released, error) {
	released, err := f.fake.Release(ctx, r)
	if err == nil {
		f.release(r.Refs, r.Next)
	}
	return released, err
}

func (f *notifyingFake) Update(ctx context.Context, r driver.UpdateRequest) error {
	err := f.fake.Update(ctx, r)
	if err == nil && r.Fence != nil {
		f.release(r.Fence.Refs, r.Fence.Next)
	}
	return err
}

// release wakes the next.
func (f *notifyingFake) release(refs []string, next driver.Waiter) {
	if next.ID != "" && !f.queues {
		f.wakeUp(driver.Wakeup{Project: "p", Ref: refs[0], Waiter: next.ID})
	}
}

// notifyLast tells the DB that a lock is kept for the waiter of the latest Acquire.
func (f *notifyingFake) notifyLast(ref string) {
	f.mu.Lock()
	id := f.acquires[len(f.acquires)-1].arg.Waiter.ID
	f.mu.Unlock()
	f.wakeUp(driver.Wakeup{Project: "p", Ref: ref, Waiter: id})
}

func (f *notifyingFake) Listen(ctx context.Context, _ string, started func(), wake func(driver.Wakeup)) error {
	if f.listen != nil {
		return f.listen(ctx, started, wake)
	}
	f.wakeUp = wake
	started()
	<-ctx.Done()
	return ctx.Err()
}

// inBubble runs test in fake time on a DB whose driver is d, which f is part of.
func inBubble(t *testing.T, o Options, f *fake, d Driver, test func(t *testing.T, db *DB)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f.start = time.Now()
		db, err := newDB(func(c engine.Config) *engine.Engine { return engine.New(d, c) }, o, func() heartbeat.Instant { return heartbeat.Instant(time.Hour + time.Since(f.start)) })
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		test(t, db)
	})
}

const testRef = "refs/heads/main"

// held is a refusal because of a lock whose last beat is that old.
func held(age time.Duration) error {
	return &LockedError{Holders: []LockInfo{{Project: "p", Ref: testRef, Owner: "other/1", Token: 7, Age: age, StaleAfter: DefaultStaleAfter}}}
}

func mustLock(t *testing.T, db *DB, refs ...string) *Lock {
	t.Helper()
	l, err := db.TryLock(t.Context(), "p", refs...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func wantIs(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Errorf("got %v, want one that is %v", err, target)
		}
	}
}
