package db

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/suite"
)

// What no request may ask for is refused before the database is asked.
func refusedRows() []row {
	return []row{
		{"P10 an invalid project is refused before the database is asked", func(e *env) {
			long := strings.Repeat("x", driver.MaxNameBytes-len(refA)+1)
			db, faulty := e.OpenFaulty(refdb.Options{})
			for _, name := range []string{"", "a\x00b", "\xff", "a\xc3", driver.ReclaimPrefix, driver.ReclaimPrefix + "a", suite.Marker("a", 1), long, strings.Repeat("x", 100_000)} {
				e.RefusedByAll(db, name, refA)
				e.WantNotAsked(faulty, name)
			}
		}},
		{"P10 an invalid ref is refused before the database is asked", func(e *env) {
			db, faulty := e.OpenFaulty(refdb.Options{})
			for _, name := range suite.InvalidRefs() {
				e.RefusedByAll(db, e.Project, name)
				e.WantNotAsked(faulty, name)
			}
		}},
		{"P10 names that are as long as they may be are not refused", func(e *env) {
			db := e.Open(refdb.Options{})
			ref := "refs/heads/" + suite.Incompressible(driver.MaxNameBytes-len("refs/heads/")-len(e.Project))
			e.Must(db.Update(e.Context(), e.Project, []driver.Update{suite.Move(ref, "", v1)}))
			l := e.Hold(db, ref)
			e.WantLocked(l, ref, v1)
			e.Must(l.UpdateAndRelease(e.Context(), []driver.Update{suite.Move(ref, v1, v2)}))
		}},
		{"an invalid value is refused before the database is asked", func(e *env) {
			db, faulty := e.OpenFaulty(refdb.Options{})
			l := e.Hold(db, refB)
			asked := faulty.Count("")
			for _, v := range []driver.Value{"\xff", "a\x00", driver.Value(strings.Repeat("x", driver.MaxValueBytes+1)), "ref: ", "ref: main", "ref: refs/heads/a b"} {
				for name, err := range map[string]error{
					"Update to":        db.Update(e.Context(), e.Project, []driver.Update{suite.Move(refA, "", v)}),
					"Update from":      db.Update(e.Context(), e.Project, []driver.Update{suite.Move(refA, v, v1)}),
					"Lock.Update":      l.Update(e.Context(), []driver.Update{suite.Move(refB, "", v)}),
					"UpdateAndRelease": l.UpdateAndRelease(e.Context(), []driver.Update{suite.Move(refB, "", v)}),
					"CompareAndPut":    suite.ErrorOf(db.CompareAndPut(e.Context(), e.Project, refA, "", v)),
					"IsUpToDate":       suite.ErrorOf(db.IsUpToDate(e.Context(), e.Project, refA, v)),
				} {
					if err == nil {
						e.Errorf("%s %.20q was not refused", name, v)
						continue
					}
					e.WantClass(err, driver.ErrInvalid, driver.Permanent)
				}
			}
			if n := faulty.Count("") - asked; n != 0 {
				e.Errorf("the database was asked %d times", n)
			}
			e.WantHeld(l)
		}},
		{"an empty value to write is refused before the database is asked: a zero ID deletes", func(e *env) {
			db, faulty := e.OpenFaulty(refdb.Options{})
			e.Must(e.Update(e.A, suite.Move(refA, "", v1), suite.Move(refB, "", v1)))
			l := e.Hold(db, refB)
			asked := faulty.Count("")
			empty := []driver.Update{suite.Move(refB, v1, driver.Unknown)}
			for name, err := range map[string]error{
				"Update":           db.Update(e.Context(), e.Project, []driver.Update{suite.Move(refC, "", v1), suite.Move(refA, v1, driver.Unknown)}),
				"Under":            db.Update(e.Context(), e.Project, empty, refdb.Under(l.Owner(), l.Token(), refB)),
				"Advisory":         db.Update(e.Context(), e.Project, empty, refdb.Advisory()),
				"Lock.Update":      l.Update(e.Context(), empty),
				"UpdateAndRelease": l.UpdateAndRelease(e.Context(), empty),
				"CompareAndPut":    suite.ErrorOf(db.CompareAndPut(e.Context(), e.Project, refA, v1, driver.Unknown)),
				"Put":              suite.ErrorOf(db.Put(e.Context(), e.Project, refA, driver.Unknown)),
				"Prepare":          suite.ErrorOf(db.Intents().Prepare(e.Context(), e.Project, []driver.Update{suite.Move(refA, v1, driver.Unknown)}, agent)),
			} {
				if err == nil {
					e.Errorf("%s was not refused", name)
					continue
				}
				e.WantClass(err, driver.ErrInvalid, driver.Permanent)
			}
			if n := faulty.Count(""); n != asked {
				e.Errorf("the database was asked %d times", n-asked)
			}
			e.WantRefs(map[string]driver.Value{refA: v1, refB: v1})
			e.WantHeld(l)
		}},
		{"a ref outside a lock has no value in the lock, and can't be written through it", func(e *env) {
			db, faulty := e.OpenFaulty(refdb.Options{})
			l := e.Hold(db, refA, refC)
			under := refdb.Under(l.Owner(), l.Token(), refA, refC)
			asked := faulty.Count("")
			for _, updates := range [][]driver.Update{{suite.Move(refB, "", v1)}, {suite.Move(refA, "", v1), suite.Move(refB, "", v1), suite.Move(refC, "", v1)}} {
				for name, err := range map[string]error{
					"Value":            suite.ErrorOf(l.Value(refB)),
					"Lock.Update":      l.Update(e.Context(), updates),
					"UpdateAndRelease": l.UpdateAndRelease(e.Context(), updates),
					"Under":            db.Update(e.Context(), e.Project, updates, under),
				} {
					if err == nil {
						e.Errorf("%s of %d refs was not refused", name, len(updates))
						continue
					}
					e.WantClass(err, driver.ErrInvalid, driver.Permanent)
					if !strings.Contains(err.Error(), refB) {
						e.Errorf("%s does not name the ref: %v", name, err)
					}
				}
			}
			if n := faulty.Count(""); n != asked {
				e.Errorf("the database was asked %d times", n-asked)
			}
			e.WantRefs(nil)
			e.WantHeld(l)
		}},
		{"too many refs are refused before the database is asked", func(e *env) {
			db, faulty := e.OpenFaulty(refdb.Options{})
			refs := make([]string, driver.MaxUpdateRefs+1)
			updates := make([]driver.Update, len(refs))
			for i := range refs {
				refs[i] = fmt.Sprintf("refs/heads/%d", i)
				updates[i] = suite.Move(refs[i], "", v1)
			}
			ended, cancel := context.WithCancel(e.Context())
			cancel() // so that a Lock that is not refused doesn't wait
			for name, err := range map[string]error{
				"Update":  db.Update(e.Context(), e.Project, updates),
				"TryLock": suite.ErrorOf(db.TryLock(e.Context(), e.Project, refs[:driver.MaxLockRefs+1]...)),
				"Lock":    suite.ErrorOf(db.Lock(ended, e.Project, refs[:driver.MaxLockRefs+1]...)),
				"GetAll":  suite.ErrorOf(db.GetAll(e.Context(), e.Project, refs...)),
			} {
				if err == nil {
					e.Errorf("%s was not refused", name)
					continue
				}
				e.WantClass(err, driver.ErrTooMany, driver.Permanent)
			}
			if n := faulty.Count(""); n != 0 {
				e.Errorf("the database was asked %d times", n)
			}
		}},
		{"names that git can't place, alone or together, are refused before the database is asked", func(e *env) {
			db, faulty := e.OpenFaulty(refdb.Options{})
			long := "refs/heads/" + strings.Repeat("x", driver.MaxPartBytes+1)
			const above, below = "refs/heads/t", "refs/heads/t/x"
			for name, c := range map[string]struct {
				updates []driver.Update
				options []refdb.UpdateOption
				want    error
			}{
				"a part that is too long":            {[]driver.Update{suite.Move(long, "", v1)}, nil, driver.ErrInvalid},
				"two new names":                      {[]driver.Update{suite.Move(above, "", v1), suite.Move(below, driver.Deleted, v1)}, nil, driver.ErrNameConflict},
				"a new name below one that is moved": {[]driver.Update{suite.Move(above, v1, v2), suite.Move(below, "", v1)}, nil, driver.ErrNameConflict},
				"a new name above one that is moved": {[]driver.Update{suite.Move(above, "", v1), suite.Move(below, v1, v2)}, nil, driver.ErrNameConflict},
				"what may or may not be created":     {[]driver.Update{suite.Move(above, v1, v2)}, []refdb.UpdateOption{refdb.Adopt()}, driver.ErrInvalid},
			} {
				e.WantClass(db.Update(e.Context(), e.Project, c.updates, append(c.options, refdb.GitNames())...), c.want, driver.Permanent)
				if c.options == nil {
					_, err := db.Intents().Prepare(e.Context(), e.Project, c.updates, "agent")
					e.WantClass(err, c.want, driver.Permanent)
				}
				if n := faulty.Count(""); n != 0 {
					e.Errorf("%s: the database was asked %d times", name, n)
				}
			}
		}},
		{"names that git need not place are accepted", func(e *env) {
			db := e.Open(refdb.Options{})
			long := "refs/heads/" + strings.Repeat("x", driver.MaxPartBytes+1)
			const above, below = "refs/heads/t", "refs/heads/t/x"
			e.Must(db.Update(e.Context(), e.Project, []driver.Update{suite.Move(long, "", v1), suite.Move(above, "", v1), suite.Move(below, "", v1)}))
			// What is there is moved and deleted.
			p, err := db.Intents().Prepare(e.Context(), e.Project, []driver.Update{suite.Move(long, v1, v2), suite.Move(above, v1, v2), suite.Move(below, v1, v2)}, "agent")
			e.Must(err)
			e.Must(db.Intents().Finish(e.Context(), p, []string{long, above, below}, nil))
			e.Must(db.Update(e.Context(), e.Project, []driver.Update{suite.Move(long, v2, driver.Deleted), suite.Move(above, v2, v3), suite.Move(below, v2, driver.Deleted)}, refdb.GitNames()))
		}},
		{"a request about no ref, or about one twice, is refused before the database is asked", func(e *env) {
			db, faulty := e.OpenFaulty(refdb.Options{})
			for name, err := range map[string]error{
				"Update of none":        db.Update(e.Context(), e.Project, nil),
				"Update of one as two":  db.Update(e.Context(), e.Project, []driver.Update{suite.Move(refA, "", v1), suite.Move(refB, "", v1), suite.Move(refA, "", v2)}),
				"TryLock of none":       suite.ErrorOf(db.TryLock(e.Context(), e.Project)),
				"TryLock of one as two": suite.ErrorOf(db.TryLock(e.Context(), e.Project, refA, refB, refA)),
			} {
				if err == nil {
					e.Errorf("%s was not refused", name)
					continue
				}
				e.WantClass(err, driver.ErrInvalid, driver.Permanent)
			}
			if n := faulty.Count(""); n != 0 {
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
				if _, err := refdb.New(e.A.Driver, o); err == nil {
					e.Errorf("%+v was not refused", o)
				} else {
					e.WantClass(err, driver.ErrInvalid, driver.Permanent)
				}
			}
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
		}},
	}
}

// P7: a lost reply says nothing about the request, which was carried out (LoseReply) or
// never arrived (LoseRequest).
func replyRows() []row {
	return []row{
		{"P7 an acquisition whose reply was lost is made once", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			for _, fault := range []func(string) func(suite.Call) error{suite.LoseReply, suite.LoseRequest} {
				db, faulty := e.OpenFaulty(refdb.Options{})
				faulty.Inject(fault("Acquire"))
				l := e.Hold(db, refA, refB)
				e.WantLocked(l, refA, v1)
				if n := faulty.Count("Acquire"); n != 2 {
					e.Errorf("it took %d requests", n)
				}
				e.WantHeld(l)
				e.Must(l.Update(e.Context(), []driver.Update{suite.Move(refB, "", driver.Deleted)}))
				e.Must(l.Release(e.Context()))
				e.WantFree(refA, refB)
			}
		}},
		{"P7 an acquisition that lost its reply and then a part of its locks is refused, and leaves nothing", func(e *env) {
			db, faulty := e.OpenFaulty(refdb.Options{})
			var other lock
			faulty.Inject(suite.OnFirst("Acquire", func(c suite.Call) error {
				e.Must(c.Do())
				e.DB.Age(e, e.Project, refB, stale)
				other = e.Acquire(e.B, refB)
				return suite.ErrLost
			}))
			_, err := db.TryLock(e.Context(), e.Project, refA, refB)
			e.WantHolders(err, refB)
			e.WantFree(refA)
			e.WantLock(other)
		}},
		{"P7 an acquisition of unknown outcome is cleaned up", func(e *env) {
			db, faulty := e.OpenFaulty(refdb.Options{})
			faulty.Inject(func(c suite.Call) error {
				if c.Method == "Acquire" {
					return errors.Join(suite.ErrLost, c.Do())
				}
				return c.Do()
			})
			l, err := db.TryLock(e.Context(), e.Project, refA, refB)
			if l != nil || err == nil {
				e.Fatalf("got %v, %v", l, err)
			}
			if class := driver.ClassOf(err); class != driver.Retryable && class != driver.OutcomeUnknown {
				e.Errorf("%v is %v", err, class)
			}
			e.Eventually("no lock is left", func() bool { return e.Free(refA, refB) })
		}},
		{"P7 an acquisition whose caller gave up during its execution is cleaned up", func(e *env) {
			db, faulty := e.OpenFaulty(refdb.Options{})
			ctx, cancel := context.WithCancel(e.Context())
			defer cancel()
			faulty.Inject(suite.OnFirst("Acquire", func(c suite.Call) error {
				e.Must(c.Do())
				cancel()
				return errors.Join(suite.ErrLost, c.Ctx.Err())
			}))
			_, err := db.TryLock(ctx, e.Project, refA, refB)
			if !errors.Is(err, context.Canceled) {
				e.Errorf("got %v", err)
			}
			e.Eventually("no lock is left", func() bool { return e.Free(refA, refB) })
		}},
		{"P7 an update whose reply was lost is found to have happened, and is not repeated", func(e *env) {
			db, faulty := e.OpenFaulty(refdb.Options{})
			faulty.Inject(suite.LoseReply("Update"))
			e.Must(db.Update(e.Context(), e.Project, []driver.Update{suite.Move(refA, "", v1), suite.Move(refB, "", v1)}))
			e.WantRefs(map[string]driver.Value{refA: v1, refB: v1})
			if n := faulty.Count("Update"); n != 1 {
				e.Errorf("it was sent %d times", n)
			}
			faulty.Inject(suite.LoseReply("Update"))
			if put, err := db.CompareAndPut(e.Context(), e.Project, refA, v1, v2); !put || err != nil {
				e.Errorf("compare-and-put: %v, %v", put, err)
			}
			faulty.Inject(suite.LoseReply("Update"))
			if old, err := db.Put(e.Context(), e.Project, refA, v3); old != v2 || err != nil {
				e.Errorf("put: %q, %v", old, err)
			}
			e.WantRefs(map[string]driver.Value{refA: v3, refB: v1})
		}},
		{"P7 an update that has not arrived, and may still arrive, has an unknown outcome", func(e *env) {
			db, faulty := e.OpenFaulty(refdb.Options{})
			faulty.Inject(suite.LoseRequest("Update"))
			e.WantClass(db.Update(e.Context(), e.Project, []driver.Update{suite.Move(refA, "", v1)}), driver.ErrOutcomeUnknown, driver.OutcomeUnknown)
			faulty.Inject(suite.LoseRequest("Update"))
			put, err := db.CompareAndPut(e.Context(), e.Project, refA, "", v1)
			if put {
				e.Error("it was put")
			}
			e.WantClass(err, driver.ErrOutcomeUnknown, driver.OutcomeUnknown)
			e.WantRefs(nil)
		}},
		{"P7 an update that was overwritten before it could be looked for has an unknown outcome", func(e *env) {
			db, faulty := e.OpenFaulty(refdb.Options{})
			faulty.Inject(suite.OnFirst("Update", func(c suite.Call) error {
				e.Must(c.Do())
				e.Must(e.Update(e.B, suite.Move(refA, v1, v2)))
				e.Must(e.Update(e.B, suite.Move(refA, v2, v1))) // an equal value, written by another
				return suite.ErrLost
			}))
			err := db.Update(e.Context(), e.Project, []driver.Update{suite.Move(refA, "", v1)})
			e.WantClass(err, driver.ErrOutcomeUnknown, driver.OutcomeUnknown)
		}},
		{"P7 an equal write of another process is not mistaken for one's own", func(e *env) {
			db, faulty := e.OpenFaulty(refdb.Options{})
			faulty.Inject(suite.OnFirst("Update", func(suite.Call) error {
				e.Must(e.Update(e.B, suite.Move(refA, "", v1)))
				return suite.ErrLost
			}))
			err := db.Update(e.Context(), e.Project, []driver.Update{suite.Move(refA, "", v1)})
			e.WantClass(err, driver.ErrOutcomeUnknown, driver.OutcomeUnknown)
		}},
		{"P7 an update whose reply was lost, and that can't be looked for, has an unknown outcome", func(e *env) {
			db, faulty := e.OpenFaulty(refdb.Options{})
			var lost bool
			faulty.Inject(func(c suite.Call) error {
				if lost {
					return suite.ErrDown
				}
				lost = true
				return errors.Join(suite.ErrLost, c.Do())
			})
			err := db.Update(e.Context(), e.Project, []driver.Update{suite.Move(refA, "", v1)})
			e.WantClass(err, driver.ErrOutcomeUnknown, driver.OutcomeUnknown)
		}},
		{"P7 a fenced update whose reply was lost happens once", func(e *env) {
			for i, fault := range []func(string) func(suite.Call) error{suite.LoseReply, suite.LoseRequest} {
				db, faulty := e.OpenFaulty(suite.FastHeartbeat())
				ref := []string{refA, refB}[i]
				l := e.Hold(db, ref)
				faulty.Inject(fault("Update"))
				e.Must(l.Update(e.Context(), []driver.Update{suite.Move(ref, "", v1)}))
				faulty.Inject(fault("Update"))
				e.Must(l.Update(e.Context(), []driver.Update{suite.Move(ref, v1, v2)}))
				if got := e.GetOne(ref).Value; got != v2 {
					e.Errorf("it holds %q", got)
				}
				e.WantHeld(l)
			}
		}},
		{"P7 a releasing update whose reply was lost happens once, and is not a loss", func(e *env) {
			for i, fault := range []func(string) func(suite.Call) error{suite.LoseReply, suite.LoseRequest} {
				db, faulty := e.OpenFaulty(suite.FastHeartbeat())
				ref := []string{refA, refB}[i]
				l := e.Hold(db, ref, refC)
				faulty.Inject(fault("Update"))
				e.Must(l.UpdateAndRelease(e.Context(), []driver.Update{suite.Move(ref, "", v1)}))
				if got := e.GetOne(ref).Value; got != v1 {
					e.Errorf("it holds %q", got)
				}
				e.WantEnd(l, driver.ErrReleased)
				e.WantFree(ref, refC)
			}
		}},
		{"P7 a releasing update that arrives late, after its retry, is not a loss", func(e *env) {
			db, faulty := e.OpenFaulty(suite.FastHeartbeat())
			l := e.Hold(db, refA)
			faulty.Inject(e.DelayRequest("Update"))
			e.Must(l.UpdateAndRelease(e.Context(), []driver.Update{suite.Move(refA, "", v1)}))
			e.WantRefs(map[string]driver.Value{refA: v1})
			e.WantEnd(l, driver.ErrReleased)
			e.WantFree(refA)
		}},
		{"P7 after a releasing update of unknown outcome, a release reports no loss", func(e *env) {
			for _, o := range []refdb.Options{{}, suite.FastHeartbeat()} {
				db, faulty := e.OpenFaulty(o)
				l := e.Hold(db, refA)
				var lost bool
				faulty.Inject(func(c suite.Call) error {
					switch {
					case c.Method == "Update" && !lost:
						lost = true
						return errors.Join(suite.ErrLost, c.Do())
					case c.Method == "Get" && lost: // so that the outcome can't be read
						return suite.ErrDown
					default:
						return c.Do()
					}
				})
				err := l.UpdateAndRelease(e.Context(), []driver.Update{suite.Move(refA, "", driver.Deleted)})
				e.WantClass(err, driver.ErrOutcomeUnknown, driver.OutcomeUnknown)
				if err := l.Release(e.Context()); errors.Is(err, driver.ErrLockLost) {
					e.Errorf("the lock was not lost, but: %v", err)
				}
			}
		}},
		{"P7 a beat concurrent with a releasing update is not a loss", func(e *env) {
			db, faulty := e.OpenFaulty(suite.FastHeartbeat())
			l := e.Hold(db, refA)
			released := make(chan struct{})
			beating := make(chan struct{})
			faulty.Inject(suite.OnFirst("Beat", func(c suite.Call) error {
				close(beating)
				<-released // when this beat arrives the rows are gone
				return c.Do()
			}))
			suite.Receive(e, beating, "a beat")
			faulty.Inject(func(c suite.Call) error {
				err := c.Do()
				if c.Method == "Update" {
					close(released)
					// A beat of another lock shows that the late one was answered.
					other := e.Hold(db, refB)
					wantBeats(e, refB)
					e.WantHeld(other)
				}
				return err
			})
			e.Must(l.UpdateAndRelease(e.Context(), []driver.Update{suite.Move(refA, "", v1)}))
			e.WantEnd(l, driver.ErrReleased)
		}},
		{"P7 a release whose reply was lost is not a loss, and leaves nothing", func(e *env) {
			for _, fault := range []func(string) func(suite.Call) error{suite.LoseReply, suite.LoseRequest} {
				db, faulty := e.OpenFaulty(suite.FastHeartbeat())
				l := e.Hold(db, refA, refB)
				faulty.Inject(fault("Release"))
				e.Must(l.Release(e.Context()))
				e.WantEnd(l, driver.ErrReleased)
				e.WantFree(refA, refB)
				e.Must(l.Release(e.Context()))
			}
		}},
		{"a release that could not be sent can be retried", func(e *env) {
			db, faulty := e.OpenFaulty(refdb.Options{})
			l := e.Hold(db, refA)
			faulty.Inject(func(suite.Call) error { return suite.ErrDown })
			e.WantClass(l.Release(e.Context()), driver.ErrUnavailable, driver.Retryable)
			e.WantEnd(l, driver.ErrReleased)
			faulty.Inject(nil)
			e.Must(l.Release(e.Context()))
			e.WantFree(refA)
		}},
		{"P7 a beat whose reply was lost is not a loss, and the token stays", func(e *env) {
			db, faulty := e.OpenFaulty(suite.FastHeartbeat())
			l := e.Hold(db, refA)
			answered := make(chan struct{})
			faulty.Inject(suite.OnFirst("Beat", func(c suite.Call) error {
				defer close(answered)
				return errors.Join(suite.ErrLost, c.Do())
			}))
			suite.Receive(e, answered, "a beat")
			wantBeats(e, refA)
			e.WantHeld(l)
		}},
		{"a request that the database certainly did not carry out is retried a few times", func(e *env) {
			db, faulty := e.OpenFaulty(refdb.Options{})
			for _, method := range []string{"Get", "Update", "Acquire", "Release", "PurgeTombstones", "Remove"} {
				faulty.Inject(suite.OnFirst(method, func(suite.Call) error { return suite.ErrDown }))
				e.Must(db.Update(e.Context(), e.Project, []driver.Update{suite.Move(refA, "", driver.Deleted)}))
				e.Must(e.Hold(db, refA).Release(e.Context()))
				_, err := db.Get(e.Context(), e.Project, refA)
				e.Must(err)
				_, err = db.Operator().PurgeTombstones(e.Context(), e.Project, 0)
				e.Must(err)
				_, err = db.Projects().Remove(e.Context(), e.Project)
				e.Must(err)
			}
			faulty.Inject(func(suite.Call) error { return suite.ErrDown })
			e.WantClass(db.Update(e.Context(), e.Project, []driver.Update{suite.Move(refA, "", v1)}), driver.ErrUnavailable, driver.Retryable)
			_, err := db.TryLock(e.Context(), e.Project, refA)
			e.WantClass(err, driver.ErrUnavailable, driver.Retryable)
			_, err = db.Get(e.Context(), e.Project, refA)
			e.WantClass(err, driver.ErrUnavailable, driver.Retryable)
		}},
	}
}
