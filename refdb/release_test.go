package refdb

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/engine"
)

// deleted counts the requests to release that were carried out.
func deleted(f *fake, carriedOut func(at time.Duration) bool) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.releases {
		if carriedOut(c.at) {
			n++
		}
	}
	return n
}

func always(time.Duration) bool { return true }

func TestAReleaseWhoseContextEndsMidwayGoesOnInTheBackground(t *testing.T) {
	f := &fake{release: func(int, driver.ReleaseRequest) (driver.Released, error) {
		time.Sleep(time.Second)
		return driver.Released{}, nil
	}}
	inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
		l := mustLock(t, db, testRef)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		err := l.Release(ctx)
		wantIs(t, err, context.DeadlineExceeded)
		if took := time.Since(f.start); took != time.Second/2 || err == nil || !strings.Contains(err.Error(), "background") {
			t.Errorf("%v after %s", err, took)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Errorf("the second: %v", err)
		}
		if took := time.Since(f.start); took != time.Second || len(f.releases) != 1 {
			t.Errorf("after %s and %d requests", took, len(f.releases))
		}
		wantIs(t, l.Err(), ErrReleased)
	})
}

// A caller that releases in a defer statement does not call Release again.
func TestAReleaseThatTheDatabaseCannotCarryOutIsTriedUntilItIsStale(t *testing.T) {
	for name, row := range map[string]struct {
		outage time.Duration
		want   int // how many are carried out without a second call
	}{
		"a short outage": {10 * time.Second, 1},
		"a long one":     {time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{}
			over := func(at time.Duration) bool { return at >= row.outage }
			f.release = func(n int, _ driver.ReleaseRequest) (driver.Released, error) {
				if !over(time.Since(f.start)) {
					return driver.Released{}, ErrUnavailable
				}
				return driver.Released{}, nil
			}
			inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
				l := mustLock(t, db, testRef)
				err := l.Release(t.Context())
				wantIs(t, err, ErrUnavailable)
				if took := time.Since(f.start); took > 2*time.Second {
					t.Errorf("%v after %s", err, took)
				}
				time.Sleep(2 * DefaultStaleAfter)
				synctest.Wait()
				if n := deleted(f, over); n != row.want {
					t.Errorf("%d were carried out, want %d", n, row.want)
				}
				f.mu.Lock()
				tried := len(f.releases)
				f.mu.Unlock()
				time.Sleep(2 * row.outage)
				synctest.Wait()
				if n := deleted(f, always); n != tried {
					t.Errorf("it was tried %d times more", n-tried)
				}
				if err := l.Release(t.Context()); err != nil {
					t.Errorf("called again: %v", err)
				}
				if n := deleted(f, over); n != 1 {
					t.Errorf("%d were carried out", n)
				}
			})
		})
	}
}

func TestAReleaseWaitsForAnUpdateOfItsLockNoLongerThanItsContext(t *testing.T) {
	for name, row := range map[string]struct {
		update   error
		released driver.Released // by the release's own request
		requests int
	}{
		"that released it":    {nil, driver.Released{}, 0},
		"that was refused":    {&MismatchError{}, driver.Released{}, 1},
		"that may have":       {errCut, driver.Released{Missing: []string{testRef}}, 1},
		"that may not have":   {errCut, driver.Released{}, 1},
		"that was not made":   {ErrUnavailable, driver.Released{}, 1},
		"that gave up itself": {context.Canceled, driver.Released{}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{
				update: func(int, driver.UpdateRequest) error {
					time.Sleep(6 * time.Second)
					return row.update
				},
				get:     func([]string) ([]Ref, error) { return nil, errors.New("no answer") },
				release: func(int, driver.ReleaseRequest) (driver.Released, error) { return row.released, nil },
			}
			inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
				l := mustLock(t, db, testRef)
				updated := make(chan error)
				go func() { updated <- l.UpdateAndRelease(t.Context(), []Update{{Ref: testRef, New: "x"}}) }()
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
				defer cancel()
				err := l.Release(ctx)
				wantIs(t, err, context.DeadlineExceeded)
				if took := time.Since(f.start); took != time.Second/2 {
					t.Errorf("%v after %s", err, took)
				}
				if row.update == nil {
					wantIs(t, <-updated, nil)
				} else {
					wantIs(t, <-updated, row.update)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if n := deleted(f, always); n != row.requests {
					t.Errorf("%d requests to release, want %d", n, row.requests)
				}
				if err := l.Release(t.Context()); err != nil {
					t.Errorf("the release in the end: %v", err)
				}
				wantIs(t, l.Err(), ErrReleased)
			})
		})
	}
}

func TestAnUpdateWaitsForAReleaseOfItsLockNoLongerThanItsContext(t *testing.T) {
	f := &fake{update: func(n int, _ driver.UpdateRequest) error {
		time.Sleep(6 * time.Second)
		return nil
	}}
	inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
		l := mustLock(t, db, testRef)
		updated := make(chan error)
		go func() { updated <- l.UpdateAndRelease(t.Context(), []Update{{Ref: testRef, New: "x"}}) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		err := l.UpdateAndRelease(ctx, []Update{{Ref: testRef, New: "y"}})
		wantIs(t, err, context.DeadlineExceeded)
		if took := time.Since(f.start); took != time.Second/2 || ClassOf(err) != Retryable {
			t.Errorf("%v after %s", err, took)
		}
		wantIs(t, <-updated, nil)
	})
}

func TestCloseWaitsForReleasesButNotForEver(t *testing.T) {
	for name, row := range map[string]struct {
		takes, closed time.Duration
		err           error
	}{
		"that come through":   {2 * time.Second, 2 * time.Second, nil},
		"that don't, a while": {0, time.Second/2 + engine.GracePeriod, ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{release: func(int, driver.ReleaseRequest) (driver.Released, error) {
				time.Sleep(row.takes)
				return driver.Released{}, row.err
			}}
			inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
				l := mustLock(t, db, testRef)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
				defer cancel()
				err := l.Release(ctx)
				time.Sleep(time.Second/2 - time.Since(f.start))
				if err := db.Close(); err != nil {
					t.Error(err)
				}
				if took := time.Since(f.start); took != row.closed || err == nil {
					t.Errorf("%v; closed after %s", err, took)
				}
				if err := l.Release(t.Context()); !errors.Is(err, ErrClosed) && row.err != nil || row.err == nil && err != nil {
					t.Errorf("a release after that: %v", err)
				}
			})
		})
	}
}

// Cleaning up after an abandoned acquisition goes on through an outage.
func TestAnAcquisitionIsAbandonedUntilItWouldBeStale(t *testing.T) {
	f := &fake{acquire: func(int, driver.AcquireRequest) (driver.Acquired, error) { return driver.Acquired{}, errCut }}
	f.abandon = func(int) error {
		if time.Since(f.start) < 20*time.Second {
			return ErrUnavailable
		}
		return nil
	}
	inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
		_, err := db.TryLock(t.Context(), "p", testRef)
		wantIs(t, err, ErrUnavailable)
		time.Sleep(time.Minute)
		synctest.Wait()
		f.mu.Lock()
		defer f.mu.Unlock()
		if last := f.abandons[len(f.abandons)-1]; last.at < 20*time.Second || last.at > DefaultStaleAfter {
			t.Errorf("abandoned last at %s", last.at)
		}
	})
}
