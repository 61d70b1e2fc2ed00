package refdb

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

func TestWithLockReleasesWhateverHappensAndTellsWhatFailed(t *testing.T) {
	errWork := errors.New("the work failed")
	gone := func(int, []driver.LockID) ([]driver.BeatResult, error) {
		return []driver.BeatResult{driver.BeatLost}, nil
	}
	for name, c := range map[string]struct {
		fake     *fake
		do       func(ctx context.Context, l *Lock) error
		want     []error // none: success
		releases int
	}{
		"success": {&fake{}, func(context.Context, *Lock) error { return nil }, nil, 1},
		"failure": {&fake{}, func(context.Context, *Lock) error { return errWork }, []error{errWork}, 1},
		"a release that fails": {&fake{release: func(int, driver.ReleaseRequest) (driver.Released, error) { return driver.Released{}, ErrSchema }},
			func(context.Context, *Lock) error { return nil }, []error{ErrSchema}, 1},
		"both failed": {&fake{release: func(int, driver.ReleaseRequest) (driver.Released, error) { return driver.Released{}, ErrSchema }},
			func(context.Context, *Lock) error { return errWork }, []error{errWork, ErrSchema}, 1},
		"it updated and released": {&fake{}, func(ctx context.Context, l *Lock) error {
			return l.UpdateAndRelease(ctx, []Update{{Ref: testRef, New: "x"}})
		}, nil, 0},
		"it released": {&fake{}, func(ctx context.Context, l *Lock) error { return l.Release(ctx) }, nil, 1},
		"it released, and failed": {&fake{}, func(ctx context.Context, l *Lock) error {
			return errors.Join(l.Release(ctx), errWork)
		}, []error{errWork}, 1},
		"its update mismatched": {&fake{update: func(int, driver.UpdateRequest) error { return &MismatchError{} }}, func(ctx context.Context, l *Lock) error {
			return l.UpdateAndRelease(ctx, []Update{{Ref: testRef, New: "x"}})
		}, []error{ErrMismatch}, 1},
		"the lock was lost": {&fake{beat: gone}, func(ctx context.Context, l *Lock) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}, []error{ErrLockLost}, 1},
		"the lock was lost, and nobody looked": {&fake{beat: gone}, func(context.Context, *Lock) error {
			time.Sleep(time.Minute)
			return nil
		}, []error{ErrLockLost}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := c.fake
			inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
				var lock *Lock
				err := db.WithLock(t.Context(), "p", []string{testRef}, func(ctx context.Context, l *Lock) error {
					lock = l
					if got := f.acquires[0].arg; !slices.Equal(got.Refs, []string{testRef}) || ctx.Err() != nil || l.Err() != nil {
						t.Errorf("%v locked, %v, %v", got.Refs, ctx.Err(), l.Err())
					}
					return c.do(ctx, l)
				})
				if len(c.want) == 0 && err != nil {
					t.Error(err)
				}
				wantIs(t, err, c.want...)
				if lock.Err() == nil || len(f.releases) != c.releases {
					t.Errorf("Err is %v after %d releases, want %d", lock.Err(), len(f.releases), c.releases)
				}
			})
		})
	}
}

func TestWithLockReleasesWhenItsFunctionPanics(t *testing.T) {
	f := &fake{}
	inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
		defer func() {
			if p := recover(); p != "boom" || len(f.releases) != 1 {
				t.Errorf("recovered %v after %d releases", p, len(f.releases))
			}
		}()
		_ = db.WithLock(t.Context(), "p", []string{testRef}, func(context.Context, *Lock) error { panic("boom") })
	})
}

func TestWithLockEndsItsFunctionWithTheCallersContextAndStillReleases(t *testing.T) {
	f := &fake{}
	inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
		ctx, cancel := context.WithCancelCause(t.Context())
		stop := errors.New("that is enough")
		err := db.WithLock(ctx, "p", []string{testRef}, func(guarded context.Context, l *Lock) error {
			cancel(stop)
			<-guarded.Done()
			if l.Err() != nil {
				t.Error("the lock ended:", l.Err())
			}
			return context.Cause(guarded)
		})
		if !errors.Is(err, stop) || len(f.releases) != 1 {
			t.Errorf("%v after %d releases", err, len(f.releases))
		}
	})
}

func TestWithLockRunsNothingWithoutTheLock(t *testing.T) {
	f := &fake{acquire: func(int, driver.AcquireRequest) (driver.Acquired, error) { return driver.Acquired{}, held(0) }}
	inBubble(t, Options{MaxWait: time.Second}, f, f, func(t *testing.T, db *DB) {
		never := func(context.Context, *Lock) error { t.Error("it ran"); return nil }
		wantIs(t, db.WithLock(t.Context(), "p", []string{testRef}, never), ErrLocked)
		wantIs(t, db.WithLock(t.Context(), "p", nil, never), ErrInvalid)
		synctest.Wait()
		if len(f.releases) != 0 {
			t.Errorf("%d releases", len(f.releases))
		}
	})
}
