package driver

import (
	"slices"
	"strings"
	"sync"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/suite"
)

// A recovery writes again what was lost, and admits the server.
func recoverRows() []row {
	return []row{
		{"a recovery waits for the witnesses, except for those that it leaves out", suite.Alone(func(e *env) {
			e.Witnesses("site-v", "site-w", "site-x")
			e.Report(driver.Report{Witness: "site-x", Missing: []driver.Known{e.Known("op1", refA, "", v1)}})
			e.Restart()
			for _, without := range [][]string{nil, {"site-v"}, {"site-v", "nobody"}} {
				answer, decided := e.RecoverOnce(e.A, suite.RecoverRequest(without...))
				if answer.Done || answer.Admitted || decided != "" || !slices.Contains(answer.Waiting(), "site-w") {
					e.Errorf("without %q: %+v, decided %s", without, answer, decided)
				}
			}
			e.WantRefs(nil)
			e.Report(driver.Report{Witness: "site-x", Missing: []driver.Known{e.Known("op1", refA, "", v1)}})
			if got := e.Recover(suite.RecoverRequest("site-v", "site-w")); strings.Join(got, "; ") != "op1 again" {
				e.Errorf("decided %q", got)
			}
			e.WantRefs(map[string]driver.Value{refA: v1})
			e.WantWritable(true)
			for _, w := range e.Admission().Witnesses {
				if w.Without != (w.Name != "site-x") {
					e.Errorf("%+v", w)
				}
			}
		})},
		{"lost changes are written again in the order of their values, one of a ref in a step", suite.Alone(func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refB, "", v1)))
			e.Report(driver.Report{Witness: "site-w", Missing: []driver.Known{
				e.Known("op3", refA, v1, v2), e.Known("op1", refA, v2, v3), e.Known("op2", refA, "", v1), e.Known("op4", refB, v1, driver.Deleted), e.Known("op2", refC, driver.Deleted, v1),
			}})
			if got := strings.Join(e.Recover(suite.RecoverRequest()), "; "); got != "op2 again, op2 again, op4 again; op3 again; op1 again" {
				e.Errorf("decided %s", got)
			}
			e.WantRefs(map[string]driver.Value{refA: v3, refB: driver.Deleted, refC: v1})
			for _, ref := range []string{refA, refC} {
				for _, c := range e.ReadLog(ref) {
					if c.Owner != "site-w/1" || c.By != asker || !strings.HasPrefix(c.Op, "op") {
						e.Errorf("%+v", c)
					}
				}
			}
			if got := suite.SaidAll(e.ReadLog(refA)); got != "a ->1, a 1>2, a 2>3" {
				e.Errorf("the log says %s", got)
			}
			e.WantMissing("", "", e.Known("op1", refA, v2, v3), e.Known("op2", refA, "", v1), e.Known("op4", refB, v1, driver.Deleted))
			e.WantLostChanges(false, "")
		})},
		{"a step writes no more refs than its limit", suite.Long(suite.Alone(func(e *env) {
			e.Report(driver.Report{Witness: "site-w", Missing: []driver.Known{
				e.Known("op1", refA, "", v1), e.Known("op2", refA, v1, v2), e.Known("op3", refB, "", v1), e.Known("op4", refC, "", v1),
			}})
			r := suite.RecoverRequest()
			r.Limit = 2
			if got := strings.Join(e.Recover(r), "; "); got != "op1 again, op3 again; op2 again, op4 again" {
				e.Errorf("decided %s", got)
			}
			e.WantRefs(map[string]driver.Value{refA: v2, refB: v1, refC: v1})
		}))},
		{"other writes are refused between the steps", suite.Alone(func(e *env) {
			e.Report(driver.Report{Witness: "site-w", Missing: []driver.Known{e.Known("op1", refA, "", v1), e.Known("op2", refA, v1, v2)}})
			if answer, _ := e.RecoverOnce(e.A, suite.RecoverRequest()); answer.Done || answer.Admitted {
				e.Errorf("%+v", answer)
			}
			e.WantWritable(false)
			e.Report(driver.Report{Witness: "site-w"})
			e.WantWritable(false)
			e.Recover(suite.RecoverRequest())
			e.WantWritable(true)
		})},
		{"a lost removal is made again", suite.Alone(func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			e.Report(driver.Report{Witness: "site-w", Missing: []driver.Known{e.Known("op1", refA, v1, driver.Unknown)}})
			e.Recover(suite.RecoverRequest())
			e.WantRefs(nil)
			log := e.WantLog("a ->1", "a 1>-")
			if c := log[len(log)-1]; c.Op != "op1" || c.Owner != "site-w/1" || c.By != asker {
				e.Errorf("%+v", c)
			}
		})},
		{"a rewritten intent ends with its change", suite.Alone(func(e *env) {
			p, kept := e.Prepare(e.A, suite.Move(refA, "", v1)), e.Prepare(e.A, suite.Move(refB, "", v1))
			e.Report(driver.Report{Witness: "site-w", Missing: []driver.Known{e.Known(p.Nonce+"-1", refA, "", v1)}})
			if got := strings.Join(e.Recover(suite.RecoverRequest()), "; "); got != p.Nonce+"-1 again" {
				e.Errorf("decided %s", got)
			}
			e.WantFree(refA)
			e.WantIntended(kept)
			if got := e.Pending(); len(got) != 1 {
				e.Errorf("pending are %+v", got)
			}
			e.WantRefs(map[string]driver.Value{refA: v1})
			e.Acquire(e.A, refA)
		})},
		{"a lost change that contradicts the database is opposed, and changes nothing", suite.Long(suite.Alone(func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			p := e.Prepare(e.A, suite.Move(refB, "", v1))
			e.Report(driver.Report{Witness: "site-w", Missing: []driver.Known{
				e.Known("op1", refA, v2, v3), e.Known("op2", refB, "", v2),
				e.KnownIntent("op3", refC, "", v1, driver.MoveUnknown), e.KnownIntent("op4", refD, v1, v2, driver.MoveMade),
			}})
			if got := strings.Join(e.Recover(suite.RecoverRequest()), "; "); got != "op1 opposed, op2 opposed, op3 opposed, op4 opposed" {
				e.Errorf("decided %s", got)
			}
			e.WantRefs(map[string]driver.Value{refA: v1})
			e.WantIntended(p)
			e.WantLostChanges(false, "")
			e.WantLostChanges(true, "op1 opposed, op2 opposed, op3 opposed, op4 opposed")
			e.WantWritable(true)
		}))},
		{"of two lost changes with the same old value the earlier one is written, the other is opposed", suite.Long(suite.Alone(func(e *env) {
			first, second := e.Known("op2", refA, "", v1), e.Known("op1", refA, "", v2)
			second.At = first.At.Add(1000)
			e.Report(driver.Report{Witness: "site-w", Missing: []driver.Known{second, first}})
			if got := strings.Join(e.Recover(suite.RecoverRequest()), "; "); got != "op2 again; op1 opposed" {
				e.Errorf("decided %s", got)
			}
			e.WantRefs(map[string]driver.Value{refA: v1})
		}))},
		{"a lost intent is written if its move was made, and dropped if it was not", suite.Long(suite.Alone(func(e *env) {
			e.Report(driver.Report{Witness: "site-w", Missing: []driver.Known{
				e.KnownIntent("op1", refA, "", v1, driver.MoveMade), e.KnownIntent("op2", refB, "", v1, driver.MoveUnmade),
			}})
			if got := strings.Join(e.Recover(suite.RecoverRequest()), "; "); got != "op1 again, op2 dropped" {
				e.Errorf("decided %s", got)
			}
			e.WantRefs(map[string]driver.Value{refA: v1})
			e.WantNone()
			e.WantMissing("", "", e.KnownIntent("op1", refA, "", v1, driver.MoveMade), e.KnownIntent("op2", refB, "", v1, driver.MoveUnmade))
		}))},
		{"the new epoch begins before the rewritten changes", suite.Alone(func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			before := e.Complete()
			e.Report(driver.Report{Witness: "site-w", Missing: []driver.Known{e.Known("op1", refA, v1, v2), e.Known("op2", refA, v2, v3)}})
			e.Recover(suite.RecoverRequest())
			s := e.History()
			if len(s.Epochs) != 2 {
				e.Fatalf("%+v", s)
			}
			again := e.ReadLog(refA)[1]
			if n := s.Epochs[1]; n.ID != "epoch-2" || n.By != "alice@host" || n.Reason != "a backup was put back" || n.First <= before || n.First > again.Position ||
				n.Began.IsZero() || n.Began.Before(s.Epochs[0].Began) {
				e.Errorf("%+v, and what was written again is at %d, behind %d", s.Epochs, again.Position, before)
			}
			// Nothing is written before the next one.
			e.Restart()
			r := suite.RecoverRequest("site-w")
			r.Epoch = "epoch-3"
			e.Recover(r)
			if s := e.History(); len(s.Epochs) != 3 || s.Epochs[2].ID != "epoch-3" || s.Epochs[2].First <= s.Epochs[1].First {
				e.Errorf("%+v", s)
			}
			e.Must(e.Update(e.A, suite.Move(refA, v3, v1)))
			log := e.ReadLog(refA)
			if c := log[len(log)-1]; c.Position < e.History().Epochs[2].First {
				e.Errorf("%+v, and the change is at %d", e.History().Epochs, c.Position)
			}
		})},
		{"locks end with a recovery, intents stay, and tokens are larger afterwards", suite.Alone(func(e *env) {
			l, p := e.Acquire(e.A, refA), e.Prepare(e.B, suite.Move(refB, "", v1))
			e.Restart()
			now, err := e.A.Now(e.Context())
			e.Must(err)
			e.Recover(suite.RecoverRequest())
			e.WantFree(refA)
			e.WantIntended(p)
			e.WantLost(e.SendUpdate(e.A, driver.UpdateRequest{Updates: []driver.Update{suite.Move(refA, "", v1)}, Fence: l.Fence()}), refA)
			if next := e.Acquire(e.A, refA); next.Token <= driver.TokenOf(now) || next.Token <= l.Token {
				e.Errorf("the token is %s, the recovery was after %s", next.Token.Time(), now)
			}
			e.Must(e.Finish(e.B, p))
		})},
		{"two concurrent recoveries have the effect of one", suite.Alone(func(e *env) {
			var known []driver.Known
			for _, ref := range []string{refA, refB, refC} {
				known = append(known, e.Known("op1", ref, "", v1), e.Known("op2", ref, v1, v2))
			}
			e.Report(driver.Report{Witness: "site-w", Missing: known})
			var wait sync.WaitGroup
			for i, p := range []process{e.A, e.B} {
				r := suite.RecoverRequest()
				r.Epoch, r.Limit = []string{"epoch-a", "epoch-b"}[i], 1
				wait.Go(func() {
					for range 20 {
						var answer driver.Recovered
						if err := suite.Retry(func() (err error) {
							answer, err = p.Recover(e.Context(), r)
							return err
						}); err != nil || answer.Done {
							if err != nil {
								e.Error(err)
							}
							return
						}
					}
					e.Error("it never ended")
				})
			}
			wait.Wait()
			e.Notice()
			e.WantRefs(map[string]driver.Value{refA: v2, refB: v2, refC: v2})
			if s := e.History(); len(s.Epochs) != 2 {
				e.Errorf("%+v", s.Epochs)
			}
			for _, ref := range []string{refA, refB, refC} {
				if got := e.ReadLog(ref); len(got) != 2 {
					e.Errorf("the log of %s says %s", ref, suite.SaidAll(got))
				}
			}
			e.WantWritable(true)
		})},
		{"a recovery of an admitted server does nothing", suite.Alone(func(e *env) {
			l := e.Acquire(e.A, refA)
			e.Witnesses("site-v")
			answer, decided := e.RecoverOnce(e.A, suite.RecoverRequest("site-v"))
			if !answer.Done || !answer.Admitted || decided != "" {
				e.Errorf("%+v", answer)
			}
			e.WantLock(l)
			if s := e.History(); len(s.Epochs) != 1 {
				e.Errorf("%+v", s.Epochs)
			}
			if w := e.Admission().Witnesses; len(w) != 1 || w[0].Without {
				e.Errorf("%+v", w)
			}
		})},
	}
}
