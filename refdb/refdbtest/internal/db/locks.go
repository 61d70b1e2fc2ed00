package db

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/suite"
)

func lockRows() []row {
	return []row{
		{"a lock has its refs' values, its owner and its token", func(e *env) {
			db := e.Open(refdb.Options{Site: "eu"})
			e.Must(e.Update(e.A, suite.Move(refA, "", v1), suite.Move(refB, "", driver.Deleted)))
			l := e.Hold(db, refC, refA, refB)
			if l.Project() != e.Project || !slices.Equal(l.Refs(), []string{refA, refB, refC}) || l.Owner() != db.Owner() || l.Token() <= 0 {
				e.Errorf("got %q %q, owner %q, token %d", l.Project(), l.Refs(), l.Owner(), l.Token())
			}
			e.WantLocked(l, refA, v1)
			e.WantLocked(l, refB, driver.Deleted)
			e.WantLocked(l, refC, driver.Unknown)
			e.WantHeld(l)
		}},
		{"an owner consists of the site's name and a unique name of the process", func(e *env) {
			x, y := e.Open(refdb.Options{Site: "eu"}), e.Open(refdb.Options{Site: "eu"})
			if x.Owner() == y.Owner() || !strings.HasPrefix(x.Owner(), "eu/") || !strings.HasPrefix(y.Owner(), "eu/") {
				e.Errorf("the owners are %q and %q", x.Owner(), y.Owner())
			}
		}},
		{"a lock that is held refuses others, naming its holder", func(e *env) {
			const staleAfter = 90 * time.Minute
			x, y := e.Open(refdb.Options{StaleAfter: staleAfter}), e.Open(refdb.Options{})
			l := e.Hold(x, refB)
			for _, db := range []*refdb.DB{x, y} {
				got, err := db.TryLock(e.Context(), e.Project, refA, refB)
				if got != nil {
					e.Error("it was granted")
				}
				if h := e.WantHolders(err, refB); h[0].Owner != x.Owner() || h[0].Token != l.Token() || h[0].StaleAfter != staleAfter {
					e.Errorf("the holders are %+v", h)
				}
				e.WantClass(err, driver.ErrLocked, driver.Retryable)
			}
			e.WantFree(refA)
			e.WantHeld(l)
		}},
		{"a stale lock is taken over after its holder's stale-after", func(e *env) {
			db := e.Open(refdb.Options{})
			r := e.AcquireRequest(e.A, refA)
			r.StaleAfter = 2 * time.Hour
			old, err := e.SendAcquire(e.A, r)
			e.Must(err)
			e.Age(old, time.Hour)
			_, err = db.TryLock(e.Context(), e.Project, refA)
			e.WantHolders(err, refA)
			e.Age(old, 90*time.Minute)
			if l := e.Hold(db, refA); l.Token() <= old.Token {
				e.Errorf("token %d follows %d", l.Token(), old.Token)
			}
		}},
		{"locks are mandatory, even in the holder's own process, except for updates through them", func(e *env) {
			x, y := e.Open(refdb.Options{}), e.Open(refdb.Options{})
			l := e.Hold(x, refA)
			for _, db := range []*refdb.DB{x, y} {
				e.WantClass(db.Update(e.Context(), e.Project, []driver.Update{suite.Move(refA, "", v1)}), driver.ErrLocked, driver.Retryable)
			}
			e.WantRefs(nil)
			e.Must(l.Update(e.Context(), []driver.Update{suite.Move(refA, "", v1)}))
			e.Must(l.Update(e.Context(), []driver.Update{suite.Move(refA, v1, v2)}))
			e.Must(y.Update(e.Context(), e.Project, []driver.Update{suite.Move(refA, v2, v3)}, refdb.Advisory()))
			e.WantRefs(map[string]driver.Value{refA: v3})
			e.WantHeld(l)
		}},
		{"an update through a lock that mismatches leaves the lock held", func(e *env) {
			l := e.Hold(e.Open(refdb.Options{}), refA)
			for _, update := range []func(context.Context, []driver.Update, ...refdb.UpdateOption) error{l.Update, l.UpdateAndRelease} {
				e.WantMismatches(update(e.Context(), []driver.Update{suite.Move(refA, v1, v2)}), driver.Mismatch{Ref: refA, Want: v1})
				e.WantHeld(l)
			}
			e.Must(l.Release(e.Context()))
			e.WantFree(refA)
		}},
		{"a release frees the lock, ends its context, and can be repeated", func(e *env) {
			db := e.Open(refdb.Options{})
			l := e.Hold(db, refA, refB)
			ctx := l.Context()
			e.Must(ctx.Err())
			e.Must(l.Release(e.Context()))
			e.WantFree(refA, refB)
			e.WantEnd(l, driver.ErrReleased)
			e.WantCause(ctx, driver.ErrReleased)
			next := e.Hold(db, refA)
			e.Must(l.Release(e.Context()))
			e.WantHeld(next)
		}},
		{"a lock releases some of its refs, and keeps the others", func(e *env) {
			db := e.Open(refdb.Options{})
			l := e.Hold(db, refA, refB, refC)
			e.Must(l.ReleaseRefs(e.Context(), refA, refC))
			e.WantFree(refA)
			e.WantFree(refC)
			if got := l.Refs(); !slices.Equal(got, []string{refB}) {
				e.Errorf("it is on %q", got)
			}
			e.Must(l.Update(e.Context(), []driver.Update{suite.Move(refB, "", v1)}))
			e.WantHeld(l)
			e.Must(l.Release(e.Context()))
			e.WantFree(refB)
		}},
		{"P2 a lock is lost if a ref that it releases has another owner", func(e *env) {
			db := e.Open(refdb.Options{})
			l := e.Hold(db, refA, refB)
			e.DB.Age(e, e.Project, refA, stale)
			successor := e.Acquire(e.B, refA)
			e.WantClass(l.ReleaseRefs(e.Context(), refA), driver.ErrLockLost, driver.StaleOwner)
			e.WantClass(l.Update(e.Context(), []driver.Update{suite.Move(refB, "", v1)}), driver.ErrLockLost, driver.StaleOwner)
			e.WantLock(successor)
		}},
		{"an update through a lock moves other refs on request, while the lock is held", func(e *env) {
			db := e.Open(refdb.Options{})
			l := e.Hold(db, refA)
			e.Must(l.Update(e.Context(), []driver.Update{suite.Move(refB, "", v1), suite.Move(refC, "", v1)}, refdb.AnyRef()))
			foreign := e.Acquire(e.B, refB)
			e.WantHolders(l.Update(e.Context(), []driver.Update{suite.Move(refB, v1, v2)}, refdb.AnyRef()), refB)
			e.Must(l.Release(e.Context()))
			err := db.Update(e.Context(), e.Project, []driver.Update{suite.Move(refC, v1, v2)}, refdb.Under(l.Owner(), l.Token(), refA), refdb.AnyRef())
			e.WantClass(err, driver.ErrLockLost, driver.StaleOwner)
			e.WantRefs(map[string]driver.Value{refB: v1, refC: v1})
			e.WantLock(foreign)
		}},
		{"a released lock can't write", func(e *env) {
			db := e.Open(refdb.Options{})
			l := e.Hold(db, refA)
			e.Must(l.Release(e.Context()))
			e.Hold(db, refA)
			e.WantClass(l.Update(e.Context(), []driver.Update{suite.Move(refA, "", v1)}), driver.ErrReleased, driver.StaleOwner)
			e.WantClass(l.UpdateAndRelease(e.Context(), []driver.Update{suite.Move(refA, "", v1)}), driver.ErrReleased, driver.StaleOwner)
			e.WantRefs(nil)
		}},
		{"a releasing update writes, frees and ends the lock at once", func(e *env) {
			db := e.Open(suite.FastHeartbeat())
			l := e.Hold(db, refA, refB)
			e.Must(l.UpdateAndRelease(e.Context(), []driver.Update{suite.Move(refA, "", v1)}))
			e.WantRefs(map[string]driver.Value{refA: v1})
			e.WantFree(refA, refB)
			e.WantEnd(l, driver.ErrReleased)
			e.Must(l.Release(e.Context()))
			e.WantLocked(e.Hold(e.Open(refdb.Options{}), refA), refA, v1)
		}},
		{"a release frees the lock even if the caller's context has ended", func(e *env) {
			l := e.Hold(e.Open(refdb.Options{}), refA)
			ctx, cancel := context.WithCancel(e.Context())
			cancel()
			if err := l.Release(ctx); err != nil { // a slow database takes longer than that is waited for
				e.WantIs(err, context.Canceled)
			}
			e.Eventually("no lock is left", func() bool { return e.Free(refA) })
		}},
		{"a lock's context carries the values of the caller's, and outlives it", func(e *env) {
			type name struct{}
			ctx, cancel := context.WithCancel(context.WithValue(e.Context(), name{}, "value"))
			l, err := e.Open(refdb.Options{}).TryLock(ctx, e.Project, refA)
			e.Must(err)
			cancel()
			if got := l.Context(); got.Err() != nil || got.Value(name{}) != "value" {
				e.Errorf("it is %v, its value %v", got.Err(), got.Value(name{}))
			}
			e.Must(l.Update(l.Context(), []driver.Update{suite.Move(refA, "", v1)}))
		}},
		{"the heartbeat runs while a lock is held, and a reclaimed one's too", func(e *env) {
			l := e.Hold(e.Open(suite.FastHeartbeat()), refA, refB)
			wantBeats(e, refA)
			wantBeats(e, refB)
			e.WantHeld(l)

			e.Age(e.Acquire(e.A, refC), stale)
			next := e.Hold(e.Open(suite.FastHeartbeat()), refC)
			wantBeats(e, refC)
			e.WantHeld(next)
		}},
		{"the heartbeat ends with the DB, and leaves the rows to grow stale", func(e *env) {
			db, faulty := e.OpenFaulty(suite.FastHeartbeat())
			l, released := e.Hold(db, refA), e.Hold(db, refB)
			ctx := l.Context()
			wantBeats(e, refA)
			e.Must(released.Release(e.Context()))
			e.Must(db.Close())
			e.WantEnd(l, driver.ErrClosed)
			e.WantEnd(released, driver.ErrReleased)
			e.WantCause(ctx, driver.ErrClosed)
			beats := faulty.Count("Beat")
			e.WantLock(suite.LockOf(l))
			e.WantFree(refB)
			e.Must(db.Close())
			if n := faulty.Count("Beat"); n != beats {
				e.Errorf("%d beats after Close", n-beats)
			}
		}},
		{"the heartbeat ends with the release", func(e *env) {
			db, faulty := e.OpenFaulty(suite.FastHeartbeat())
			l := e.Hold(db, refA)
			wantBeats(e, refA)
			e.Must(l.Release(e.Context()))
			keeper := e.Hold(db, refB) // the only lock to be beaten from now on
			beaten := make(chan []driver.LockID, 100)
			faulty.Inject(func(c suite.Call) error {
				if c.Method == "Beat" {
					select {
					case beaten <- c.Arg.([]driver.LockID):
					default:
					}
				}
				return c.Do()
			})
			suite.Receive(e, beaten, "a beat") // this beat may have begun before the release
			for range 3 {
				if ids := suite.Receive(e, beaten, "a beat"); len(ids) != 1 || ids[0].Ref != refB {
					e.Errorf("beaten was %+v", ids)
				}
			}
			e.WantHeld(keeper)
		}},
		{"a closed DB grants no locks", func(e *env) {
			db := e.Open(refdb.Options{})
			e.Must(db.Close())
			for name, lock := range map[string]func(context.Context, string, ...string) (*refdb.Lock, error){"TryLock": db.TryLock, "Lock": db.Lock} {
				if _, err := lock(e.Context(), e.Project, refA); !errors.Is(err, driver.ErrClosed) {
					e.Errorf("%s: %v", name, err)
				}
			}
			e.WantFree(refA)
		}},
	}
}

// wantBeats waits for two beats of a lock.
func wantBeats(e *env, ref string) {
	e.Helper()
	for range 2 {
		was := e.Row(ref).Heartbeat
		e.Eventually("a beat of "+ref, func() bool { return e.Row(ref).Heartbeat.After(was) })
	}
}

func lossRows() []row {
	return []row{
		{"P2 a lock that another process has taken is lost with the next beat, and can't write", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			l := e.Hold(e.Open(suite.FastHeartbeat()), refA, refB)
			ctx := l.Context()
			successor := e.Seize(l, refA)
			e.WantEnd(l, driver.ErrLockLost)
			e.WantLost(l.Err(), refA)
			e.WantCause(ctx, driver.ErrLockLost)
			e.WantClass(l.Update(e.Context(), []driver.Update{suite.Move(refA, v1, v2)}), driver.ErrLockLost, driver.StaleOwner)
			e.WantClass(l.UpdateAndRelease(e.Context(), []driver.Update{suite.Move(refA, v1, v2)}), driver.ErrLockLost, driver.StaleOwner)
			e.WantClass(l.Release(e.Context()), driver.ErrLockLost, driver.StaleOwner)
			e.WantClass(l.Release(e.Context()), driver.ErrLockLost, driver.StaleOwner)
			e.WantRefs(map[string]driver.Value{refA: v1})
			e.WantLock(successor)
			e.WantFree(refB)
		}},
		{"a lock that was purged is lost with the next beat", func(e *env) {
			l := e.Hold(e.Open(suite.FastHeartbeat()), refA, refB)
			if got := e.Purge(e.B, suite.Standing(suite.LockOf(l).IDs()[1])...); !got[0] {
				e.Fatal("it was not purged")
			}
			e.WantEnd(l, driver.ErrLockLost)
			e.WantLost(l.Err(), refB)
		}},
		{"a lock whose releasing update failed can still be lost, and reports the loss", func(e *env) {
			l := e.Hold(e.Open(suite.FastHeartbeat()), refA)
			e.WantMismatches(l.UpdateAndRelease(e.Context(), []driver.Update{suite.Move(refA, v1, v2)}), driver.Mismatch{Ref: refA, Want: v1})
			e.Seize(l, refA)
			e.WantEnd(l, driver.ErrLockLost)
		}},
		{"the loss of one lock does not affect the process's other locks", func(e *env) {
			db := e.Open(suite.FastHeartbeat())
			lost, kept := e.Hold(db, refA), e.Hold(db, refB)
			e.Seize(lost, refA)
			e.WantEnd(lost, driver.ErrLockLost)
			wantBeats(e, refB)
			e.WantHeld(kept)
		}},
		{"P2 a fenced update that finds its lock lost reports the loss at once, before any beat", func(e *env) {
			db, faulty := e.OpenFaulty(refdb.Options{StaleAfter: time.Hour, Heartbeat: 10 * time.Minute})
			l := e.Hold(db, refA)
			successor := e.Seize(l, refA)
			e.Must(l.Err())
			err := l.Update(e.Context(), []driver.Update{suite.Move(refA, "", v1)})
			e.WantClass(err, driver.ErrLockLost, driver.StaleOwner)
			e.WantLost(err, refA)
			e.WantEnd(l, driver.ErrLockLost)
			if n := faulty.Count("Beat"); n != 0 {
				e.Errorf("%d beats", n)
			}
			e.WantRefs(nil)
			e.WantLock(successor)
		}},
		{"P2 a release that finds its lock lost reports the loss, and leaves the successor's lock", func(e *env) {
			l := e.Hold(e.Open(refdb.Options{StaleAfter: time.Hour, Heartbeat: 10 * time.Minute}), refA, refB)
			successor := e.Seize(l, refA)
			err := l.Release(e.Context())
			e.WantClass(err, driver.ErrLockLost, driver.StaleOwner)
			e.WantLost(err, refA)
			e.WantLock(successor)
			e.WantFree(refB)
		}},
		{"P7 beats that fail for a while lose nothing", func(e *env) {
			db, faulty := e.OpenFaulty(suite.FastHeartbeat())
			l := e.Hold(db, refA)
			for _, failure := range []error{suite.ErrDown, suite.ErrLost, errors.New("a test's error of no known kind"), context.DeadlineExceeded} {
				failed := make(chan struct{})
				var n int
				faulty.Inject(func(c suite.Call) error { // beats are sent one at a time
					if c.Method != "Beat" {
						return c.Do()
					}
					if n++; n == 3 {
						close(failed)
					}
					return failure
				})
				suite.Receive(e, failed, "three beats")
				faulty.Inject(nil)
				wantBeats(e, refA)
				e.WantHeld(l)
			}
			e.Must(l.Update(e.Context(), []driver.Update{suite.Move(refA, "", v1)}))
		}},
		{"P4 a holder that can't reach the database knows the loss before another process can take the lock", func(e *env) {
			losesInTime(e, 0, func(c suite.Call) error { return suite.ErrDown })
		}},
		{"P4 a holder whose requests hang knows the loss in time", func(e *env) {
			losesInTime(e, 0, func(c suite.Call) error {
				<-c.Ctx.Done()
				return c.Ctx.Err()
			})
		}},
		{"P4 a holder whose beats arrive without a reply knows the loss in time", func(e *env) {
			losesInTime(e, 0, func(c suite.Call) error { return errors.Join(suite.ErrLost, c.Do()) })
		}},
		{"P4 a holder counts from the time of its request, not of the reply", func(e *env) {
			losesInTime(e, 0.25, func(c suite.Call) error { return suite.ErrDown })
		}},
		{"an unknown result for one lock affects only that lock", func(e *env) {
			d := &unsure{FaultyDriver: e.Faulty(), ref: refA}
			// On a slow machine beats may come too late for both.
			for staleAfter := 500 * time.Millisecond; ; staleAfter *= 2 {
				db := e.OpenOn(d, refdb.Options{StaleAfter: staleAfter})
				doubtful, sure := e.Hold(db, refA, refB), e.Hold(db, refC)
				e.WantEnd(doubtful, driver.ErrLockLost)
				if sure.Err() == nil || staleAfter > e.Patience()/4 {
					e.WantHeld(sure)
					return
				}
				_, _ = doubtful.Release(e.Context()), sure.Release(e.Context())
			}
		}},
	}
}

// losesInTime cuts a holder off from the database while a contender keeps trying to take its lock.
// When the contender succeeds, the holder must already know that it lost the lock. Until it is cut
// off, the holder's replies take a share of stale-after.
func losesInTime(e *env, share float64, cut func(suite.Call) error) {
	staleAfter := time.Second
	if share > 0 {
		staleAfter = 2 * time.Second // so that the share is longer than other delays
	}
	// A holder on a slow machine may lose its lock before it is cut off.
	for ; staleAfter <= e.Patience(); staleAfter *= 2 {
		if lostInTime(e, "refs/heads/"+staleAfter.String(), staleAfter, time.Duration(share*float64(staleAfter)), cut) {
			return
		}
	}
	e.Fatal("it always lost the lock before it was cut off")
}

// lostInTime reports whether the lock on ref was held until its holder was cut off.
func lostInTime(e *env, ref string, staleAfter, latency time.Duration, cut func(suite.Call) error) bool {
	db, faulty := e.OpenFaulty(refdb.Options{StaleAfter: staleAfter, Heartbeat: 50 * time.Millisecond})
	var mu sync.Mutex
	begun := time.Now() // when the next request begins, or earlier
	sent := begun       // when the last request that succeeded began, or earlier
	heard := begun      // when the last one began whose reply the holder has heard, or earlier
	// request makes a request of the holder, which asks again after it has heard the reply to what
	// it asked before.
	request := func(do func() error) error {
		mu.Lock()
		heard = sent
		mine := begun
		mu.Unlock()
		err := do()
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			sent = mine
		}
		begun = time.Now()
		return err
	}
	l, err := db.TryLock(e.Context(), e.Project, ref)
	if err != nil {
		e.WantClass(err, driver.ErrUnavailable, driver.Retryable) // it was granted too late
		return false
	}
	ctx := l.Context()
	beats := make(chan struct{}, 1000)
	faulty.Inject(func(c suite.Call) error {
		return request(func() error {
			err := c.Do()
			select {
			case <-time.After(latency):
			case <-c.Ctx.Done():
			}
			if err == nil && c.Method == "Beat" {
				beats <- struct{}{}
			}
			return err
		})
	})
	for range 3 { // the third is sent when the holder has heard the reply to the second
		select {
		case <-beats:
		case <-l.Done():
			return false
		}
	}
	faulty.Inject(func(c suite.Call) error { return request(func() error { return cut(c) }) })
	for deadline := time.Now().Add(e.Patience()); ; {
		if time.Now().After(deadline) {
			e.Fatal("nobody could take the lock of a holder that is cut off")
		}
		took, err := e.TryAcquire(e.B, ref)
		if !e.Refusal(err) {
			if err := l.Err(); !errors.Is(err, driver.ErrLockLost) {
				e.Errorf("another has the lock, and its holder believes: %v", err)
			}
			e.WantEnd(l, driver.ErrLockLost)
			e.WantCause(ctx, driver.ErrLockLost)
			e.WantLock(took)
			break
		}
		known := l.Err()
		mu.Lock()
		age := time.Since(heard)
		mu.Unlock()
		if known != nil && age < staleAfter/2 {
			e.Fatalf("it took the lock for lost %v after a beat, of %v", age, staleAfter)
		}
		if age < staleAfter*3/4 {
			time.Sleep(time.Millisecond) // from then on it must not miss the moment
		}
	}
	faulty.Inject(nil)
	e.WantClass(l.Update(e.Context(), []driver.Update{suite.Move(ref, "", v1)}), driver.ErrLockLost, driver.StaleOwner)
	e.WantRefs(nil)
	return true
}

// unsure is a driver whose beats of one ref have an unknown result.
type unsure struct {
	*suite.FaultyDriver
	ref string
}

func (d *unsure) Beat(ctx context.Context, locks []driver.LockID) ([]driver.BeatResult, error) {
	known := slices.DeleteFunc(slices.Clone(locks), func(l driver.LockID) bool { return l.Ref == d.ref })
	answers, err := d.FaultyDriver.Beat(ctx, known)
	if err != nil {
		return nil, err
	}
	results := make([]driver.BeatResult, len(locks))
	for i, l := range locks {
		if l.Ref != d.ref {
			results[i], answers = answers[0], answers[1:]
		}
	}
	return results, nil
}
