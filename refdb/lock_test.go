package refdb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

var errCut = fmt.Errorf("connection cut: %w", ErrOutcomeUnknown)

func TestAnAcquisitionWhoseReplyWasLostIsRepeatedWithItsNonce(t *testing.T) {
	f := &fake{acquire: func(n int, _ driver.AcquireRequest) (driver.Acquired, error) {
		if n == 1 {
			time.Sleep(5 * time.Second)
			return driver.Acquired{}, errCut
		}
		return driver.Acquired{Token: 3}, nil
	}}
	inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
		l := mustLock(t, db, testRef)
		if len(f.acquires) != 2 || f.acquires[0].arg.Nonce != f.acquires[1].arg.Nonce || f.acquires[0].arg.Nonce == "" {
			t.Errorf("requests %v", f.acquires)
		}
		if f.acquires[0].arg.Waiter != (driver.Waiter{}) {
			t.Error("TryLock entered the queue")
		}
		// The rows may be as old as the first request.
		if left := time.Duration(l.lease.Deadline() - db.keeper.Now()); left > 19*time.Second {
			t.Errorf("the lease stands for %s: it counts from the second request", left)
		}
		if l2 := mustLock(t, db, "refs/heads/other"); f.acquires[2].arg.Nonce == f.acquires[0].arg.Nonce {
			t.Error("two acquisitions, one nonce", l2)
		}
	})
}

// The rows can be read, but a failover may lose them: they are no lock.
func TestAnAcquisitionThatNoStandbyConfirmedIsAbandoned(t *testing.T) {
	f := &fake{acquire: func(int, driver.AcquireRequest) (driver.Acquired, error) { return driver.Acquired{}, ErrUnconfirmed }}
	inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
		_, err := db.TryLock(t.Context(), "p", testRef)
		synctest.Wait()
		if !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrOutcomeUnknown) || len(f.acquires) != 1 {
			t.Errorf("%d requests: %v", len(f.acquires), err)
		}
		if len(f.abandons) != 1 || f.abandons[0].arg.Nonce != f.acquires[0].arg.Nonce || f.abandons[0].arg.Owner != db.Owner() {
			t.Errorf("abandoned: %+v", f.abandons)
		}
	})
}

func TestAnAcquisitionOfUnknownOutcomeIsAbandoned(t *testing.T) {
	f := &fake{
		acquire: func(int, driver.AcquireRequest) (driver.Acquired, error) { return driver.Acquired{}, errCut },
		abandon: func(n int) error {
			if n == 1 {
				return errCut
			}
			return nil
		},
	}
	inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
		_, err := db.TryLock(t.Context(), "p", testRef, "refs/heads/b")
		wantIs(t, err, ErrUnavailable)
		if errors.Is(err, ErrOutcomeUnknown) {
			t.Errorf("%v: the caller need not clean up rows that may be left", err)
		}
		if strings.Contains(err.Error(), "%!") {
			t.Error(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if len(f.abandons) != 2 || len(f.abandons[0].arg.Refs) != 2 || f.abandons[0].arg.Nonce != f.acquires[0].arg.Nonce {
			t.Errorf("abandoned %v", f.abandons)
		}
	})
}

func TestALockGrantedTooLateIsNotHandedOut(t *testing.T) {
	f := &fake{acquire: func(int, driver.AcquireRequest) (driver.Acquired, error) {
		time.Sleep(25 * time.Second) // a frozen process, or a database that hung
		return driver.Acquired{Token: 1}, nil
	}}
	inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
		if l, err := db.TryLock(t.Context(), "p", testRef); !errors.Is(err, ErrUnavailable) {
			t.Errorf("%v, %v", l, err)
		}
		synctest.Wait()
		if len(f.abandons) != 1 {
			t.Error("its rows were not abandoned")
		}
	})
}

func TestReleases(t *testing.T) {
	// cut loses the reply to the first of two releases. The second finds no row, or all.
	cut := func(gone bool, wait time.Duration) func(int, driver.ReleaseRequest) (driver.Released, error) {
		return func(n int, r driver.ReleaseRequest) (driver.Released, error) {
			switch {
			case n == 1:
				time.Sleep(wait)
				return driver.Released{}, errCut
			case gone:
				return driver.Released{Missing: r.Refs}, nil
			default:
				return driver.Released{}, nil
			}
		}
	}
	for _, c := range []struct {
		name    string
		release func(int, driver.ReleaseRequest) (driver.Released, error)
		want    error
	}{
		{"succeed when all rows go", nil, nil},
		{"report a row that was gone as loss", func(_ int, r driver.ReleaseRequest) (driver.Released, error) {
			return driver.Released{Missing: r.Refs[1:]}, nil
		}, ErrLockLost},
		{"whose reply was lost are repeated", cut(false, 0), nil},
		{"that find nothing after a lost reply succeeded while the lease stands", cut(true, 0), nil},
		{"that find nothing after a lost reply and the lease's end are unknown", cut(true, 25*time.Second), ErrOutcomeUnknown},
		{"that never get through are not", func(int, driver.ReleaseRequest) (driver.Released, error) { return driver.Released{}, errCut }, ErrUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &fake{release: c.release}
			inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
				l := mustLock(t, db, testRef, "refs/heads/other")
				err := l.Release(t.Context())
				if !errors.Is(err, c.want) || c.want == nil && err != nil {
					t.Errorf("%v, want %v", err, c.want)
				}
				n := deleted(f, always)
				again := l.Release(t.Context())
				if c.want != ErrUnavailable && (fmt.Sprint(again) != fmt.Sprint(err) || deleted(f, always) != n) {
					t.Errorf("the second time: %v", again)
				}
				if c.want == ErrUnavailable && deleted(f, always) == n {
					t.Error("the second call did not try again")
				}
				time.Sleep(time.Minute)
				if len(f.beats) != 0 {
					t.Error("a released lock was beaten")
				}
				wantIs(t, l.Err(), ErrReleased)
			})
		})
	}
}

func TestAReleaseUnderAnEndedContextStillReleases(t *testing.T) {
	f := &fake{}
	inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
		l := mustLock(t, db, testRef)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := l.Release(ctx); err != nil || len(f.releases) != 1 {
			t.Errorf("%v, %d requests", err, len(f.releases))
		}
	})
}

func TestUpdatesWhoseReplyWasLost(t *testing.T) {
	move := []Update{{Ref: testRef, Old: "a", New: "b"}}
	var f *fake
	written := func(refs []string) ([]Ref, error) { return []Ref{{Name: testRef, Op: f.updates[0].arg.ID}}, nil }
	others := func([]string) ([]Ref, error) { return []Ref{{Name: testRef, Op: "somebody else's"}}, nil }
	unlocked := func(db *DB, t *testing.T) error { return db.Update(t.Context(), "p", move) }
	locked := func(db *DB, t *testing.T) error { return mustLock(t, db, testRef).Update(t.Context(), move) }
	uncovered := func(db *DB, t *testing.T) error {
		return mustLock(t, db, "refs/heads/other").Update(t.Context(), move)
	}
	advisory := func(db *DB, t *testing.T) error {
		return mustLock(t, db, testRef).Update(t.Context(), move, Advisory())
	}
	answers := func(errs ...error) func(int, driver.UpdateRequest) error {
		return func(n int, _ driver.UpdateRequest) error { return errs[min(n, len(errs))-1] }
	}
	for _, c := range []struct {
		name   string
		update func(int, driver.UpdateRequest) error
		get    func([]string) ([]Ref, error)
		do     func(*DB, *testing.T) error
		want   error
		sent   int
	}{
		{"happened if a row carries their ID", answers(errCut), written, unlocked, nil, 1},
		{"are unknown if none does: another may have overwritten it", answers(errCut), others, unlocked, ErrOutcomeUnknown, 1},
		{"are unknown if the rows can't be read", answers(errCut), func([]string) ([]Ref, error) { return nil, ErrUnavailable }, unlocked, ErrOutcomeUnknown, 1},
		{"are unknown in spite of the row if no standby confirmed them", answers(ErrUnconfirmed), written, locked, ErrUnconfirmed, 1},
		{"happened under a lock too", answers(errCut), written, locked, nil, 1},
		{"are sent again under a lock", answers(errCut, nil), others, locked, nil, 2},
		{"are unknown when the second is refused: the first may be why", answers(errCut, &MismatchError{}), others, locked, ErrOutcomeUnknown, 2},
		{"tell of the mismatch as well then", answers(errCut, &MismatchError{}), others, locked, ErrMismatch, 2},
		{"are unknown when the lock is lost by then", answers(errCut, &LostError{}), others, locked, ErrOutcomeUnknown, 2},
		{"are lost as well then", answers(errCut, &LostError{}), others, locked, ErrLockLost, 2},
		{"are unknown when the second reply is lost too", answers(errCut, errCut), others, locked, ErrOutcomeUnknown, 2},
		{"are not sent at all where the lock does not cover them", answers(nil), others, uncovered, ErrInvalid, 0},
		{"are not sent again where they ignore locks", answers(errCut, nil), others, advisory, ErrOutcomeUnknown, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			f = &fake{update: c.update, get: c.get}
			inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
				err := c.do(db, t)
				if !errors.Is(err, c.want) || c.want == nil && err != nil {
					t.Errorf("%v, want %v", err, c.want)
				}
				if len(f.updates) != c.sent {
					t.Errorf("sent %d times, want %d", len(f.updates), c.sent)
				}
			})
		})
	}
}

func TestABeatIsOneRequestWithAResultForEachLock(t *testing.T) {
	f := &fake{}
	f.beat = func(n int, held []driver.LockID) ([]driver.BeatResult, error) {
		results := slices.Repeat([]driver.BeatResult{driver.BeatRenewed}, len(held))
		for i, h := range held {
			switch {
			case h.Ref == "refs/heads/lost":
				results[i] = driver.BeatLost
			case h.Ref == "refs/heads/busy", n == 1 && i > len(held)/2:
				results[i] = driver.BeatUnknown
			}
		}
		if n == 2 {
			return nil, ErrUnavailable
		}
		return results, nil
	}
	inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
		pair := mustLock(t, db, "refs/heads/a", "refs/heads/lost")
		busy := mustLock(t, db, "refs/heads/b", "refs/heads/busy")
		var many []*Lock
		for i := range 11_000 {
			many = append(many, mustLock(t, db, fmt.Sprint("refs/many/", i)))
		}
		time.Sleep(DefaultHeartbeat)
		synctest.Wait()
		f.mu.Lock()
		if len(f.beats) != 1 || len(f.beats[0].arg) != 11_004 {
			t.Errorf("%d requests for %d rows", len(f.beats), 11_004)
		}
		f.mu.Unlock()
		var lost *LostError
		if err := pair.Err(); !errors.As(err, &lost) || !slices.Equal(lost.Refs, []string{"refs/heads/lost"}) {
			t.Errorf("losing one ref loses the lock, and is named: %v", err)
		}
		if busy.Err() != nil {
			t.Error("unknown is not lost")
		}
		time.Sleep(DefaultStaleAfter)
		for _, l := range many {
			if l.Err() != nil {
				t.Fatal("a beat that failed once lost a lock")
			}
		}
		wantIs(t, busy.Err(), ErrLockLost) // never renewed
		if cause := context.Cause(pair.Context()); !errors.Is(cause, ErrLockLost) {
			t.Errorf("cause %v", cause)
		}
	})
}

func TestUpdateAndReleaseIsNotTakenForALoss(t *testing.T) {
	f := &fake{}
	f.update = func(int, driver.UpdateRequest) error {
		time.Sleep(5 * time.Second) // beats go on, and find the rows gone
		return nil
	}
	f.beat = func(_ int, held []driver.LockID) ([]driver.BeatResult, error) {
		return slices.Repeat([]driver.BeatResult{driver.BeatLost}, len(held)), nil
	}
	inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
		l := mustLock(t, db, testRef)
		time.Sleep(time.Second)
		if err := l.UpdateAndRelease(t.Context(), []Update{{Ref: testRef, New: "x"}}); err != nil {
			t.Fatal(err)
		}
		if err := l.Err(); !errors.Is(err, ErrReleased) || errors.Is(err, ErrLockLost) {
			t.Error(err)
		}
		if err := l.Release(t.Context()); err != nil || len(f.releases) != 0 {
			t.Error("a second release:", err)
		}
	})
}

func TestAFencedWriteThatFindsTheLockGoneLosesItAtOnce(t *testing.T) {
	var events []Event
	f := &fake{update: func(int, driver.UpdateRequest) error { return &LostError{Project: "p", Refs: []string{testRef}} }}
	inBubble(t, Options{Observe: func(e Event) { events = append(events, e) }}, f, f, func(t *testing.T, db *DB) {
		l := mustLock(t, db, testRef)
		ctx := l.Context()
		wantIs(t, l.Update(t.Context(), []Update{{Ref: testRef, New: "x"}}), ErrLockLost)
		<-ctx.Done()
		wantIs(t, context.Cause(ctx), ErrLockLost)
		wantIs(t, l.Update(t.Context(), []Update{{Ref: testRef, New: "x"}}), ErrLockLost)
		if len(f.updates) != 1 {
			t.Error("a lock known to be lost made a request")
		}
		var ops []string
		for _, e := range events {
			ops = append(ops, e.Op+" "+e.Outcome)
		}
		if !slices.Equal(ops, []string{"trylock ok", "update lost", "lost lost"}) {
			t.Errorf("told of %v", ops)
		}
	})
}

func TestCloseEndsLocksWithoutReleasingThem(t *testing.T) {
	f := &fake{}
	inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
		l := mustLock(t, db, testRef)
		ctx := l.Context()
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		<-ctx.Done()
		wantIs(t, l.Err(), ErrClosed)
		if len(f.releases) != 0 {
			t.Error("its work may still be going on")
		}
		_, err := db.TryLock(t.Context(), "p", testRef)
		wantIs(t, err, ErrClosed)
		_, err = db.Get(t.Context(), "p", testRef)
		wantIs(t, err, ErrClosed)
		wantIs(t, context.Cause(l.Context()), ErrClosed)
	})
}

func TestLogsCarryDigestsInsteadOfNames(t *testing.T) {
	var log bytes.Buffer
	f := &fake{
		acquire: func(int, driver.AcquireRequest) (driver.Acquired, error) {
			return driver.Acquired{Token: 1234567, Reclaimed: []LockInfo{{Project: "secret", Ref: "refs/heads/hidden", Owner: "whoever/1"}}}, nil
		},
		beat: func(_ int, held []driver.LockID) ([]driver.BeatResult, error) {
			return nil, errors.New("secret refs/heads/hidden")
		},
	}
	o := Options{Site: "whoever", Logger: slog.New(slog.NewTextHandler(&log, nil)), DigestKey: []byte("k")}
	inBubble(t, o, f, f, func(t *testing.T, db *DB) {
		if _, err := db.TryLock(t.Context(), "secret", "refs/heads/hidden"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
	})
	for _, word := range []string{"secret", "hidden", "whoever", "1234567"} {
		if strings.Contains(log.String(), word) {
			t.Errorf("the log says %q:\n%s", word, log.String())
		}
	}
	for _, line := range []string{"stale locks taken over", "heartbeat failed", "lock lost", driver.Digest([]byte("k"), "secret", "refs/heads/hidden")} {
		if !strings.Contains(log.String(), line) {
			t.Errorf("the log does not say %q:\n%s", line, log.String())
		}
	}
}

// A cutFake is a fake whose beats hang until their context ends.
type cutFake struct{ *fake }

func (f cutFake) Beat(ctx context.Context, locks []driver.LockID) ([]driver.BeatResult, error) {
	if f.beat != nil {
		return f.fake.Beat(ctx, locks)
	}
	note(f.fake, &f.beats, locks)
	<-ctx.Done()
	return nil, ctx.Err()
}

// The request that releases a lock keeps its row locked, and then deletes it.
func TestABeatDuringTheReleaseOfItsLockIsNoFailure(t *testing.T) {
	const second = time.Second
	update := func(l *Lock) error {
		return l.UpdateAndRelease(context.Background(), []Update{{Ref: testRef, New: "x"}})
	}
	unknown := func(after time.Duration) func(int, []driver.LockID) ([]driver.BeatResult, error) {
		return func(int, []driver.LockID) ([]driver.BeatResult, error) {
			time.Sleep(after)
			return []driver.BeatResult{driver.BeatUnknown}, nil
		}
	}
	for name, c := range map[string]struct {
		beat  func(int, []driver.LockID) ([]driver.BeatResult, error) // nil: until it is cancelled
		takes time.Duration                                           // the request that releases the lock
		end   func(*Lock) error
		event string
	}{
		"Close cancels it, after UpdateAndRelease":     {nil, 0, update, ""},
		"Close cancels it, after Release":              {nil, 0, func(l *Lock) error { return l.Release(context.Background()) }, ""},
		"Close cancels it, and the lock was not ended": {nil, 0, func(*Lock) error { return nil }, ""},
		"it finds the row locked, while that goes on":  {unknown(second), second + second/10, update, "ok"},
		"it finds the row locked, and that is done":    {unknown(2 * second), second, update, "ok"},
		"it finds the row locked by Release as well":   {unknown(second), 2 * second, func(l *Lock) error { return l.Release(context.Background()) }, "ok"},
		"it fails, when the lock was released meanwhile": {func(int, []driver.LockID) ([]driver.BeatResult, error) {
			time.Sleep(2 * second)
			return nil, ErrUnavailable
		}, second, update, "unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{
				beat:   c.beat,
				update: func(int, driver.UpdateRequest) error { time.Sleep(c.takes); return nil },
				release: func(int, driver.ReleaseRequest) (driver.Released, error) {
					time.Sleep(c.takes)
					return driver.Released{}, nil
				},
			}
			var log strings.Builder
			var events []string
			o := Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), Observe: func(e Event) {
				if e.Op == driver.OpBeat {
					events = append(events, e.Outcome)
				}
			}}
			inBubble(t, o, f, cutFake{f}, func(t *testing.T, db *DB) {
				l := mustLock(t, db, testRef)
				time.Sleep(DefaultHeartbeat) // a beat is under way
				synctest.Wait()
				if err := c.end(l); err != nil {
					t.Fatal(err)
				}
				if c.beat != nil {
					time.Sleep(2 * second)
				}
				if err := db.Close(); err != nil || len(f.beats) == 0 {
					t.Fatal(err, "after", len(f.beats), "beats")
				}
			})
			if got := strings.Join(events, " "); log.Len() > 0 || got != c.event {
				t.Errorf("events %q, want %q; the log: %s", got, c.event, log.String())
			}
		})
	}
}
