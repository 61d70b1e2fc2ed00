package refdb

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

const (
	keptRef = "refs/heads/kept"
	turnRef = "refs/heads/turn"
)

// refsOf returns the refs of the rows that a beat was to renew.
func refsOf(held []driver.LockID) (refs []string) {
	for _, l := range held {
		refs = append(refs, l.Ref)
	}
	return refs
}

func TestSomeRefsOfALockAreReleasedAndTheOthersKept(t *testing.T) {
	f := &fake{}
	inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
		l := mustLock(t, db, turnRef, keptRef)
		if err := l.ReleaseRefs(t.Context(), turnRef); err != nil {
			t.Fatal(err)
		}
		if r := f.releases[0].arg; !slices.Equal(r.Refs, []string{turnRef}) || r.Token != l.Token() || r.Owner != l.Owner() {
			t.Errorf("the request is %+v", r)
		}
		if got := l.Refs(); !slices.Equal(got, []string{keptRef}) || l.Err() != nil {
			t.Errorf("the lock is on %q: %v", got, l.Err())
		}
		_, err := l.Value(turnRef)
		wantIs(t, err, ErrInvalid)
		wantIs(t, l.Update(t.Context(), []Update{{Ref: turnRef, New: "x"}}), ErrInvalid)
		if err := l.Update(t.Context(), []Update{{Ref: keptRef, New: "x"}}); err != nil || !slices.Equal(f.updates[0].arg.Fence.Refs, []string{keptRef}) {
			t.Errorf("the fence is on %q: %v", f.updates[0].arg.Fence.Refs, err)
		}
		time.Sleep(DefaultHeartbeat)
		synctest.Wait()
		f.mu.Lock()
		if got := refsOf(f.beats[0].arg); !slices.Equal(got, []string{keptRef}) {
			t.Errorf("a beat renews %q", got)
		}
		f.mu.Unlock()
		if err := l.Release(t.Context()); err != nil || !slices.Equal(f.releases[1].arg.Refs, []string{keptRef}) {
			t.Errorf("the release of the rest is of %q: %v", f.releases[1].arg.Refs, err)
		}
		wantIs(t, l.ReleaseRefs(t.Context(), keptRef), ErrReleased)
	})
}

func TestARefThatIsNotLockedAndAllRefsCantBeReleasedAlone(t *testing.T) {
	f := &fake{}
	inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
		l := mustLock(t, db, turnRef, keptRef)
		for _, refs := range [][]string{nil, {"not a ref"}, {"refs/heads/other"}, {turnRef, "refs/heads/other"}, {turnRef, keptRef}} {
			wantIs(t, l.ReleaseRefs(t.Context(), refs...), ErrInvalid)
		}
		if len(f.releases) > 0 || len(l.Refs()) != 2 || l.Err() != nil {
			t.Errorf("%d requests, the lock is on %q: %v", len(f.releases), l.Refs(), l.Err())
		}
	})
}

// The beat was sent with both rows, and finds one deleted, or locked by the release.
func TestABeatBesideTheReleaseOfSomeRefsDoesNotLoseTheLock(t *testing.T) {
	for name, found := range map[string]driver.BeatResult{"it finds the row gone": driver.BeatLost, "it finds the row locked": driver.BeatUnknown} {
		t.Run(name, func(t *testing.T) {
			var log strings.Builder
			f := &fake{}
			f.beat = func(n int, held []driver.LockID) ([]driver.BeatResult, error) {
				if n > 1 {
					return slices.Repeat([]driver.BeatResult{driver.BeatRenewed}, len(held)), nil
				}
				time.Sleep(time.Second) // the release comes meanwhile
				results := make([]driver.BeatResult, len(held))
				for i, l := range held {
					results[i] = driver.BeatRenewed
					if l.Ref == turnRef {
						results[i] = found
					}
				}
				return results, nil
			}
			inBubble(t, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, f, f, func(t *testing.T, db *DB) {
				l := mustLock(t, db, turnRef, keptRef)
				time.Sleep(DefaultHeartbeat + time.Second/2)
				if err := l.ReleaseRefs(t.Context(), turnRef); err != nil {
					t.Fatal(err)
				}
				before := l.lease.Deadline()
				time.Sleep(time.Second / 2)
				synctest.Wait()
				if l.Err() != nil || l.lease.Deadline() <= before || log.Len() > 0 {
					t.Errorf("the lock: %v; its lease moved by %s; the log: %s", l.Err(), time.Duration(l.lease.Deadline()-before), log.String())
				}
			})
		})
	}
}

func TestAnUpdateUnderWayDoesNotLoseTheLockByARefThatItLetGo(t *testing.T) {
	f := &fake{update: func(_ int, r driver.UpdateRequest) error {
		time.Sleep(time.Second)
		return &LostError{Project: r.Project, Refs: []string{turnRef}}
	}}
	inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
		l := mustLock(t, db, turnRef, keptRef)
		done := make(chan error)
		go func() { done <- l.Update(t.Context(), []Update{{Ref: keptRef, New: "x"}}) }()
		time.Sleep(time.Second / 2)
		if err := l.ReleaseRefs(t.Context(), turnRef); err != nil {
			t.Fatal(err)
		}
		err := <-done
		wantIs(t, err, ErrReleased)
		if errors.Is(err, ErrLockLost) || l.Err() != nil {
			t.Errorf("the update says %v, the lock %v", err, l.Err())
		}
	})
}

func TestWhatBecomesOfALockWhenTheReleaseOfSomeRefsFails(t *testing.T) {
	missing := driver.Released{Missing: []string{turnRef}}
	type reply struct {
		released driver.Released
		err      error
	}
	for name, c := range map[string]struct {
		replies []reply // the last one is repeated
		want    error
		lost    bool
	}{
		"a row that was gone loses it":                         {[]reply{{missing, nil}}, ErrLockLost, true},
		"a row that is gone after a lost reply was deleted":    {[]reply{{driver.Released{}, errCut}, {missing, nil}}, nil, false},
		"an outage leaves it on the others":                    {[]reply{{driver.Released{}, ErrUnavailable}}, ErrUnavailable, false},
		"a short outage is nothing":                            {[]reply{{driver.Released{}, ErrUnavailable}, {driver.Released{}, nil}}, nil, false},
		"a lost reply and an outage leave it on the others":    {[]reply{{driver.Released{}, errCut}, {driver.Released{}, ErrUnavailable}}, ErrUnavailable, false},
		"another error leaves it on the others, and is passed": {[]reply{{driver.Released{}, ErrSchema}}, ErrSchema, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{}
			failing := true
			f.release = func(n int, _ driver.ReleaseRequest) (driver.Released, error) {
				if !failing {
					return missing, nil
				}
				r := c.replies[min(n, len(c.replies))-1]
				return r.released, r.err
			}
			inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
				l := mustLock(t, db, turnRef, keptRef)
				err := l.ReleaseRefs(t.Context(), turnRef)
				if !errors.Is(err, c.want) || c.want == nil && err != nil {
					t.Errorf("%v, want %v", err, c.want)
				}
				if errors.Is(l.Err(), ErrLockLost) != c.lost {
					t.Errorf("the lock: %v", l.Err())
				}
				if c.lost {
					return
				}
				if got := l.Refs(); !slices.Equal(got, []string{keptRef}) {
					t.Errorf("the lock is on %q", got)
				}
				// A second call does not mind what became of the row.
				failing = false
				if c.want != nil {
					if err := l.ReleaseRefs(t.Context(), turnRef); err != nil || l.Err() != nil {
						t.Errorf("again: %v; the lock: %v", err, l.Err())
					}
				}
			})
		})
	}
}

func TestReleaseTakesTheRowsThatAnOutageLeft(t *testing.T) {
	f := &fake{}
	f.release = func(_ int, r driver.ReleaseRequest) (driver.Released, error) {
		if len(r.Refs) == 1 {
			return driver.Released{}, ErrUnavailable
		}
		return driver.Released{Missing: []string{turnRef}}, nil // somebody took it when it was stale
	}
	inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
		l := mustLock(t, db, turnRef, keptRef)
		wantIs(t, l.ReleaseRefs(t.Context(), turnRef), ErrUnavailable)
		if err := l.Release(t.Context()); err != nil {
			t.Errorf("the lock stood on the other ref: %v", err)
		}
		if last := f.releases[len(f.releases)-1].arg.Refs; !slices.Equal(last, []string{keptRef, turnRef}) {
			t.Errorf("the release is of %q", last)
		}
	})
}

func TestAWaiterOfTheSameProcessGetsTheRefThatWasLetGo(t *testing.T) {
	f := &fake{}
	inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
		l := mustLock(t, db, turnRef, keptRef)
		done := make(chan error)
		go func() {
			_, err := db.Lock(t.Context(), "p", turnRef)
			done <- err
		}()
		synctest.Wait()
		asked := len(f.acquireCalls())
		if err := l.ReleaseRefs(t.Context(), turnRef); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil || asked != 1 {
			t.Errorf("%d requests before the release: %v", asked, err)
		}
	})
}

func TestAFencedUpdateMovesOtherRefsOnlyIfItSaysSo(t *testing.T) {
	other := []Update{{Ref: "refs/heads/other", New: "x"}}
	f := &fake{}
	inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
		l := mustLock(t, db, keptRef)
		under := Under(l.Owner(), l.Token(), keptRef)
		wantIs(t, l.Update(t.Context(), other), ErrInvalid)
		wantIs(t, db.Update(t.Context(), "p", other, under), ErrInvalid)
		wantIs(t, db.Update(t.Context(), "p", other, AnyRef()), ErrInvalid)
		if len(f.updates) > 0 {
			t.Errorf("%d requests", len(f.updates))
		}
		for _, err := range []error{
			l.Update(t.Context(), other, AnyRef()),
			db.Update(t.Context(), "p", other, under, AnyRef()),
			db.Update(t.Context(), "p", other, AnyRef(), under),
		} {
			if err != nil {
				t.Error(err)
			}
		}
		for _, u := range f.updates {
			if fence := u.arg.Fence; fence == nil || !slices.Equal(fence.Refs, []string{keptRef}) || fence.Token != l.Token() {
				t.Errorf("the fence is %+v", fence)
			}
		}
	})
}

// Others may have moved the ref between the two requests.
func TestAnUpdateOfAnyRefIsNotSentAgainAfterALostReply(t *testing.T) {
	f := &fake{update: func(int, driver.UpdateRequest) error { return errCut }}
	inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
		l := mustLock(t, db, keptRef)
		err := l.Update(t.Context(), []Update{{Ref: keptRef, New: "x"}, {Ref: "refs/heads/other", New: "x"}}, AnyRef())
		wantIs(t, err, ErrOutcomeUnknown)
		if len(f.updates) != 1 {
			t.Errorf("%d requests", len(f.updates))
		}
	})
}
