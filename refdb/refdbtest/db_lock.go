package refdbtest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

func dbLockRows() []row {
	return []row{
		{"a lock has its refs' values, its owner and its token", func(e *env) {
			db := e.open(refdb.Options{Site: "eu"})
			e.must(e.update(e.a, move(refA, "", v1), move(refB, "", refdb.Deleted)))
			l := e.hold(db, refC, refA, refB)
			if l.Project() != e.project || !slices.Equal(l.Refs(), []string{refA, refB, refC}) || l.Owner() != db.Owner() || l.Token() <= 0 {
				e.Errorf("got %q %q, owner %q, token %d", l.Project(), l.Refs(), l.Owner(), l.Token())
			}
			if l.Value(refA) != v1 || l.Value(refB) != refdb.Deleted || l.Value(refC) != refdb.Unknown {
				e.Errorf("the values are %q, %q, %q", l.Value(refA), l.Value(refB), l.Value(refC))
			}
			e.wantHeld(l)
		}},
		{"an owner is the site's name and what makes the process unique", func(e *env) {
			x, y := e.open(refdb.Options{Site: "eu"}), e.open(refdb.Options{Site: "eu"})
			if x.Owner() == y.Owner() || !strings.HasPrefix(x.Owner(), "eu/") || !strings.HasPrefix(y.Owner(), "eu/") {
				e.Errorf("the owners are %q and %q", x.Owner(), y.Owner())
			}
		}},
		{"a lock that is held refuses others, naming its holder", func(e *env) {
			x, y := e.open(refdb.Options{}), e.open(refdb.Options{})
			l := e.hold(x, refB)
			for _, db := range []*refdb.DB{x, y} {
				got, err := db.TryLock(e.Context(), e.project, refA, refB)
				if got != nil {
					e.Error("it was granted")
				}
				if h := e.wantHolders(err, refB); h[0].Owner != x.Owner() || h[0].Token != l.Token() || h[0].StaleAfter != refdb.DefaultStaleAfter {
					e.Errorf("the holders are %+v", h)
				}
				e.wantClass(err, refdb.ErrLocked, refdb.Retryable)
			}
			e.wantFree(refA)
			e.wantHeld(l)
		}},
		{"a stale lock is taken over, by what its holder relies on", func(e *env) {
			db := e.open(refdb.Options{})
			r := e.request(e.a, refA)
			r.StaleAfter = 2 * time.Hour
			old, err := e.send(e.a, r)
			e.must(err)
			e.age(old, time.Hour)
			_, err = db.TryLock(e.Context(), e.project, refA)
			e.wantHolders(err, refA)
			e.age(old, 90*time.Minute)
			if l := e.hold(db, refA); l.Token() <= old.Token {
				e.Errorf("token %d follows %d", l.Token(), old.Token)
			}
		}},
		{"locks are mandatory, even in the holder's own process, but for updates through them", func(e *env) {
			x, y := e.open(refdb.Options{}), e.open(refdb.Options{})
			l := e.hold(x, refA)
			for _, db := range []*refdb.DB{x, y} {
				e.wantClass(db.Update(e.Context(), e.project, []refdb.Update{move(refA, "", v1)}), refdb.ErrLocked, refdb.Retryable)
			}
			e.wantRefs(nil)
			e.must(l.Update(e.Context(), []refdb.Update{move(refA, "", v1)}))
			e.must(l.Update(e.Context(), []refdb.Update{move(refA, v1, v2), move(refB, "", v1)}))
			e.must(y.Update(e.Context(), e.project, []refdb.Update{move(refA, v2, v3)}, refdb.Advisory()))
			e.wantRefs(map[string]refdb.Value{refA: v3, refB: v1})
			e.wantHeld(l)
		}},
		{"an update through a lock that mismatches leaves the lock held", func(e *env) {
			l := e.hold(e.open(refdb.Options{}), refA)
			for _, update := range []func(context.Context, []refdb.Update, ...refdb.UpdateOption) error{l.Update, l.UpdateAndRelease} {
				e.wantMismatches(update(e.Context(), []refdb.Update{move(refA, v1, v2)}), refdb.Mismatch{Ref: refA, Want: v1})
				e.wantHeld(l)
			}
			e.must(l.Release(e.Context()))
			e.wantFree(refA)
		}},
		{"a release frees the lock, ends its context, and can be repeated", func(e *env) {
			db := e.open(refdb.Options{})
			l := e.hold(db, refA, refB)
			ctx := l.Context()
			e.must(ctx.Err())
			e.must(l.Release(e.Context()))
			e.wantFree(refA, refB)
			e.wantEnd(l, refdb.ErrReleased)
			e.wantCause(ctx, refdb.ErrReleased)
			next := e.hold(db, refA)
			e.must(l.Release(e.Context()))
			e.wantHeld(next)
		}},
		{"what was released writes nothing any more", func(e *env) {
			db := e.open(refdb.Options{})
			l := e.hold(db, refA)
			e.must(l.Release(e.Context()))
			e.hold(db, refA)
			e.wantClass(l.Update(e.Context(), []refdb.Update{move(refA, "", v1)}), refdb.ErrReleased, refdb.StaleOwner)
			e.wantClass(l.UpdateAndRelease(e.Context(), []refdb.Update{move(refA, "", v1)}), refdb.ErrReleased, refdb.StaleOwner)
			e.wantRefs(nil)
		}},
		{"an update that releases writes, frees and ends the lock at once", func(e *env) {
			db := e.open(quick())
			l := e.hold(db, refA, refB)
			e.must(l.UpdateAndRelease(e.Context(), []refdb.Update{move(refA, "", v1)}))
			e.wantRefs(map[string]refdb.Value{refA: v1})
			e.wantFree(refA, refB)
			e.wantEnd(l, refdb.ErrReleased)
			e.must(l.Release(e.Context()))
			if next := e.hold(e.open(refdb.Options{}), refA); next.Value(refA) != v1 {
				e.Errorf("the next holder has %q", next.Value(refA))
			}
		}},
		{"a release frees the lock even if the caller's context has ended", func(e *env) {
			l := e.hold(e.open(refdb.Options{}), refA)
			ctx, cancel := context.WithCancel(e.Context())
			cancel()
			e.must(l.Release(ctx))
			e.wantFree(refA)
		}},
		{"a lock's context carries the values of the caller's, and outlives it", func(e *env) {
			type name struct{}
			ctx, cancel := context.WithCancel(context.WithValue(e.Context(), name{}, "value"))
			l, err := e.open(refdb.Options{}).TryLock(ctx, e.project, refA)
			e.must(err)
			cancel()
			if got := l.Context(); got.Err() != nil || got.Value(name{}) != "value" {
				e.Errorf("it is %v, its value %v", got.Err(), got.Value(name{}))
			}
			e.must(l.Update(l.Context(), []refdb.Update{move(refA, "", v1)}))
		}},
		{"the heartbeat runs while a lock is held, and a reclaimed one's too", func(e *env) {
			l := e.hold(e.open(quick()), refA, refB)
			e.wantBeats(refA)
			e.wantBeats(refB)
			e.wantHeld(l)

			e.age(e.acquire(e.a, refC), stale)
			next := e.hold(e.open(quick()), refC)
			e.wantBeats(refC)
			e.wantHeld(next)
		}},
		{"the heartbeat ends with the DB, and leaves the rows to grow stale", func(e *env) {
			db, tap := e.openTapped(quick())
			l, released := e.hold(db, refA), e.hold(db, refB)
			ctx := l.Context()
			e.wantBeats(refA)
			e.must(released.Release(e.Context()))
			e.must(db.Close())
			e.wantEnd(l, refdb.ErrClosed)
			e.wantEnd(released, refdb.ErrReleased)
			e.wantCause(ctx, refdb.ErrClosed)
			beats := tap.count("Beat")
			e.wantLock(lockOf(l))
			e.wantFree(refB)
			e.must(db.Close())
			if n := tap.count("Beat"); n != beats {
				e.Errorf("%d beats after Close", n-beats)
			}
		}},
		{"the heartbeat ends with the release", func(e *env) {
			db, tap := e.openTapped(quick())
			l := e.hold(db, refA)
			e.wantBeats(refA)
			e.must(l.Release(e.Context()))
			keeper := e.hold(db, refB) // what is beaten from now on
			beaten := make(chan []refdb.LockID, 100)
			tap.do(func(c call) error {
				if c.method == "Beat" {
					select {
					case beaten <- c.arg.([]refdb.LockID):
					default:
					}
				}
				return c.do()
			})
			receive(e, beaten, "a beat") // may have begun before the release
			for range 3 {
				if ids := receive(e, beaten, "a beat"); len(ids) != 1 || ids[0].Ref != refB {
					e.Errorf("beaten was %+v", ids)
				}
			}
			e.wantHeld(keeper)
		}},
		{"a closed DB grants no locks", func(e *env) {
			db := e.open(refdb.Options{})
			e.must(db.Close())
			for name, lock := range map[string]func(context.Context, string, ...string) (*refdb.Lock, error){"TryLock": db.TryLock, "Lock": db.Lock} {
				if _, err := lock(e.Context(), e.project, refA); !errors.Is(err, refdb.ErrClosed) {
					e.Errorf("%s: %v", name, err)
				}
			}
			e.wantFree(refA)
		}},
	}
}

// wantBeats waits until a lock has been beaten twice.
func (e *env) wantBeats(ref string) {
	e.Helper()
	for range 2 {
		was := e.row(ref).Heartbeat
		e.eventually("a beat of "+ref, func() bool { return e.row(ref).Heartbeat.After(was) })
	}
}
