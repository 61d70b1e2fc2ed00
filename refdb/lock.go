package refdb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/globalrefdb/globalrefdb/heartbeat"
)

// A Lock is held on one or more refs of a project, from [DB.TryLock] or
// [DB.Lock] until it is released or lost. Losing one ref loses the whole lock.
// Its methods may be called concurrently.
//
// While it is held its rows in the database are renewed every
// [Options].Heartbeat. A lock is lost when the database says that it is
// another's or gone, or when it could not be renewed for so long that others might
// soon take it: a holder whose process runs learns that before they can.
// One that was frozen may act late: what it writes through the lock's own
// Update is refused then, what it writes elsewhere is guarded only if that
// place checks [Lock.Token].
type Lock struct {
	db      *DB
	project string
	refs    []string // sorted
	token   Token
	values  map[string]Value
	start   time.Time // by this process's monotonic clock, for metrics only
	parent  context.Context
	lease   *heartbeat.Lease[*Lock]

	// ending is a mutex, for which one waits no longer than one's context: it
	// serialises Release and UpdateAndRelease, and guards what they know.
	ending chan struct{}
	// insisting: a release is tried again and again in the background.
	insisting atomic.Bool
	// settled: what became of the rows is known, and result says it.
	settled bool
	result  error

	mu    sync.Mutex
	doubt bool     // the reply to a release was lost
	gone  []string // refs that a beat found lost
	ended error    // why the lease was stopped, unless by DB.Close
	ctx   context.Context
}

// Project returns the project that the locked refs belong to.
func (l *Lock) Project() string { return l.project }

// Refs returns the locked refs, in byte order.
func (l *Lock) Refs() []string { return slices.Clone(l.refs) }

// Token returns the token of the acquisition, the same for all of its refs.
func (l *Lock) Token() Token { return l.token }

// Owner returns the name that the lock is held under: the DB's owner.
func (l *Lock) Owner() string { return l.db.owner }

// Value returns what a locked ref held at the moment of the acquisition.
// Nobody but the holder can have changed it since while the lock stands, except with [Advisory].
func (l *Lock) Value(ref string) Value { return l.values[ref] }

// Done is closed when the lock is lost or released.
func (l *Lock) Done() <-chan struct{} { return l.lease.Done() }

// Err returns nil while the lock is held; then an error wrapping
// [ErrLockLost], [ErrReleased] or [ErrClosed]. It looks at the time itself: a
// process that was frozen gets the truth from it before any timer has fired.
func (l *Lock) Err() error {
	err := l.lease.Err()
	if err == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case errors.Is(err, heartbeat.ErrLost):
		return &LostError{Project: l.project, Refs: slices.Clone(l.gone), Reason: "the database has it gone, or another's"}
	case errors.Is(err, heartbeat.ErrExpired):
		return &LostError{Project: l.project, Refs: l.Refs(), Reason: "could not be renewed in time"}
	case l.ended != nil:
		return l.ended
	default:
		return ErrClosed
	}
}

// Context returns a context that ends when the lock is lost or released, with
// Err as its cause. It carries the values of the context that the lock was
// acquired with, but not its end. Work that must not go on without the lock
// runs under it.
func (l *Lock) Context() context.Context {
	ended := l.Err()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx == nil {
		ctx, cancel := context.WithCancelCause(context.WithoutCancel(l.parent))
		l.ctx = ctx
		switch {
		case ended != nil:
			cancel(ended)
		case !l.db.inBackground(func() {
			<-l.Done()
			cancel(l.Err())
		}):
			cancel(ErrClosed)
		}
	}
	return l.ctx
}

// Update is [DB.Update], let through only if the lock still stands on all of
// its refs, in the same transaction: else nothing is written, and the error
// wraps [ErrLockLost].
func (l *Lock) Update(ctx context.Context, updates []Update, opts ...UpdateOption) error {
	return l.update(ctx, updates, opts, Fence{})
}

// UpdateAndRelease is Update and, if that succeeds, Release, in one
// transaction. If it fails the lock is held as before; but with
// [ErrOutcomeUnknown] it may be released, and Release makes sure of that.
func (l *Lock) UpdateAndRelease(ctx context.Context, updates []Update, opts ...UpdateOption) error {
	if err := l.startEnding(ctx); err != nil {
		return fmt.Errorf("updating refs of %s: another release of the lock is under way: %w", l.project, err)
	}
	defer l.stopEnding()
	// Beats must not take the rows that this deletes for lost ones.
	l.lease.Suspend()
	next := l.db.next(l)
	err := l.update(ctx, updates, opts, Fence{Release: true, Next: next})
	switch {
	case errors.Is(err, ErrOutcomeUnknown):
		// The rows may be gone because this deleted them: from now on that is no
		// loss, to a beat, to Release or to another update.
		l.startDoubt()
		return err
	case err != nil:
		l.lease.Resume()
		return err
	}
	l.settled = true
	l.end(ErrReleased)
	l.db.released(l, next)
	return nil
}

// update makes the updates under the lock, and ends it with them if fence says so.
func (l *Lock) update(ctx context.Context, updates []Update, opts []UpdateOption, fence Fence) error {
	r, err := newUpdateRequest(l.project, updates, opts)
	if err == nil {
		err = l.Err()
	}
	if err != nil {
		return fmt.Errorf("updating refs: %w", err)
	}
	fence.Refs, fence.Owner, fence.Token = l.refs, l.db.owner, l.token
	r.Fence = &fence
	err = l.db.update(ctx, r, l)
	var lost *LostError
	switch {
	case !errors.As(err, &lost), fence.Release && errors.Is(err, ErrOutcomeUnknown):
		return err
	case l.inDoubt():
		return errors.Join(ErrOutcomeUnknown, err)
	case l.end(lost):
		l.db.tellLost(l)
	default:
		// It had ended before: its holder may have released it meanwhile.
		if ended := l.Err(); errors.Is(ended, ErrReleased) {
			return fmt.Errorf("updating refs of %s: %w", l.project, ended)
		}
	}
	return err
}

// Release gives the lock up: it stops its beats and deletes its rows. If some
// are gone or another's already, those are left alone and the error wraps
// [ErrLockLost]: the work since the acquisition was not guarded all along. It
// may be called any number of times.
//
// If ctx ends, the error wraps ctx's; if the database can't be reached,
// [ErrUnavailable]. The lock is being released in the background then, until that is done or
// the rows are stale by themselves, and calling Release again tells what came of it,
// or tries again. [DB.Close] waits for it a few seconds.
//
// If ctx has ended, or ends because a lock is released, as that of [Lock.Context]
// does, Release waits for three seconds.
func (l *Lock) Release(ctx context.Context) error {
	waiting, cancel := pastRelease(ctx)
	defer cancel()
	result := make(chan error, 1)
	l.db.lastly(func() {
		past, cancel := l.db.past(waiting)
		defer cancel()
		err := l.release(past)
		result <- err
		if ClassOf(err) != Retryable || !l.insisting.CompareAndSwap(false, true) {
			return
		}
		defer l.insisting.Store(false)
		err = l.db.insist(err, func() error {
			attempt, cancel := l.db.attempt(ctx)
			defer cancel()
			return l.release(attempt)
		})
		if ClassOf(err) == Retryable || errors.Is(err, ErrClosed) {
			l.db.opts.Logger.Warn("a lock that could not be released stands until it is stale",
				"lock", l.db.digest(l.project, l.refs), "stale_after", l.db.opts.StaleAfter)
		}
	})
	select {
	case err := <-result:
		return err
	case <-waiting.Done():
	}
	select {
	case err := <-result:
		return err
	default:
		return fmt.Errorf("releasing locks of %s: %w: it goes on in the background", l.project, ctx.Err())
	}
}

// release deletes the rows, unless it is known what became of them. An update
// that is under way may do that: it is waited for whatever ctx does.
func (l *Lock) release(ctx context.Context) (err error) {
	if err := l.startEnding(l.db.ctx); err != nil {
		return fmt.Errorf("releasing locks of %s: %w", l.project, ErrClosed)
	}
	defer l.stopEnding()
	if l.settled {
		return l.result
	}
	start := time.Now()
	defer func() {
		l.db.observe(Event{Op: OpRelease, Refs: len(l.refs), Held: start.Sub(l.start)}, start, err)
	}()
	// Ending the lease ends what Context returned, too.
	expires := l.lease.Deadline()
	l.end(ErrReleased)

	r := ReleaseRequest{Project: l.project, Refs: l.refs, Owner: l.db.owner, Token: l.token, Next: l.db.next(l)}
	released, err := retry(ctx, l.db, func() (Released, error) {
		released, err := l.db.driver.Release(ctx, r)
		if errors.Is(err, ErrOutcomeUnknown) {
			// Deleting by token is harmless the second time: ask again.
			l.startDoubt()
			err = fmt.Errorf("%w: %v", ErrUnavailable, err)
		}
		return released, err
	})
	switch {
	case err != nil && l.db.ctx.Err() != nil:
		return fmt.Errorf("releasing locks of %s: %w: %v", l.project, ErrClosed, err)
	case err != nil:
		return fmt.Errorf("releasing locks of %s: %w", l.project, err)
	}
	l.settled = true
	l.db.released(l, r.Next)
	l.result = l.judge(released.Missing, expires)
	return l.result
}

// startEnding begins what only one may do at a time, or returns ctx's error if
// that has ended before.
func (l *Lock) startEnding(ctx context.Context) error {
	select {
	case l.ending <- struct{}{}:
		return nil
	default:
	}
	select {
	case l.ending <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *Lock) stopEnding() { <-l.ending }

// judge says what a release means that found the rows of some refs missing.
func (l *Lock) judge(missing []string, expires heartbeat.Instant) error {
	doubt := len(missing) > 0 && l.inDoubt()
	expired := errors.Is(l.lease.Err(), heartbeat.ErrExpired)
	switch err := l.Err(); {
	case errors.Is(err, ErrLockLost) && !(doubt && expired):
		return fmt.Errorf("releasing locks: %w", err)
	case len(missing) == 0:
		return nil
	case !doubt:
		return fmt.Errorf("releasing locks: %w", &LostError{Project: l.project, Refs: missing, Reason: "the database has it gone, or another's"})
	case l.db.keeper.Now() < expires:
		// Nobody could reclaim it yet: it was the request whose reply was lost.
		return nil
	default:
		return fmt.Errorf("releasing locks of %s: %w: the lock was released, or lost before that", l.project, ErrOutcomeUnknown)
	}
}

// end stops the lease for the given reason, or reports that it ended before: it
// keeps its own.
func (l *Lock) end(reason error) bool {
	l.mu.Lock()
	if l.ended == nil {
		l.ended = reason
	}
	l.mu.Unlock()
	return l.lease.Stop()
}

// startDoubt notes that the rows may have been deleted by a release of our own.
func (l *Lock) startDoubt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.doubt = true
}

func (l *Lock) inDoubt() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.doubt
}

// covers reports whether all the refs that updates move are locked.
func (l *Lock) covers(updates []Update) bool {
	for _, u := range updates {
		if _, ok := slices.BinarySearch(l.refs, u.Ref); !ok {
			return false
		}
	}
	return true
}

// age is for how long the lock has been held.
func (l *Lock) age() time.Duration { return time.Since(l.start) }
