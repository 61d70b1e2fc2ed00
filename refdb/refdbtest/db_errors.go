package refdbtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// What no request may ask for is refused before the database is asked.
func dbRefusedRows() []row {
	return []row{
		{"P10 an invalid project is refused before the database is asked", func(e *env) {
			long := strings.Repeat("x", refdb.MaxNameBytes-len(refA)+1)
			db, driver := e.openFaulty(refdb.Options{})
			for _, name := range []string{"", "a\x00b", "\xff", "a\xc3", refdb.ReclaimPrefix, refdb.ReclaimPrefix + "a", marker("a", 1), long, strings.Repeat("x", 100_000)} {
				e.refusedByAll(db, name, refA)
				e.wantNotAsked(driver, name)
			}
		}},
		{"P10 an invalid ref is refused before the database is asked", func(e *env) {
			db, driver := e.openFaulty(refdb.Options{})
			for _, name := range invalidRefs() {
				e.refusedByAll(db, e.project, name)
				e.wantNotAsked(driver, name)
			}
		}},
		{"P10 names that are as long as they may be are not refused", func(e *env) {
			db := e.open(refdb.Options{})
			ref := "refs/heads/" + incompressible(refdb.MaxNameBytes-len("refs/heads/")-len(e.project))
			e.must(db.Update(e.Context(), e.project, []refdb.Update{move(ref, "", v1)}))
			l := e.hold(db, ref)
			e.wantLocked(l, ref, v1)
			e.must(l.UpdateAndRelease(e.Context(), []refdb.Update{move(ref, v1, v2)}))
		}},
		{"an invalid value is refused before the database is asked", func(e *env) {
			db, driver := e.openFaulty(refdb.Options{})
			l := e.hold(db, refB)
			asked := driver.count("")
			for _, v := range []refdb.Value{"\xff", "a\x00", refdb.Value(strings.Repeat("x", refdb.MaxValueBytes+1)), "ref: ", "ref: main", "ref: refs/heads/a b"} {
				for name, err := range map[string]error{
					"Update to":        db.Update(e.Context(), e.project, []refdb.Update{move(refA, "", v)}),
					"Update from":      db.Update(e.Context(), e.project, []refdb.Update{move(refA, v, v1)}),
					"Lock.Update":      l.Update(e.Context(), []refdb.Update{move(refB, "", v)}),
					"UpdateAndRelease": l.UpdateAndRelease(e.Context(), []refdb.Update{move(refB, "", v)}),
					"CompareAndPut":    errorOf(db.CompareAndPut(e.Context(), e.project, refA, "", v)),
					"IsUpToDate":       errorOf(db.IsUpToDate(e.Context(), e.project, refA, v)),
				} {
					if err == nil {
						e.Errorf("%s %.20q was not refused", name, v)
						continue
					}
					e.wantClass(err, refdb.ErrInvalid, refdb.Permanent)
				}
			}
			if n := driver.count("") - asked; n != 0 {
				e.Errorf("the database was asked %d times", n)
			}
			e.wantHeld(l)
		}},
		{"an empty value to write is refused before the database is asked: a zero ID deletes", func(e *env) {
			db, driver := e.openFaulty(refdb.Options{})
			e.must(e.update(e.a, move(refA, "", v1), move(refB, "", v1)))
			l := e.hold(db, refB)
			asked := driver.count("")
			empty := []refdb.Update{move(refB, v1, refdb.Unknown)}
			for name, err := range map[string]error{
				"Update":           db.Update(e.Context(), e.project, []refdb.Update{move(refC, "", v1), move(refA, v1, refdb.Unknown)}),
				"Under":            db.Update(e.Context(), e.project, empty, refdb.Under(l.Owner(), l.Token(), refB)),
				"Advisory":         db.Update(e.Context(), e.project, empty, refdb.Advisory()),
				"Lock.Update":      l.Update(e.Context(), empty),
				"UpdateAndRelease": l.UpdateAndRelease(e.Context(), empty),
				"CompareAndPut":    errorOf(db.CompareAndPut(e.Context(), e.project, refA, v1, refdb.Unknown)),
				"Put":              errorOf(db.Put(e.Context(), e.project, refA, refdb.Unknown)),
				"Prepare":          errorOf(db.Prepare(e.Context(), e.project, []refdb.Update{move(refA, v1, refdb.Unknown)}, agent)),
			} {
				if err == nil {
					e.Errorf("%s was not refused", name)
					continue
				}
				e.wantClass(err, refdb.ErrInvalid, refdb.Permanent)
			}
			if n := driver.count(""); n != asked {
				e.Errorf("the database was asked %d times", n-asked)
			}
			e.wantRefs(map[string]refdb.Value{refA: v1, refB: v1})
			e.wantHeld(l)
		}},
		{"a ref outside of a lock has no value in it, and is not written through it", func(e *env) {
			db, driver := e.openFaulty(refdb.Options{})
			l := e.hold(db, refA, refC)
			under := refdb.Under(l.Owner(), l.Token(), refA, refC)
			asked := driver.count("")
			for _, updates := range [][]refdb.Update{{move(refB, "", v1)}, {move(refA, "", v1), move(refB, "", v1), move(refC, "", v1)}} {
				for name, err := range map[string]error{
					"Value":            errorOf(l.Value(refB)),
					"Lock.Update":      l.Update(e.Context(), updates),
					"UpdateAndRelease": l.UpdateAndRelease(e.Context(), updates),
					"Under":            db.Update(e.Context(), e.project, updates, under),
				} {
					if err == nil {
						e.Errorf("%s of %d refs was not refused", name, len(updates))
						continue
					}
					e.wantClass(err, refdb.ErrInvalid, refdb.Permanent)
					if !strings.Contains(err.Error(), refB) {
						e.Errorf("%s does not name the ref: %v", name, err)
					}
				}
			}
			if n := driver.count(""); n != asked {
				e.Errorf("the database was asked %d times", n-asked)
			}
			e.wantRefs(nil)
			e.wantHeld(l)
		}},
		{"too many refs are refused before the database is asked", func(e *env) {
			db, driver := e.openFaulty(refdb.Options{})
			refs := make([]string, refdb.MaxUpdateRefs+1)
			updates := make([]refdb.Update, len(refs))
			for i := range refs {
				refs[i] = fmt.Sprintf("refs/heads/%d", i)
				updates[i] = move(refs[i], "", v1)
			}
			ended, cancel := context.WithCancel(e.Context())
			cancel() // so that a Lock that is not refused doesn't wait
			for name, err := range map[string]error{
				"Update":  db.Update(e.Context(), e.project, updates),
				"TryLock": errorOf(db.TryLock(e.Context(), e.project, refs[:refdb.MaxLockRefs+1]...)),
				"Lock":    errorOf(db.Lock(ended, e.project, refs[:refdb.MaxLockRefs+1]...)),
				"GetAll":  errorOf(db.GetAll(e.Context(), e.project, refs...)),
			} {
				if err == nil {
					e.Errorf("%s was not refused", name)
					continue
				}
				e.wantClass(err, refdb.ErrTooMany, refdb.Permanent)
			}
			if n := driver.count(""); n != 0 {
				e.Errorf("the database was asked %d times", n)
			}
		}},
		{"a request about no ref, or about one twice, is refused before the database is asked", func(e *env) {
			db, driver := e.openFaulty(refdb.Options{})
			for name, err := range map[string]error{
				"Update of none":        db.Update(e.Context(), e.project, nil),
				"Update of one as two":  db.Update(e.Context(), e.project, []refdb.Update{move(refA, "", v1), move(refB, "", v1), move(refA, "", v2)}),
				"TryLock of none":       errorOf(db.TryLock(e.Context(), e.project)),
				"TryLock of one as two": errorOf(db.TryLock(e.Context(), e.project, refA, refB, refA)),
			} {
				if err == nil {
					e.Errorf("%s was not refused", name)
					continue
				}
				e.wantClass(err, refdb.ErrInvalid, refdb.Permanent)
			}
			if n := driver.count(""); n != 0 {
				e.Errorf("the database was asked %d times", n)
			}
		}},
		{"options that can't work are refused, and the driver left to the caller", func(e *env) {
			for _, o := range []refdb.Options{
				{Site: "a/b"}, {Site: "\xff"}, {Site: "a\x00"}, {Site: strings.Repeat("x", 10_000)},
				{StaleAfter: time.Nanosecond}, {StaleAfter: -time.Second},
				{Heartbeat: -time.Second}, {Heartbeat: 11 * time.Second, StaleAfter: 30 * time.Second}, {Heartbeat: time.Minute},
				{MaxWait: -1},
			} {
				if _, err := refdb.New(e.a.Driver, o); err == nil {
					e.Errorf("%+v was not refused", o)
				} else {
					e.wantClass(err, refdb.ErrInvalid, refdb.Permanent)
				}
			}
			e.must(e.update(e.a, move(refA, "", v1)))
		}},
	}
}

// P7: a lost reply says nothing about the request, which was carried out (loseReply) or
// never arrived (loseRequest).
func dbReplyRows() []row {
	return []row{
		{"P7 an acquisition whose reply was lost is made once", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1)))
			for _, fault := range []func(string) func(call) error{loseReply, loseRequest} {
				db, driver := e.openFaulty(refdb.Options{})
				driver.inject(fault("Acquire"))
				l := e.hold(db, refA, refB)
				e.wantLocked(l, refA, v1)
				if n := driver.count("Acquire"); n != 2 {
					e.Errorf("it took %d requests", n)
				}
				e.wantHeld(l)
				e.must(l.Update(e.Context(), []refdb.Update{move(refB, "", refdb.Deleted)}))
				e.must(l.Release(e.Context()))
				e.wantFree(refA, refB)
			}
		}},
		{"P7 an acquisition that lost its reply and then a part of its locks is refused, and leaves nothing", func(e *env) {
			db, driver := e.openFaulty(refdb.Options{})
			var other lock
			driver.inject(onFirst("Acquire", func(c call) error {
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
			db, driver := e.openFaulty(refdb.Options{})
			driver.inject(func(c call) error {
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
			db, driver := e.openFaulty(refdb.Options{})
			ctx, cancel := context.WithCancel(e.Context())
			defer cancel()
			driver.inject(onFirst("Acquire", func(c call) error {
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
			db, driver := e.openFaulty(refdb.Options{})
			driver.inject(loseReply("Update"))
			e.must(db.Update(e.Context(), e.project, []refdb.Update{move(refA, "", v1), move(refB, "", v1)}))
			e.wantRefs(map[string]refdb.Value{refA: v1, refB: v1})
			if n := driver.count("Update"); n != 1 {
				e.Errorf("it was sent %d times", n)
			}
			driver.inject(loseReply("Update"))
			if put, err := db.CompareAndPut(e.Context(), e.project, refA, v1, v2); !put || err != nil {
				e.Errorf("compare-and-put: %v, %v", put, err)
			}
			driver.inject(loseReply("Update"))
			if old, err := db.Put(e.Context(), e.project, refA, v3); old != v2 || err != nil {
				e.Errorf("put: %q, %v", old, err)
			}
			e.wantRefs(map[string]refdb.Value{refA: v3, refB: v1})
		}},
		{"P7 an update that never arrived, or may yet, has an unknown outcome", func(e *env) {
			db, driver := e.openFaulty(refdb.Options{})
			driver.inject(loseRequest("Update"))
			e.wantClass(db.Update(e.Context(), e.project, []refdb.Update{move(refA, "", v1)}), refdb.ErrOutcomeUnknown, refdb.OutcomeUnknown)
			driver.inject(loseRequest("Update"))
			put, err := db.CompareAndPut(e.Context(), e.project, refA, "", v1)
			if put {
				e.Error("it was put")
			}
			e.wantClass(err, refdb.ErrOutcomeUnknown, refdb.OutcomeUnknown)
			e.wantRefs(nil)
		}},
		{"P7 an update that was overwritten before it could be looked for has an unknown outcome", func(e *env) {
			db, driver := e.openFaulty(refdb.Options{})
			driver.inject(onFirst("Update", func(c call) error {
				e.must(c.do())
				e.must(e.update(e.b, move(refA, v1, v2)))
				e.must(e.update(e.b, move(refA, v2, v1))) // an equal value, written by another
				return errLost
			}))
			err := db.Update(e.Context(), e.project, []refdb.Update{move(refA, "", v1)})
			e.wantClass(err, refdb.ErrOutcomeUnknown, refdb.OutcomeUnknown)
		}},
		{"P7 an equal write of somebody else is not taken for one's own", func(e *env) {
			db, driver := e.openFaulty(refdb.Options{})
			driver.inject(onFirst("Update", func(call) error {
				e.must(e.update(e.b, move(refA, "", v1)))
				return errLost
			}))
			err := db.Update(e.Context(), e.project, []refdb.Update{move(refA, "", v1)})
			e.wantClass(err, refdb.ErrOutcomeUnknown, refdb.OutcomeUnknown)
		}},
		{"P7 an update whose reply was lost, and that can't be looked for, has an unknown outcome", func(e *env) {
			db, driver := e.openFaulty(refdb.Options{})
			var lost bool
			driver.inject(func(c call) error {
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
			for i, fault := range []func(string) func(call) error{loseReply, loseRequest} {
				db, driver := e.openFaulty(fastHeartbeat())
				ref := []string{refA, refB}[i]
				l := e.hold(db, ref)
				driver.inject(fault("Update"))
				e.must(l.Update(e.Context(), []refdb.Update{move(ref, "", v1)}))
				driver.inject(fault("Update"))
				e.must(l.Update(e.Context(), []refdb.Update{move(ref, v1, v2)}))
				if got := e.getOne(ref).Value; got != v2 {
					e.Errorf("it holds %q", got)
				}
				e.wantHeld(l)
			}
		}},
		{"P7 an update that releases and whose reply was lost happens once, and is no loss", func(e *env) {
			for i, fault := range []func(string) func(call) error{loseReply, loseRequest} {
				db, driver := e.openFaulty(fastHeartbeat())
				ref := []string{refA, refB}[i]
				l := e.hold(db, ref, refC)
				driver.inject(fault("Update"))
				e.must(l.UpdateAndRelease(e.Context(), []refdb.Update{move(ref, "", v1)}))
				if got := e.getOne(ref).Value; got != v1 {
					e.Errorf("it holds %q", got)
				}
				e.wantEnd(l, refdb.ErrReleased)
				e.wantFree(ref, refC)
			}
		}},
		{"P7 an update that releases and arrives late, after it was sent again, is no loss", func(e *env) {
			db, driver := e.openFaulty(fastHeartbeat())
			l := e.hold(db, refA)
			driver.inject(e.delayRequest("Update"))
			e.must(l.UpdateAndRelease(e.Context(), []refdb.Update{move(refA, "", v1)}))
			e.wantRefs(map[string]refdb.Value{refA: v1})
			e.wantEnd(l, refdb.ErrReleased)
			e.wantFree(refA)
		}},
		{"P7 after an update that releases, with an unknown outcome, a release claims no loss", func(e *env) {
			for _, o := range []refdb.Options{{}, fastHeartbeat()} {
				db, driver := e.openFaulty(o)
				l := e.hold(db, refA)
				var lost bool
				driver.inject(func(c call) error {
					switch {
					case c.method == "Update" && !lost:
						lost = true
						return errors.Join(errLost, c.do())
					case c.method == "Get" && lost: // so that the outcome can't be read
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
			db, driver := e.openFaulty(fastHeartbeat())
			l := e.hold(db, refA)
			released := make(chan struct{})
			beating := make(chan struct{})
			driver.inject(onFirst("Beat", func(c call) error {
				close(beating)
				<-released // when this beat arrives the rows are gone
				return c.do()
			}))
			receive(e, beating, "a beat")
			driver.inject(func(c call) error {
				err := c.do()
				if c.method == "Update" {
					close(released)
					// A beat of another lock shows that the late one was answered.
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
			for _, fault := range []func(string) func(call) error{loseReply, loseRequest} {
				db, driver := e.openFaulty(fastHeartbeat())
				l := e.hold(db, refA, refB)
				driver.inject(fault("Release"))
				e.must(l.Release(e.Context()))
				e.wantEnd(l, refdb.ErrReleased)
				e.wantFree(refA, refB)
				e.must(l.Release(e.Context()))
			}
		}},
		{"a release that could not be sent can be tried again", func(e *env) {
			db, driver := e.openFaulty(refdb.Options{})
			l := e.hold(db, refA)
			driver.inject(func(call) error { return errDown })
			e.wantClass(l.Release(e.Context()), refdb.ErrUnavailable, refdb.Retryable)
			e.wantEnd(l, refdb.ErrReleased)
			driver.inject(nil)
			e.must(l.Release(e.Context()))
			e.wantFree(refA)
		}},
		{"P7 a beat whose reply was lost is no loss, and the token stays", func(e *env) {
			db, driver := e.openFaulty(refdb.Options{StaleAfter: 10 * time.Second, Heartbeat: 20 * time.Millisecond})
			l := e.hold(db, refA)
			answered := make(chan struct{})
			driver.inject(onFirst("Beat", func(c call) error {
				defer close(answered)
				return errors.Join(errLost, c.do())
			}))
			receive(e, answered, "a beat")
			e.wantBeats(refA)
			e.wantHeld(l)
		}},
		{"what the database certainly didn't do is tried again, a few times", func(e *env) {
			db, driver := e.openFaulty(refdb.Options{})
			for _, method := range []string{"Get", "Update", "Acquire", "Release", "PurgeTombstones", "Remove"} {
				driver.inject(onFirst(method, func(call) error { return errDown }))
				e.must(db.Update(e.Context(), e.project, []refdb.Update{move(refA, "", refdb.Deleted)}))
				e.must(e.hold(db, refA).Release(e.Context()))
				_, err := db.Get(e.Context(), e.project, refA)
				e.must(err)
				_, err = db.PurgeTombstones(e.Context(), e.project, 0)
				e.must(err)
				_, err = db.RemoveProject(e.Context(), e.project)
				e.must(err)
			}
			driver.inject(func(call) error { return errDown })
			e.wantClass(db.Update(e.Context(), e.project, []refdb.Update{move(refA, "", v1)}), refdb.ErrUnavailable, refdb.Retryable)
			_, err := db.TryLock(e.Context(), e.project, refA)
			e.wantClass(err, refdb.ErrUnavailable, refdb.Retryable)
			_, err = db.Get(e.Context(), e.project, refA)
			e.wantClass(err, refdb.ErrUnavailable, refdb.Retryable)
		}},
	}
}
