package refdb

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/engine"
)

// A slowReleaseFake takes a second for a release, unless its context ends before.
type slowReleaseFake struct{ *fake }

func (f slowReleaseFake) Release(ctx context.Context, r driver.ReleaseRequest) (driver.Released, error) {
	engine.Sleep(ctx, time.Second)
	if err := ctx.Err(); err != nil {
		note(f.fake, &f.releases, r)
		return driver.Released{}, errors.Join(ErrUnavailable, err)
	}
	return f.fake.Release(ctx, r)
}

// An opLog records the operations of events.
type opLog struct {
	mu  sync.Mutex
	ops []string
}

func (o *opLog) note(e Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ops = append(o.ops, e.Op)
}

func (o *opLog) has(op string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Contains(o.ops, op)
}

// A caller that has finished its work may release under the context of that work.
func TestALockIsReleasedUnderItsOwnContext(t *testing.T) {
	for name, under := range map[string]func(l, other *Lock) context.Context{
		"its own": func(l, _ *Lock) context.Context { return l.Context() },
		"one derived from it": func(l, _ *Lock) context.Context {
			ctx, cancel := context.WithCancel(l.Context())
			t.Cleanup(cancel)
			return ctx
		},
		"that of another one, released meanwhile": func(_, other *Lock) context.Context {
			time.AfterFunc(time.Second/2, func() { other.end(ErrReleased) })
			return other.Context()
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{}
			inBubble(t, Options{}, f, slowReleaseFake{f}, func(t *testing.T, db *DB) {
				l, other := mustLock(t, db, testRef), mustLock(t, db, "refs/heads/other")
				if err := l.Release(under(l, other)); err != nil {
					t.Error(err)
				}
				if len(f.releases) != 1 {
					t.Errorf("%d requests", len(f.releases))
				}
			})
		})
	}
}

func TestAReleaseEndsWithItsContextForAnyOtherReason(t *testing.T) {
	f := &fake{}
	inBubble(t, Options{}, f, slowReleaseFake{f}, func(t *testing.T, db *DB) {
		l := mustLock(t, db, testRef)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		start := time.Now()
		if err := l.Release(ctx); err == nil || time.Since(start) != time.Second/2 {
			t.Errorf("%v after %s", err, time.Since(start))
		}
		// A context that has ended gets a moment.
		if err := l.Release(ctx); err != nil {
			t.Error(err)
		}
	})
}

// Work under one lock may write under another one, too.
func TestTheLossOfOneLockIsNotThatOfAnother(t *testing.T) {
	f := &fake{
		beat: func(_ int, held []driver.LockID) ([]driver.BeatResult, error) {
			r := make([]driver.BeatResult, len(held))
			for i, h := range held {
				if r[i] = driver.BeatRenewed; h.Ref == "refs/heads/a" {
					r[i] = driver.BeatLost
				}
			}
			return r, nil
		},
		update: func(int, driver.UpdateRequest) error { return ErrUnavailable },
	}
	inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
		a, b := mustLock(t, db, "refs/heads/a"), mustLock(t, db, "refs/heads/b")
		time.Sleep(DefaultHeartbeat - 5*time.Millisecond) // a is lost while the update pauses between two attempts
		err := b.Update(a.Context(), []Update{{Ref: "refs/heads/b", New: "x"}})
		wantIs(t, err, ErrUnavailable, context.Canceled)
		if errors.Is(err, ErrLockLost) {
			t.Error(err)
		}
		wantIs(t, a.Err(), ErrLockLost)
		if err := b.Err(); err != nil {
			t.Errorf("the other lock: %v", err)
		}
		if err := b.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// An UpdateAndRelease whose reply was lost may have deleted the rows: if they are
// missing later, the lock was not lost.
func TestRowsMissingAfterALostReplyAreNoLoss(t *testing.T) {
	put := []Update{{Ref: testRef, New: "x"}}
	for name, row := range map[string]struct {
		takes time.Duration // the update-and-release
		then  func(l *Lock, t *testing.T) error
		want  error // of the release after that
	}{
		"found by the same again":  {0, func(l *Lock, t *testing.T) error { return l.UpdateAndRelease(t.Context(), put) }, nil},
		"found by a fenced update": {0, func(l *Lock, t *testing.T) error { return l.Update(t.Context(), put) }, nil},
		"found by the release":     {0, nil, nil},
		"found after the lease":    {25 * time.Second, nil, ErrOutcomeUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{
				update: func(n int, _ driver.UpdateRequest) error {
					if n == 1 {
						time.Sleep(row.takes)
						return errCut
					}
					return &LostError{Project: "p", Refs: []string{testRef}}
				},
				get: func([]string) ([]Ref, error) { return nil, errors.New("no answer") },
				release: func(_ int, r driver.ReleaseRequest) (driver.Released, error) {
					return driver.Released{Missing: r.Refs}, nil
				},
			}
			if row.takes > 0 {
				f.beat = func(_ int, held []driver.LockID) ([]driver.BeatResult, error) { return nil, ErrUnavailable }
			}
			var ops opLog
			inBubble(t, Options{Observe: ops.note}, f, f, func(t *testing.T, db *DB) {
				l := mustLock(t, db, testRef)
				wantIs(t, l.UpdateAndRelease(t.Context(), put), ErrOutcomeUnknown)
				if row.then != nil {
					if err := row.then(l, t); ClassOf(err) != OutcomeUnknown {
						t.Errorf("then %v", err)
					}
					if err := l.Err(); err != nil {
						t.Errorf("the lock: %v", err)
					}
				}
				if err := l.Release(t.Context()); !errors.Is(err, row.want) || errors.Is(err, ErrLockLost) {
					t.Errorf("the release: %v, want %v", err, row.want)
				}
				synctest.Wait()
				if row.takes == 0 && ops.has(driver.OpLost) {
					t.Error("a loss was reported")
				}
			})
		})
	}
}

// An update is sent again if its reply was lost and no row carries its ID. If the lock is gone
// by then, it is lost, unless the update was to release it.
func TestAnUpdateThatIsSentAgainAndFindsTheLockGone(t *testing.T) {
	for name, row := range map[string]struct {
		update func(l *Lock, ctx context.Context, updates []Update, opts ...UpdateOption) error
		want   error // of the lock, and of its release
	}{
		"loses it":                       {(*Lock).Update, ErrLockLost},
		"may have released it by itself": {(*Lock).UpdateAndRelease, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{
				update: func(n int, _ driver.UpdateRequest) error {
					if n == 1 {
						return errCut
					}
					return &LostError{Project: "p", Refs: []string{testRef}}
				},
				release: func(_ int, r driver.ReleaseRequest) (driver.Released, error) {
					return driver.Released{Missing: r.Refs}, nil
				},
			}
			var ops opLog
			inBubble(t, Options{Observe: ops.note}, f, f, func(t *testing.T, db *DB) {
				l := mustLock(t, db, testRef)
				wantIs(t, row.update(l, t.Context(), []Update{{Ref: testRef, New: "x"}}), ErrOutcomeUnknown)
				if err := l.Err(); !errors.Is(err, row.want) {
					t.Errorf("the lock: %v, want %v", err, row.want)
				}
				synctest.Wait()
				if ops.has(driver.OpLost) != (row.want != nil) {
					t.Errorf("told %q", ops.ops)
				}
				if err := l.Release(t.Context()); !errors.Is(err, row.want) {
					t.Errorf("the release: %v, want %v", err, row.want)
				}
			})
		})
	}
}

// The loss was known before the reply to the release was lost.
func TestALossIsStillReportedWhenTheReplyToTheReleaseIsLost(t *testing.T) {
	f := &fake{
		beat: func(int, []driver.LockID) ([]driver.BeatResult, error) {
			return []driver.BeatResult{driver.BeatLost}, nil
		},
		release: func(n int, r driver.ReleaseRequest) (driver.Released, error) {
			if n == 1 {
				return driver.Released{}, errCut
			}
			return driver.Released{Missing: r.Refs}, nil
		},
	}
	inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
		l := mustLock(t, db, testRef)
		<-l.Done()
		wantIs(t, l.Release(t.Context()), ErrLockLost)
	})
}

func TestALockThatItsHolderReleasedMeanwhileIsNotLost(t *testing.T) {
	f := &fake{update: func(int, driver.UpdateRequest) error {
		time.Sleep(time.Second)
		return &LostError{Project: "p", Refs: []string{testRef}}
	}}
	var ops opLog
	inBubble(t, Options{Observe: ops.note}, f, f, func(t *testing.T, db *DB) {
		l := mustLock(t, db, testRef)
		updated := make(chan error)
		go func() { updated <- l.Update(t.Context(), []Update{{Ref: testRef, New: "x"}}) }()
		synctest.Wait()
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
		err := <-updated
		wantIs(t, err, ErrReleased)
		if errors.Is(err, ErrLockLost) || ops.has(driver.OpLost) {
			t.Errorf("%v; told %q", err, ops.ops)
		}
	})
}

// The second request was refused. The first must not be carried out afterwards.
func TestAPreparationRefusedAtTheSecondRequestHasRevokedTheFirst(t *testing.T) {
	for _, refusal := range []error{&LockedError{}, &MismatchError{}} {
		f := &fake{prepare: func(n int, _ driver.PrepareRequest) (driver.Prepared, error) {
			if n == 1 {
				return driver.Prepared{}, errCut
			}
			return driver.Prepared{}, refusal
		}}
		inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
			_, err := db.Intents().Prepare(t.Context(), "p", []Update{{Ref: testRef, New: "a"}}, testAgent)
			wantIs(t, err, refusal)
			if errors.Is(err, ErrOutcomeUnknown) || len(f.revokes) != 1 || f.revokes[0].arg.Nonce != f.prepares[0].arg.Nonce {
				t.Errorf("%v; revoked %+v", err, f.revokes)
			}
		})
	}
}
