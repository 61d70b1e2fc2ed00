package refdbtest

import (
	"context"
	"errors"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// P7: a reply that was lost says nothing of the request. A row comes in two
// kinds: the request was carried out (lose), or never arrived (drop).
func dbReplyRows() []row {
	return []row{
		{"P7 an acquisition whose reply was lost is made once", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1)))
			for _, fault := range []func(string) func(call) error{lose, drop} {
				db, tap := e.openTapped(refdb.Options{})
				tap.do(fault("Acquire"))
				l := e.hold(db, refA, refB)
				if l.Value(refA) != v1 || tap.count("Acquire") != 2 {
					e.Errorf("it has %q after %d requests", l.Value(refA), tap.count("Acquire"))
				}
				e.wantHeld(l)
				e.must(l.Update(e.Context(), []refdb.Update{move(refB, "", refdb.Deleted)}))
				e.must(l.Release(e.Context()))
				e.wantFree(refA, refB)
			}
		}},
		{"P7 an acquisition that lost its reply and then a part of its locks is refused, and leaves nothing", func(e *env) {
			db, tap := e.openTapped(refdb.Options{})
			var other lock
			tap.do(first("Acquire", func(c call) error {
				e.must(c.do())
				e.db.Age(e, e.project, refB, stale)
				other = e.acquire(e.b, refB)
				return errLost
			}))
			_, err := db.TryLock(e.Context(), e.project, refA, refB)
			e.wantHolders(err, refB)
			e.wantFree(refA)
			e.wantLock(other)
		}},
		{"P7 an acquisition that nobody can tell the outcome of is cleaned up", func(e *env) {
			db, tap := e.openTapped(refdb.Options{})
			tap.do(func(c call) error {
				if c.method == "Acquire" {
					return errors.Join(errLost, c.do())
				}
				return c.do()
			})
			l, err := db.TryLock(e.Context(), e.project, refA, refB)
			if l != nil || err == nil {
				e.Fatalf("got %v, %v", l, err)
			}
			if class := refdb.ClassOf(err); class != refdb.Retryable && class != refdb.OutcomeUnknown {
				e.Errorf("%v is %v", err, class)
			}
			e.eventually("no lock is left", func() bool { return e.free(refA, refB) })
		}},
		{"P7 an acquisition whose caller gave up while it was carried out is cleaned up", func(e *env) {
			db, tap := e.openTapped(refdb.Options{})
			ctx, cancel := context.WithCancel(e.Context())
			defer cancel()
			tap.do(first("Acquire", func(c call) error {
				e.must(c.do())
				cancel()
				return errors.Join(errLost, c.ctx.Err())
			}))
			_, err := db.TryLock(ctx, e.project, refA, refB)
			if !errors.Is(err, context.Canceled) {
				e.Errorf("got %v", err)
			}
			e.eventually("no lock is left", func() bool { return e.free(refA, refB) })
		}},
		{"P7 an update whose reply was lost is found to have happened, and is not repeated", func(e *env) {
			db, tap := e.openTapped(refdb.Options{})
			tap.do(lose("Update"))
			e.must(db.Update(e.Context(), e.project, []refdb.Update{move(refA, "", v1), move(refB, "", v1)}))
			e.wantRefs(map[string]refdb.Value{refA: v1, refB: v1})
			if n := tap.count("Update"); n != 1 {
				e.Errorf("it was sent %d times", n)
			}
			tap.do(lose("Update"))
			if put, err := db.CompareAndPut(e.Context(), e.project, refA, v1, v2); !put || err != nil {
				e.Errorf("compare-and-put: %v, %v", put, err)
			}
			tap.do(lose("Update"))
			if old, err := db.Put(e.Context(), e.project, refA, v3); old != v2 || err != nil {
				e.Errorf("put: %q, %v", old, err)
			}
			e.wantRefs(map[string]refdb.Value{refA: v3, refB: v1})
		}},
		{"P7 an update that never arrived, or may yet, has an unknown outcome", func(e *env) {
			db, tap := e.openTapped(refdb.Options{})
			tap.do(drop("Update"))
			e.wantClass(db.Update(e.Context(), e.project, []refdb.Update{move(refA, "", v1)}), refdb.ErrOutcomeUnknown, refdb.OutcomeUnknown)
			tap.do(drop("Update"))
			put, err := db.CompareAndPut(e.Context(), e.project, refA, "", v1)
			if put {
				e.Error("it was put")
			}
			e.wantClass(err, refdb.ErrOutcomeUnknown, refdb.OutcomeUnknown)
			e.wantRefs(nil)
		}},
		{"P7 an update that was overwritten before it could be looked for has an unknown outcome", func(e *env) {
			db, tap := e.openTapped(refdb.Options{})
			tap.do(first("Update", func(c call) error {
				e.must(c.do())
				e.must(e.update(e.b, move(refA, v1, v2)))
				e.must(e.update(e.b, move(refA, v2, v1))) // an equal value, of somebody else
				return errLost
			}))
			err := db.Update(e.Context(), e.project, []refdb.Update{move(refA, "", v1)})
			e.wantClass(err, refdb.ErrOutcomeUnknown, refdb.OutcomeUnknown)
		}},
		{"P7 an equal write of somebody else is not taken for one's own", func(e *env) {
			db, tap := e.openTapped(refdb.Options{})
			tap.do(first("Update", func(call) error {
				e.must(e.update(e.b, move(refA, "", v1)))
				return errLost
			}))
			err := db.Update(e.Context(), e.project, []refdb.Update{move(refA, "", v1)})
			e.wantClass(err, refdb.ErrOutcomeUnknown, refdb.OutcomeUnknown)
		}},
		{"P7 an update whose reply was lost, and that can't be looked for, has an unknown outcome", func(e *env) {
			db, tap := e.openTapped(refdb.Options{})
			var lost bool
			tap.do(func(c call) error {
				if lost {
					return errDown
				}
				lost = true
				return errors.Join(errLost, c.do())
			})
			err := db.Update(e.Context(), e.project, []refdb.Update{move(refA, "", v1)})
			e.wantClass(err, refdb.ErrOutcomeUnknown, refdb.OutcomeUnknown)
		}},
		{"P7 a fenced update whose reply was lost happens once", func(e *env) {
			for i, fault := range []func(string) func(call) error{lose, drop} {
				db, tap := e.openTapped(quick())
				ref := []string{refA, refB}[i]
				l := e.hold(db, ref)
				tap.do(fault("Update"))
				e.must(l.Update(e.Context(), []refdb.Update{move(ref, "", v1)}))
				tap.do(fault("Update"))
				e.must(l.Update(e.Context(), []refdb.Update{move(ref, v1, v2)}))
				if got := e.getOne(ref).Value; got != v2 {
					e.Errorf("it holds %q", got)
				}
				e.wantHeld(l)
			}
		}},
		{"P7 an update that releases and whose reply was lost happens once, and is no loss", func(e *env) {
			for i, fault := range []func(string) func(call) error{lose, drop} {
				db, tap := e.openTapped(quick())
				ref := []string{refA, refB}[i]
				l := e.hold(db, ref, refC)
				tap.do(fault("Update"))
				e.must(l.UpdateAndRelease(e.Context(), []refdb.Update{move(ref, "", v1)}))
				if got := e.getOne(ref).Value; got != v1 {
					e.Errorf("it holds %q", got)
				}
				e.wantEnd(l, refdb.ErrReleased)
				e.wantFree(ref, refC)
			}
		}},
		{"P7 an update that releases and arrives late, after it was sent again, is no loss", func(e *env) {
			db, tap := e.openTapped(quick())
			l := e.hold(db, refA)
			var late func() error
			tap.do(func(c call) error {
				switch {
				case c.method != "Update":
					return c.do()
				case late == nil:
					late = c.do
					return errLost
				default:
					e.must(late())
					return c.do()
				}
			})
			e.must(l.UpdateAndRelease(e.Context(), []refdb.Update{move(refA, "", v1)}))
			e.wantRefs(map[string]refdb.Value{refA: v1})
			e.wantEnd(l, refdb.ErrReleased)
			e.wantFree(refA)
		}},
		{"P7 after an update that releases, with an unknown outcome, a release claims no loss", func(e *env) {
			for _, o := range []refdb.Options{{}, quick()} {
				db, tap := e.openTapped(o)
				l := e.hold(db, refA)
				var lost bool
				tap.do(func(c call) error {
					switch {
					case c.method == "Update" && !lost:
						lost = true
						return errors.Join(errLost, c.do())
					case c.method == "Get" && lost: // what became of it can't be found out
						return errDown
					default:
						return c.do()
					}
				})
				err := l.UpdateAndRelease(e.Context(), []refdb.Update{move(refA, "", refdb.Deleted)})
				e.wantClass(err, refdb.ErrOutcomeUnknown, refdb.OutcomeUnknown)
				if err := l.Release(e.Context()); errors.Is(err, refdb.ErrLockLost) {
					e.Errorf("the lock was not lost, but: %v", err)
				}
			}
		}},
		{"P7 a beat that runs into an update that releases is no loss", func(e *env) {
			db, tap := e.openTapped(quick())
			l := e.hold(db, refA)
			released := make(chan struct{})
			beating := make(chan struct{})
			tap.do(first("Beat", func(c call) error {
				close(beating)
				<-released // the rows are gone when this beat arrives
				return c.do()
			}))
			receive(e, beating, "a beat")
			tap.do(func(c call) error {
				err := c.do()
				if c.method == "Update" {
					close(released)
					// A beat of another lock proves that the late one was answered.
					other := e.hold(db, refB)
					e.wantBeats(refB)
					e.wantHeld(other)
				}
				return err
			})
			e.must(l.UpdateAndRelease(e.Context(), []refdb.Update{move(refA, "", v1)}))
			e.wantEnd(l, refdb.ErrReleased)
		}},
		{"P7 a release whose reply was lost is no loss, and leaves nothing", func(e *env) {
			for _, fault := range []func(string) func(call) error{lose, drop} {
				db, tap := e.openTapped(quick())
				l := e.hold(db, refA, refB)
				tap.do(fault("Release"))
				e.must(l.Release(e.Context()))
				e.wantEnd(l, refdb.ErrReleased)
				e.wantFree(refA, refB)
				e.must(l.Release(e.Context()))
			}
		}},
		{"a release that could not be sent can be tried again", func(e *env) {
			db, tap := e.openTapped(refdb.Options{})
			l := e.hold(db, refA)
			tap.do(func(call) error { return errDown })
			e.wantClass(l.Release(e.Context()), refdb.ErrUnavailable, refdb.Retryable)
			e.wantEnd(l, refdb.ErrReleased)
			tap.do(nil)
			e.must(l.Release(e.Context()))
			e.wantFree(refA)
		}},
		{"P7 a beat whose reply was lost is no loss, and the token stays", func(e *env) {
			db, tap := e.openTapped(refdb.Options{StaleAfter: 10 * time.Second, Heartbeat: 20 * time.Millisecond})
			l := e.hold(db, refA)
			answered := make(chan struct{})
			tap.do(first("Beat", func(c call) error {
				defer close(answered)
				return errors.Join(errLost, c.do())
			}))
			receive(e, answered, "a beat")
			e.wantBeats(refA)
			e.wantHeld(l)
		}},
		{"what the database certainly didn't do is tried again, a few times", func(e *env) {
			db, tap := e.openTapped(refdb.Options{})
			for _, method := range []string{"Get", "Update", "Acquire", "Release", "PurgeTombstones", "Remove"} {
				tap.do(first(method, func(call) error { return errDown }))
				e.must(db.Update(e.Context(), e.project, []refdb.Update{move(refA, "", refdb.Deleted)}))
				e.must(e.hold(db, refA).Release(e.Context()))
				_, err := db.Get(e.Context(), e.project, refA)
				e.must(err)
				_, err = db.PurgeTombstones(e.Context(), e.project, 0)
				e.must(err)
				_, err = db.RemoveProject(e.Context(), e.project)
				e.must(err)
			}
			tap.do(func(call) error { return errDown })
			e.wantClass(db.Update(e.Context(), e.project, []refdb.Update{move(refA, "", v1)}), refdb.ErrUnavailable, refdb.Retryable)
			_, err := db.TryLock(e.Context(), e.project, refA)
			e.wantClass(err, refdb.ErrUnavailable, refdb.Retryable)
			_, err = db.Get(e.Context(), e.project, refA)
			e.wantClass(err, refdb.ErrUnavailable, refdb.Retryable)
		}},
	}
}
