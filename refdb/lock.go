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
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/engine"
)

// A Lock is held on one or more refs of a project, from [DB.TryLock] or
// [DB.Lock] until it is released or lost. Losing one ref loses the whole lock.
// A lock can let some of its refs go and stand on the rest: [Lock.ReleaseRefs].
// Its methods may be called concurrently.
//
// While it is held its rows in the database are renewed every
// [Options].Heartbeat. A lock is lost when the database says that it is
// another's or gone, or when it could not be renewed for so long that others might
// soon take it. A holder whose process runs learns of the loss before others can
// take the lock. A holder that was frozen may act late: then the lock's own Update
// refuses to write, but other resources are guarded only if they check
// [Lock.Token].
type Lock struct {
	db      *DB
	project string
	token   Token
	values  map[string]Value
	start   time.Time // by this process's monotonic clock, for metrics only
	parent  context.Context
	lease   *heartbeat.Lease[*Lock]

	// ending is a mutex that can be waited for under a context. It serialises
	// Release and UpdateAndRelease, and guards releaseDone, releaseErr and
	// stoodUntilRelease.
	ending chan struct{}
	// retrying: a release is being retried in the background.
	retrying atomic.Bool
	// releaseDone: what became of the rows is known, and is in releaseErr.
	releaseDone       bool
	releaseErr        error
	stoodUntilRelease bool // the lease stood until the first release

	mu        sync.Mutex
	refs      []string // that it stands on, sorted; replaced, never changed
	releasing []string // by ReleaseRefs, sorted, while their rows may still stand
	lostReply bool     // the reply to a release was lost
	gone      []string // refs that a beat found lost
	endReason error    // why the lease was stopped, unless by DB.Close
	ctx       context.Context
}

// Project returns the project that the locked refs belong to.
func (l *Lock) Project() string { return l.project }

// Refs returns the locked refs, in byte order.
func (l *Lock) Refs() []string { return slices.Clone(l.held()) }

// held returns the locked refs, which nobody changes.
func (l *Lock) held() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refs
}

// Token returns the token of the acquisition, the same for all of its refs.
func (l *Lock) Token() Token { return l.token }

// Owner returns the name that the lock is held under: the DB's owner.
func (l *Lock) Owner() string { return l.db.engine.Owner }

// Value returns what a locked ref held when the lock was acquired. While the lock
// stands only its holder, and updates with [Advisory], can change the ref. For a ref
// that is not locked the error wraps [ErrInvalid].
func (l *Lock) Value(ref string) (Value, error) {
	if err := covered(l.project, l.held(), ref); err != nil {
		return Unknown, fmt.Errorf("reading a lock's value: %w", err)
	}
	return l.values[ref], nil
}

// Done is closed when the lock is lost or released.
func (l *Lock) Done() <-chan struct{} { return l.lease.Done() }

// Err returns nil while the lock is held; then an error wrapping
// [ErrLockLost], [ErrReleased] or [ErrClosed]. It compares the time itself: in a
// process that was frozen it tells the truth before any timer has fired.
func (l *Lock) Err() error {
	err := l.lease.Err()
	if err == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case errors.Is(err, heartbeat.ErrLost):
		return &LostError{Project: l.project, Refs: slices.Clone(l.gone), Reason: "the database no longer has the lock, or another owner has it"}
	case errors.Is(err, heartbeat.ErrExpired):
		return &LostError{Project: l.project, Refs: slices.Clone(l.refs), Reason: "could not be renewed in time"}
	case l.endReason != nil:
		return l.endReason
	default:
		return ErrClosed
	}
}

// Context returns a context that ends when the lock is lost or released, with
// Err as its cause. Work that must not go on without the lock runs under it. It
// has the values of the context that the lock was acquired with, but does not end
// with that context.
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
		case !l.db.engine.InBackground(func() {
			<-l.Done()
			cancel(l.Err())
		}):
			cancel(ErrClosed)
		}
	}
	return l.ctx
}

// Update is [DB.Update] for locked refs. The same transaction checks that the lock
// still stands on all of its refs; if not, nothing is written and the error wraps
// [ErrLockLost]. A ref that is not locked is refused with [ErrInvalid], because the
// lock would not guard it, unless the update is made with [AnyRef].
func (l *Lock) Update(ctx context.Context, updates []Update, opts ...UpdateOption) error {
	return l.update(ctx, updates, opts, driver.Fence{})
}

// UpdateAndRelease is Update and, if that succeeds, Release, in one transaction.
// If it fails the lock is held as before. After [ErrOutcomeUnknown] the lock may
// be released; Release makes sure of that.
func (l *Lock) UpdateAndRelease(ctx context.Context, updates []Update, opts ...UpdateOption) error {
	if err := l.startEnding(ctx); err != nil {
		return fmt.Errorf("updating refs of %s: another release of the lock is in progress: %w", l.project, err)
	}
	defer l.stopEnding()
	// Beats must not take the rows that this update deletes for lost ones.
	l.lease.Suspend()
	refs := l.held()
	next := l.db.nextWaiter(l.project, refs)
	err := l.update(ctx, updates, opts, driver.Fence{Release: true, Next: next})
	switch {
	case errors.Is(err, ErrOutcomeUnknown):
		// This update may have deleted the rows. From now on a beat, Release and other
		// updates must not take missing rows for a loss.
		l.noteLostReply()
		return err
	case err != nil:
		l.lease.Resume()
		return err
	}
	l.releaseDone = true
	l.end(ErrReleased)
	l.db.afterRelease(l, refs, next)
	return nil
}

// update makes the updates under the lock, and ends the lock if fence says so.
func (l *Lock) update(ctx context.Context, updates []Update, opts []UpdateOption, fence driver.Fence) error {
	fence.Refs, fence.Owner, fence.Token = l.held(), l.db.engine.Owner, l.token
	r, err := l.db.newUpdateRequest(l.project, updates, append(slices.Clip(opts), fencedBy(fence)))
	if err == nil {
		err = l.Err()
	}
	if err != nil {
		return fmt.Errorf("updating refs: %w", err)
	}
	err = l.db.update(ctx, r, l)
	var lost *LostError
	switch {
	case !errors.As(err, &lost), fence.Release && errors.Is(err, ErrOutcomeUnknown):
		return err
	case l.replyLost():
		return errors.Join(ErrOutcomeUnknown, err)
	case l.releasedAll(lost.Refs) && errors.Is(err, ErrOutcomeUnknown):
		return err
	case l.releasedAll(lost.Refs):
		return fmt.Errorf("updating refs of %s: nothing was written: the lock has released refs meanwhile: %w", l.project, ErrReleased)
	case l.end(lost):
		l.db.reportLost(l)
	default:
		// The lock had ended before: its holder may have released it meanwhile.
		if ended := l.Err(); errors.Is(ended, ErrReleased) {
			return fmt.Errorf("updating refs of %s: %w", l.project, ended)
		}
	}
	return err
}

// Release stops the lock's beats and deletes its rows. If some rows are gone or
// another's already, it leaves those alone and the error wraps [ErrLockLost]: the
// lock did not guard the work until now. Release may be called any number of times.
//
// If ctx ends, the error wraps ctx's; if the database can't be reached, it wraps
// [ErrUnavailable]. Then the release goes on in the background until it succeeds
// or the rows are stale. Calling Release again returns its result, or tries again.
// [DB.Close] waits for it a few seconds.
//
// If ctx has ended before, or ends because a lock is released, as that of
// [Lock.Context] does, Release waits for three seconds.
func (l *Lock) Release(ctx context.Context) error {
	waiting, cancel := engine.WithReleaseGrace(ctx)
	defer cancel()
	result := make(chan error, 1)
	l.db.engine.InBackgroundOrNow(func() {
		past, cancel := l.db.engine.Extend(waiting)
		defer cancel()
		err := l.release(past)
		result <- err
		if ClassOf(err) != Retryable || !l.retrying.CompareAndSwap(false, true) {
			return
		}
		defer l.retrying.Store(false)
		err = l.db.engine.RetryCleanup(err, func() error {
			attempt, cancel := l.db.engine.AttemptContext(ctx)
			defer cancel()
			return l.release(attempt)
		})
		if ClassOf(err) == Retryable || errors.Is(err, ErrClosed) {
			l.db.engine.Logger.Warn("a lock that could not be released remains until it is stale",
				"lock", l.db.engine.Digest(l.project, l.held()), "stale_after", l.db.engine.StaleAfter)
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
		return fmt.Errorf("releasing locks of %s: %w: the release continues in the background", l.project, ctx.Err())
	}
}

// release deletes the rows, unless it is known what became of them. It waits for an
// update under way, which may release the lock, even if ctx ends.
func (l *Lock) release(ctx context.Context) (err error) {
	if err := l.startEnding(l.db.engine.Lasting); err != nil {
		return fmt.Errorf("releasing locks of %s: %w", l.project, ErrClosed)
	}
	defer l.stopEnding()
	if l.releaseDone {
		return l.releaseErr
	}
	refs, releasing := l.standing()
	start := time.Now()
	defer func() {
		l.db.engine.Observed(Event{Op: driver.OpRelease, Refs: len(refs), Held: start.Sub(l.start)}, start, err)
	}()
	expires := l.lease.Deadline()
	if l.end(ErrReleased) {
		l.stoodUntilRelease = true
	}

	next := l.db.nextWaiter(l.project, refs)
	missing, err := l.deleteRows(ctx, refs, next, l.noteLostReply)
	switch {
	case err != nil && l.db.engine.Lasting.Err() != nil:
		return fmt.Errorf("releasing locks of %s: %w: %v", l.project, ErrClosed, err)
	case err != nil:
		return fmt.Errorf("releasing locks of %s: %w", l.project, err)
	}
	l.releaseDone = true
	l.db.afterRelease(l, refs, next)
	l.releaseErr = l.releaseOutcome(engine.Without(missing, releasing), expires)
	if l.stoodUntilRelease && errors.Is(l.releaseErr, ErrLockLost) {
		l.db.reportLost(l) // no beat had found the loss
	}
	return l.releaseErr
}

// deleteRows deletes the rows of refs that still match, and returns the others. If a reply is lost
// it calls lostReply, and asks again: deleting by token again is harmless.
func (l *Lock) deleteRows(ctx context.Context, refs []string, next driver.Waiter, lostReply func()) (missing []string, err error) {
	r := driver.ReleaseRequest{Project: l.project, Refs: refs, Owner: l.db.engine.Owner, Token: l.token, Next: next}
	released, err := engine.Retry(ctx, l.db.engine, func(d Driver) (driver.Released, error) {
		released, err := d.Release(ctx, r)
		if errors.Is(err, ErrOutcomeUnknown) {
			lostReply()
		}
		return released, engine.Repeatable(err)
	})
	return released.Missing, err
}

// ReleaseRefs releases some of the lock's refs, in one transaction, and keeps the others under the
// same token. At least one must stay: Release lets all of them go. From the call on the lock no
// longer renews those refs, nor guards them, nor rests on them: a beat or an update that is under
// way can't lose the lock by them.
//
// If some of their rows were gone or another's, the lock did not guard the work until now: the
// whole lock is lost, and the error wraps [ErrLockLost]. If ctx ends or the database can't be
// reached, the lock stands on the others, and those rows until they are stale. Calling ReleaseRefs
// again tries again; so does Release, but not UpdateAndRelease. A ref that the lock is not on, or
// all of them, is refused with [ErrInvalid].
func (l *Lock) ReleaseRefs(ctx context.Context, refs ...string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("releasing some refs of a lock of %s: %w", l.project, err)
		}
	}()
	if refs, err = engine.CheckRefs(l.project, refs, MaxLockRefs); err != nil {
		return err
	}
	if err := l.startEnding(ctx); err != nil {
		return fmt.Errorf("another release is in progress: %w", err)
	}
	defer l.stopEnding()
	if err := l.Err(); err != nil {
		return err
	}
	again, err := l.beginReleaseRefs(refs)
	if err != nil {
		return err
	}
	start := time.Now()
	defer func() { l.db.engine.Observed(Event{Op: driver.OpRelease, Refs: len(refs)}, start, err) }()
	next := l.db.nextWaiter(l.project, refs)
	lostReply := false
	missing, err := l.deleteRows(ctx, refs, next, func() { lostReply = true })
	if err != nil {
		return err
	}
	l.endReleaseRefs(refs)
	l.db.afterRelease(l, refs, next)
	if missing = engine.Without(missing, again); len(missing) == 0 {
		return nil
	}
	if lostReply {
		// While the lease stands nobody can have taken the rows: this release deleted them.
		return l.Err()
	}
	lost := &LostError{Project: l.project, Refs: missing, Reason: "the database no longer has the lock, or another owner has it"}
	if l.end(lost) {
		l.db.reportLost(l)
	}
	return lost
}

// beginReleaseRefs takes refs out of the lock while their rows may still stand. It returns those
// that an earlier call has taken out.
func (l *Lock) beginReleaseRefs(refs []string) (again []string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	again = l.releasing
	released := engine.Without(refs, again)
	for _, ref := range released {
		if err := covered(l.project, l.refs, ref); err != nil {
			return nil, err
		}
	}
	if len(released) == len(l.refs) {
		return nil, fmt.Errorf("%w release of all refs: use Release, or keep one", ErrInvalid)
	}
	l.refs = engine.Without(l.refs, released)
	l.releasing = slices.Sorted(slices.Values(slices.Concat(again, released)))
	return again, nil
}

// endReleaseRefs notes that the rows of refs, which beginReleaseRefs took out, no longer stand.
func (l *Lock) endReleaseRefs(refs []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.releasing = engine.Without(l.releasing, refs)
}

// standing returns all refs whose rows may stand, and those of them that are being released.
func (l *Lock) standing() (refs, releasing []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(slices.Values(slices.Concat(l.refs, l.releasing))), l.releasing
}

// releasedAll reports whether ReleaseRefs took all of refs out of the lock.
func (l *Lock) releasedAll(refs []string) bool {
	return len(refs) > 0 && len(engine.Without(refs, l.held())) == len(refs)
}

// startEnding locks ending, or returns ctx's error if ctx ends before.
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

// isEnding reports whether the lock has ended, or its holder is releasing it.
func (l *Lock) isEnding() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.endReason != nil || len(l.ending) > 0
}

// releaseOutcome returns the result of a release that found the rows of missing
// gone. Without the release the lease would have stood until expires.
func (l *Lock) releaseOutcome(missing []string, expires heartbeat.Instant) error {
	mayBeOurs := len(missing) > 0 && l.replyLost() // an earlier release may have deleted them
	expired := errors.Is(l.lease.Err(), heartbeat.ErrExpired)
	switch err := l.Err(); {
	case errors.Is(err, ErrLockLost) && !(mayBeOurs && expired):
		return fmt.Errorf("releasing locks: %w", err)
	case len(missing) == 0:
		return nil
	case !mayBeOurs:
		return fmt.Errorf("releasing locks: %w", &LostError{Project: l.project, Refs: missing, Reason: "the database no longer has the lock, or another owner has it"})
	case l.db.keeper.Now() < expires:
		// Nobody could have reclaimed the lock yet: the earlier release deleted the rows.
		return nil
	default:
		return fmt.Errorf("releasing locks of %s: %w: the lock was released, or lost before that", l.project, ErrOutcomeUnknown)
	}
}

// end stops the lease for the given reason. It returns false if the lease ended
// before, for another reason.
func (l *Lock) end(reason error) bool {
	l.mu.Lock()
	if l.endReason == nil {
		l.endReason = reason
	}
	l.mu.Unlock()
	return l.lease.Stop()
}

// noteLostReply notes that a release whose reply was lost may have deleted the rows.
func (l *Lock) noteLostReply() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lostReply = true
}

func (l *Lock) replyLost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lostReply
}

// info describes the row of a ref as of its last beat.
func (l *Lock) info(ref string) LockInfo {
	return LockInfo{Project: l.project, Ref: ref, Owner: l.db.engine.Owner, Token: l.token, StaleAfter: l.db.engine.StaleAfter}
}

// age is how long the lock has been held.
func (l *Lock) age() time.Duration { return time.Since(l.start) }
