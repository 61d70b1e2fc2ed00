package driver

import (
	"fmt"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/suite"
)

var freeze = driver.Freeze{Reason: `moves to "eu"`, By: "o'brien@host", Since: time.Date(2026, 11, 29, 19, 5, 0, 0, time.UTC)}

// In a frozen project nothing begins to move a ref, and what had begun ends.
func freezeRows() []row {
	return []row{
		{"a freeze refuses updates of any size and kind, with its reason", func(e *env) {
			held := e.Acquire(e.A, refC)
			var many, moved []driver.Update
			for i := range 300 {
				ref := fmt.Sprintf("refs/many/%03d", i)
				many, moved = append(many, suite.Move(ref, "", v1)), append(moved, suite.Move(ref, v1, v2))
			}
			e.Must(e.Update(e.A, append(many, suite.Move(refA, "", v1), suite.Move(refB, "", v1))...))
			before := suite.ValuesOf(e.List(e.Project))
			e.Freeze(freeze)
			fence := &driver.Fence{Refs: []string{refC}, Owner: held.Owner, Token: held.Token}
			for name, r := range map[string]driver.UpdateRequest{
				"a move":                  {Updates: []driver.Update{suite.Move(refA, v1, v2)}},
				"a move without locks":    {Updates: []driver.Update{suite.Move(refA, v1, v2)}, Locks: driver.AdvisoryLocks},
				"a creation":              {Updates: []driver.Update{suite.Move("refs/heads/new", "", v1)}},
				"a creation with a name":  {Updates: []driver.Update{suite.Move("refs/heads/new", "", v1)}, GitNames: true},
				"a deletion":              {Updates: []driver.Update{suite.Move(refA, v1, driver.Deleted)}},
				"two moves":               {Updates: []driver.Update{suite.Move(refA, v1, v2), suite.Move(refB, v1, v2)}},
				"moves of a range":        {Updates: moved},
				"many moves and creation": {Updates: append(moved[:290:290], suite.Move("refs/new", "", v1)), GitNames: true},
				"under a lock":            {Updates: []driver.Update{suite.Move(refC, "", v1)}, Fence: fence},
				"with its release":        {Updates: []driver.Update{suite.Move(refC, "", v1)}, Fence: &driver.Fence{Refs: fence.Refs, Owner: fence.Owner, Token: fence.Token, Release: true}},
				"adopting":                {Updates: []driver.Update{suite.Move("refs/heads/new", v1, v2)}, Adopt: true},
				"a mismatch":              {Updates: []driver.Update{suite.Move(refA, v2, v3)}},
				"a locked ref":            {Updates: []driver.Update{suite.Move(refC, "", v1)}},
			} {
				for _, p := range []process{e.A, e.B} {
					if err := e.SendUpdate(p, r); !suite.IsFrozen(err, e.Project, freeze) {
						e.Errorf("%s: %v", name, err)
					}
				}
			}
			e.WantRefs(before)
			e.WantLock(held)
		}},
		{"a freeze refuses preparations, and leaves nothing of them", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			held := e.Acquire(e.A, refC)
			if _, err := e.TryPrepare(e.B, suite.Move(refC, "", v1)); !e.Refusal(err) {
				e.Error("prepared over a lock")
			}
			e.Freeze(freeze)
			// A driver may look first where locks have refused a request.
			if _, err := e.TryPrepare(e.B, suite.Move(refC, "", v1)); !suite.IsFrozen(err, e.Project, freeze) {
				e.Errorf("after a refusal: %v", err)
			}
			for name, updates := range map[string][]driver.Update{
				"a move":       {suite.Move(refA, v1, v2)},
				"a creation":   {suite.Move(refB, "", v1)},
				"both":         {suite.Move(refA, v1, v2), suite.Move(refB, "", v1)},
				"a mismatch":   {suite.Move(refA, v2, v3)},
				"a locked ref": {suite.Move(refC, "", v1)},
			} {
				if _, err := e.TryPrepare(e.B, updates...); !suite.IsFrozen(err, e.Project, freeze) {
					e.Errorf("%s: %v", name, err)
				}
			}
			for _, updates := range [][]driver.Update{
				{suite.Move(refA, v1, v2)},
				{suite.Move(refA, v1, v2), suite.Move(refB, "", v1)},
				{suite.Move(refA+"/below", "", v1)}, // which refA excludes
			} {
				r := e.PrepareRequest(e.A, updates...)
				r.Packs = []string{"no-pack"}
				if _, err := e.SendPrepare(e.A, r); !suite.IsFrozen(err, e.Project, freeze) {
					e.Errorf("%v with packs: %v", updates, err)
				}
			}
			e.WantFree(refA, refB)
			e.WantLock(held)
			if all := e.Pending(); len(all) != 0 {
				e.Errorf("intents %+v", all)
			}
		}},
		{"a lost lock takes precedence over a freeze", func(e *env) {
			e.Freeze(freeze)
			r := driver.UpdateRequest{Updates: []driver.Update{suite.Move(refA, "", v1)}, Fence: &driver.Fence{Refs: []string{refA}, Owner: "gone", Token: 1}}
			for _, release := range []bool{false, true} {
				r.Fence.Release = release
				e.Loss(e.SendUpdate(e.A, r))
			}
		}},
		{"an intent from before a freeze ends as its owner or an operator decides", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1), suite.Move(refB, "", v1), suite.Move(refC, "", v1)))
			done, dropped, resolved, revoked := e.Prepare(e.A, suite.Move(refA, v1, v2)), e.Prepare(e.A, suite.Move(refB, v1, v2)),
				e.Prepare(e.A, suite.Move(refC, v1, v2)), e.Prepare(e.A, suite.Move("refs/x", "", v1))
			e.Freeze(freeze)
			if again, err := e.SendPrepare(e.B, done.PrepareRequest); err != nil || again.Token != done.Token {
				e.Errorf("a lost reply to a preparation, asked for again: %v, %v", again, err)
			}
			e.Must(e.Finish(e.A, done))
			e.Drop(e.B, dropped)
			e.Resolve(e.B, driver.TakeNew, resolved.IDs()...)
			e.Revoke(e.A, revoked.PrepareRequest)
			e.WantRefs(map[string]driver.Value{refA: v2, refB: v1, refC: v2})
			e.WantFree(refA, refB, refC, "refs/x")
		}},
		{"locks are taken, renewed and released in a frozen project, and refs are read and removed", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			e.Freeze(freeze)
			l := e.Acquire(e.A, refA)
			if got := e.GetOne(refA); got.Value != v1 {
				e.Errorf("read %v", got)
			}
			if got := e.States(refA); got[refA].Value != v1 || got[refA].Lock == nil {
				e.Errorf("states %v", got)
			}
			e.Release(e.A, l)
			if n := e.Remove(driver.RemoveRequest{Limit: 10}); n != 1 {
				e.Errorf("removed %d", n)
			}
		}},
		{"an update succeeds once the project is no longer frozen", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			row := e.Freeze(freeze)
			if err := e.Update(e.A, suite.Move(refA, v1, v2)); !suite.IsFrozen(err, e.Project, freeze) {
				e.Fatalf("%v", err)
			}
			e.PutProject(e.B, e.ProjectRequest("ref *", row.Revision))
			e.Must(e.Update(e.A, suite.Move(refA, v1, v2)))
			e.Must(e.Finish(e.A, e.Prepare(e.A, suite.Move(refA, v2, v3), suite.Move(refB, "", v1))))
			e.WantRefs(map[string]driver.Value{refA: v3, refB: v1})
		}},
		{"a freeze applies to one project, and rules that only resemble a freeze have no effect", func(e *env) {
			e.Freeze(freeze)
			other := e.Project + "/other"
			e.Must(e.SendUpdate(e.A, driver.UpdateRequest{Project: other, Updates: []driver.Update{suite.Move(refA, "", v1)}}))
			for i, rules := range []string{"ref *\nfrozen x", "frozenRef x", "Frozen x"} {
				r := e.ProjectRequest(rules, 0)
				r.Project = fmt.Sprintf("%s/%d", e.Project, i)
				e.PutProject(e.A, r)
				e.Must(e.SendUpdate(e.A, driver.UpdateRequest{Project: r.Project, Updates: []driver.Update{suite.Move(refA, "", v1)}}))
				p := e.PrepareRequest(e.A, suite.Move(refB, "", v1))
				p.Project = r.Project
				if _, err := e.SendPrepare(e.A, p); err != nil {
					e.Errorf("rules %q: %v", rules, err)
				}
			}
		}},
		{"a freeze whose line can't be parsed refuses as well", func(e *env) {
			e.PutProject(e.A, e.ProjectRequest("frozen by hand", 0))
			want := driver.Freeze{Reason: "by hand"}
			if err := e.Update(e.A, suite.Move(refA, "", v1)); !suite.IsFrozen(err, e.Project, want) {
				e.Errorf("%v", err)
			}
			if _, err := e.TryPrepare(e.A, suite.Move(refA, "", v1)); !suite.IsFrozen(err, e.Project, want) {
				e.Errorf("%v", err)
			}
		}},
	}
}
