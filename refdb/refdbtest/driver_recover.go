package refdbtest

import (
	"slices"
	"strings"
	"sync"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// A recovery writes again what was lost, and admits the server.
func recoverRows() []row {
	return []row{
		{"a recovery waits for the witnesses, but for those it goes without", alone(func(e *env) {
			e.witnesses("site-v", "site-w", "site-x")
			e.report(refdb.Report{Witness: "site-x", Missing: []refdb.Known{e.known("op1", refA, "", v1)}})
			e.restart()
			for _, without := range [][]string{nil, {"site-v"}, {"site-v", "nobody"}} {
				answer, decided := e.recoverOnce(e.a, recoverRequest(without...))
				if answer.Done || answer.Admitted || decided != "" || !slices.Contains(answer.Waiting(), "site-w") {
					e.Errorf("without %q: %+v, decided %s", without, answer, decided)
				}
			}
			e.wantRefs(nil)
			e.report(refdb.Report{Witness: "site-x", Missing: []refdb.Known{e.known("op1", refA, "", v1)}})
			if got := e.recover(recoverRequest("site-v", "site-w")); strings.Join(got, "; ") != "op1 again" {
				e.Errorf("decided %q", got)
			}
			e.wantRefs(map[string]refdb.Value{refA: v1})
			e.wantWritable(true)
			for _, w := range e.admission().Witnesses {
				if w.Without != (w.Name != "site-x") {
					e.Errorf("%+v", w)
				}
			}
		})},
		{"lost changes are written again in the order of their values, one of a ref in a step", alone(func(e *env) {
			e.must(e.update(e.a, move(refB, "", v1)))
			e.report(refdb.Report{Witness: "site-w", Missing: []refdb.Known{
				e.known("op3", refA, v1, v2), e.known("op1", refA, v2, v3), e.known("op2", refA, "", v1), e.known("op4", refB, v1, refdb.Deleted), e.known("op2", refC, refdb.Deleted, v1),
			}})
			if got := strings.Join(e.recover(recoverRequest()), "; "); got != "op2 again, op2 again, op4 again; op3 again; op1 again" {
				e.Errorf("decided %s", got)
			}
			e.wantRefs(map[string]refdb.Value{refA: v3, refB: refdb.Deleted, refC: v1})
			for _, ref := range []string{refA, refC} {
				for _, c := range e.log(ref) {
					if c.Owner != "site-w/1" || c.By != asker || !strings.HasPrefix(c.Op, "op") {
						e.Errorf("%+v", c)
					}
				}
			}
			if got := saidAll(e.log(refA)); got != "a ->1, a 1>2, a 2>3" {
				e.Errorf("the log says %s", got)
			}
			e.wantMissing("", "", e.known("op1", refA, v2, v3), e.known("op2", refA, "", v1), e.known("op4", refB, v1, refdb.Deleted))
			e.wantLostChanges(false, "")
		})},
		{"a step writes no more refs than its limit", alone(func(e *env) {
			e.report(refdb.Report{Witness: "site-w", Missing: []refdb.Known{
				e.known("op1", refA, "", v1), e.known("op2", refA, v1, v2), e.known("op3", refB, "", v1), e.known("op4", refC, "", v1),
			}})
			r := recoverRequest()
			r.Limit = 2
			if got := strings.Join(e.recover(r), "; "); got != "op1 again, op3 again; op2 again, op4 again" {
				e.Errorf("decided %s", got)
			}
			e.wantRefs(map[string]refdb.Value{refA: v2, refB: v1, refC: v1})
		})},
		{"nothing is written between the steps", alone(func(e *env) {
			e.report(refdb.Report{Witness: "site-w", Missing: []refdb.Known{e.known("op1", refA, "", v1), e.known("op2", refA, v1, v2)}})
			if answer, _ := e.recoverOnce(e.a, recoverRequest()); answer.Done || answer.Admitted {
				e.Errorf("%+v", answer)
			}
			e.wantWritable(false)
			e.report(refdb.Report{Witness: "site-w"})
			e.wantWritable(false)
			e.recover(recoverRequest())
			e.wantWritable(true)
		})},
		{"a lost removal is made again", alone(func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1)))
			e.report(refdb.Report{Witness: "site-w", Missing: []refdb.Known{e.known("op1", refA, v1, refdb.Unknown)}})
			e.recover(recoverRequest())
			e.wantRefs(nil)
			log := e.wantLog("a ->1", "a 1>-")
			if c := log[len(log)-1]; c.Op != "op1" || c.Owner != "site-w/1" || c.By != asker {
				e.Errorf("%+v", c)
			}
		})},
		{"an intent that stands again ends with its change", alone(func(e *env) {
			p, kept := e.prepare(e.a, move(refA, "", v1)), e.prepare(e.a, move(refB, "", v1))
			e.report(refdb.Report{Witness: "site-w", Missing: []refdb.Known{e.known(p.Nonce+"-1", refA, "", v1)}})
			if got := strings.Join(e.recover(recoverRequest()), "; "); got != p.Nonce+"-1 again" {
				e.Errorf("decided %s", got)
			}
			e.wantFree(refA)
			e.wantIntended(kept)
			if got := e.pending(); len(got) != 1 {
				e.Errorf("pending are %+v", got)
			}
			e.wantRefs(map[string]refdb.Value{refA: v1})
			e.acquire(e.a, refA)
		})},
		{"what contradicts the database is opposed, and changes nothing", alone(func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1)))
			p := e.prepare(e.a, move(refB, "", v1))
			e.report(refdb.Report{Witness: "site-w", Missing: []refdb.Known{
				e.known("op1", refA, v2, v3), e.known("op2", refB, "", v2),
				e.knownIntent("op3", refC, "", v1, refdb.MoveUnknown), e.knownIntent("op4", refD, v1, v2, refdb.MoveMade),
			}})
			if got := strings.Join(e.recover(recoverRequest()), "; "); got != "op1 opposed, op2 opposed, op3 opposed, op4 opposed" {
				e.Errorf("decided %s", got)
			}
			e.wantRefs(map[string]refdb.Value{refA: v1})
			e.wantIntended(p)
			e.wantLostChanges(false, "")
			e.wantLostChanges(true, "op1 opposed, op2 opposed, op3 opposed, op4 opposed")
			e.wantWritable(true)
		})},
		{"of two lost changes that found the same value the earlier one is written, the other is opposed", alone(func(e *env) {
			first, second := e.known("op2", refA, "", v1), e.known("op1", refA, "", v2)
			second.At = first.At.Add(1000)
			e.report(refdb.Report{Witness: "site-w", Missing: []refdb.Known{second, first}})
			if got := strings.Join(e.recover(recoverRequest()), "; "); got != "op2 again; op1 opposed" {
				e.Errorf("decided %s", got)
			}
			e.wantRefs(map[string]refdb.Value{refA: v1})
		})},
		{"a lost intent is written if its move was made, and dropped if it was not", alone(func(e *env) {
			e.report(refdb.Report{Witness: "site-w", Missing: []refdb.Known{
				e.knownIntent("op1", refA, "", v1, refdb.MoveMade), e.knownIntent("op2", refB, "", v1, refdb.MoveUnmade),
			}})
			if got := strings.Join(e.recover(recoverRequest()), "; "); got != "op1 again, op2 dropped" {
				e.Errorf("decided %s", got)
			}
			e.wantRefs(map[string]refdb.Value{refA: v1})
			e.wantNone()
			e.wantMissing("", "", e.knownIntent("op1", refA, "", v1, refdb.MoveMade), e.knownIntent("op2", refB, "", v1, refdb.MoveUnmade))
		})},
		{"the new epoch begins before what was written again", alone(func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1)))
			before := e.complete()
			e.report(refdb.Report{Witness: "site-w", Missing: []refdb.Known{e.known("op1", refA, v1, v2), e.known("op2", refA, v2, v3)}})
			e.recover(recoverRequest())
			s := e.history()
			if len(s.Epochs) != 2 {
				e.Fatalf("%+v", s)
			}
			again := e.log(refA)[1]
			if n := s.Epochs[1]; n.ID != "epoch-2" || n.By != "alice@host" || n.Reason != "a backup was put back" || n.First <= before || n.First > again.Position ||
				n.Began.IsZero() || n.Began.Before(s.Epochs[0].Began) {
				e.Errorf("%+v, and what was written again is at %d, behind %d", s.Epochs, again.Position, before)
			}
			// Nothing is written before the next one.
			e.restart()
			r := recoverRequest("site-w")
			r.Epoch = "epoch-3"
			e.recover(r)
			if s := e.history(); len(s.Epochs) != 3 || s.Epochs[2].ID != "epoch-3" || s.Epochs[2].First <= s.Epochs[1].First {
				e.Errorf("%+v", s)
			}
			e.must(e.update(e.a, move(refA, v3, v1)))
			log := e.log(refA)
			if c := log[len(log)-1]; c.Position < e.history().Epochs[2].First {
				e.Errorf("%+v, and the change is at %d", e.history().Epochs, c.Position)
			}
		})},
		{"locks end with a recovery, intents stay, and tokens are larger afterwards", alone(func(e *env) {
			l, p := e.acquire(e.a, refA), e.prepare(e.b, move(refB, "", v1))
			e.restart()
			now, err := e.a.Now(e.Context())
			e.must(err)
			e.recover(recoverRequest())
			e.wantFree(refA)
			e.wantIntended(p)
			e.wantLost(e.sendUpdate(e.a, refdb.UpdateRequest{Updates: []refdb.Update{move(refA, "", v1)}, Fence: l.fence()}), refA)
			if next := e.acquire(e.a, refA); next.Token <= refdb.TokenOf(now) || next.Token <= l.Token {
				e.Errorf("the token is %s, the recovery was after %s", next.Token.Time(), now)
			}
			e.must(e.finish(e.b, p))
		})},
		{"two recoveries at once are one", alone(func(e *env) {
			var known []refdb.Known
			for _, ref := range []string{refA, refB, refC} {
				known = append(known, e.known("op1", ref, "", v1), e.known("op2", ref, v1, v2))
			}
			e.report(refdb.Report{Witness: "site-w", Missing: known})
			var wait sync.WaitGroup
			for i, p := range []process{e.a, e.b} {
				r := recoverRequest()
				r.Epoch, r.Limit = []string{"epoch-a", "epoch-b"}[i], 1
				wait.Go(func() {
					for range 20 {
						var answer refdb.Recovered
						if err := retry(func() (err error) {
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
			e.notice()
			e.wantRefs(map[string]refdb.Value{refA: v2, refB: v2, refC: v2})
			if s := e.history(); len(s.Epochs) != 2 {
				e.Errorf("%+v", s.Epochs)
			}
			for _, ref := range []string{refA, refB, refC} {
				if got := e.log(ref); len(got) != 2 {
					e.Errorf("the log of %s says %s", ref, saidAll(got))
				}
			}
			e.wantWritable(true)
		})},
		{"a recovery of an admitted server does nothing", alone(func(e *env) {
			l := e.acquire(e.a, refA)
			e.witnesses("site-v")
			answer, decided := e.recoverOnce(e.a, recoverRequest("site-v"))
			if !answer.Done || !answer.Admitted || decided != "" {
				e.Errorf("%+v", answer)
			}
			e.wantLock(l)
			if s := e.history(); len(s.Epochs) != 1 {
				e.Errorf("%+v", s.Epochs)
			}
			if w := e.admission().Witnesses; len(w) != 1 || w[0].Without {
				e.Errorf("%+v", w)
			}
		})},
	}
}
