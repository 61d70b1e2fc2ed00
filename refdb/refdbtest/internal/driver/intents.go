package driver

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/suite"
)

// An intent is recorded before a repository is changed; its lock refuses all others.
func intentRows() []row {
	return []row{
		{"a preparation takes all locks under one token, and records an intent for each", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1), suite.Move(refB, "", v1)))
			before := e.Now(e.B)
			l := e.Prepare(e.A, suite.Move(refA, v1, v2), suite.Move(refB, v1, driver.Deleted), suite.Move(refC, "", v3))
			if l.Token <= 0 || len(l.Reclaimed) != 0 {
				e.Errorf("got %+v", l.Prepared)
			}
			if l.Time.Before(before.Truncate(time.Microsecond)) || l.Time.After(e.Now(e.B)) {
				e.Errorf("it says that it was made at %v, and was after %v", l.Time, before)
			}
			e.WantIntended(l)
			got := e.Pending()
			if len(got) != 3 {
				e.Fatalf("the intents are %+v", got)
			}
			for _, i := range got {
				if i.Time.Before(before.Truncate(time.Microsecond)) || i.Time.After(e.Now(e.B)) {
					e.Errorf("the intent is of %v, the preparation was after %v", i.Time, before)
				}
				if i.DecidedBy != "" || i.Reason != "" || !i.DecidedAt.IsZero() {
					e.Errorf("somebody decided: %+v", i)
				}
			}
			e.WantRefs(map[string]driver.Value{refA: v1, refB: v1})
			if got := e.Decided(); len(got) != 0 {
				e.Errorf("decided are %+v", got)
			}
		}},
		{"an intent's lock is listed as one that never goes stale, however old", func(e *env) {
			l := e.Prepare(e.A, suite.Move(refA, "", v1))
			e.Age(l, 50*years)
			got := e.Locks(driver.LockQuery{LockFilter: driver.LockFilter{Project: e.Project, OlderThan: 49 * years}})
			if len(got) != 1 || got[0].StaleAfter != driver.NeverStale || !got[0].Intended() || got[0].Stale() || got[0].Token != l.Token {
				e.Errorf("got %+v", got)
			}
			if got := e.Locks(driver.LockQuery{LockFilter: driver.LockFilter{Project: e.Project, Stale: true}}); len(got) != 0 {
				e.Errorf("stale are %+v", got)
			}
		}},
		{"refs that hold other values refuse the preparation, each is named, and nothing is left", func(e *env) {
			e.Must(e.Update(e.A, suite.Move("HEAD", "", v1), suite.Move(refA, "", v1), suite.Move(refB, "", driver.Deleted)))
			_, err := e.TryPrepare(e.A, suite.Move("HEAD", v1, v2), suite.Move(refA, v2, v3), suite.Move(refB, v1, v2), suite.Move(refC, v1, v2))
			e.WantMismatches(err, driver.Mismatch{Ref: refA, Want: v2, Have: v1},
				driver.Mismatch{Ref: refB, Want: v1, Have: driver.Deleted}, driver.Mismatch{Ref: refC, Want: v1})
			e.WantNone()
			e.WantRefs(map[string]driver.Value{"HEAD": v1, refA: v1, refB: driver.Deleted})
			e.Acquire(e.B, "HEAD", refA, refB, refC)
		}},
		{"a ref that exists does not match an absent Old", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			for _, old := range []driver.Value{"", driver.Deleted, driver.Deleted256} {
				_, err := e.TryPrepare(e.A, suite.Move(refA, old, v2))
				e.WantMismatches(err, driver.Mismatch{Ref: refA, Want: old, Have: v1})
			}
			e.WantNone()
		}},
		{"an absent Old matches an unknown ref and a deleted ref", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", driver.Deleted), suite.Move(refB, "", driver.Deleted256)))
			for _, old := range []driver.Value{"", driver.Deleted, driver.Deleted256} {
				l := e.Prepare(e.A, suite.Move(refA, old, v1), suite.Move(refB, old, v1), suite.Move(refC, old, v1))
				e.WantIntended(l)
				e.Drop(e.A, l)
			}
			e.WantNone()
		}},
		{"values are compared by their bytes", func(e *env) {
			const lower driver.Value = "abcdefabcdefabcdefabcdefabcdefabcdefabcd"
			upper := driver.Value(strings.ToUpper(string(lower)))
			e.Must(e.Update(e.A, suite.Move(refA, "", lower)))
			_, err := e.TryPrepare(e.A, suite.Move(refA, upper, v1))
			e.WantMismatches(err, driver.Mismatch{Ref: refA, Want: upper, Have: lower})
		}},
		{"a lock takes precedence over a mismatch, and the refusal leaves nothing", func(e *env) {
			other := e.Acquire(e.B, refB)
			_, err := e.TryPrepare(e.A, suite.Move(refA, v1, v2), suite.Move(refB, v1, v2))
			e.WantHolders(err, refB)
			e.WantFree(refA)
			e.WantLock(other)
			if got := e.Pending(); len(got) != 0 {
				e.Errorf("intents are left: %+v", got)
			}
		}},
		{"an intent refuses another intent on the same ref, even of its own process", func(e *env) {
			l := e.Prepare(e.A, suite.Move(refA, "", v1), suite.Move(refB, "", v1))
			for _, p := range []process{e.A, e.B} {
				_, err := e.TryPrepare(p, suite.Move(refB, "", v1), suite.Move(refC, "", v1))
				if h := e.WantHolders(err, refB); h[0].Token != l.Token || h[0].Owner != l.Owner || !h[0].Intended() {
					e.Errorf("the holders are %+v", h)
				}
			}
			e.WantIntended(l)
			e.WantFree(refC)
			if got := e.Pending(); len(got) != 2 {
				e.Errorf("the intents are %+v", got)
			}
		}},
		{"P5 stale locks are taken over, with a larger token, and reported", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			old := e.Acquire(e.B, refA, refC)
			e.Age(old, stale)
			l := e.Prepare(e.A, suite.Move(refA, v1, v2), suite.Move(refB, "", v2), suite.Move(refC, "", v2))
			if l.Token <= old.Token || len(l.Reclaimed) != 2 || l.Reclaimed[0].Token != old.Token || !l.Reclaimed[0].Stale() {
				e.Errorf("got %+v after token %d", l.Prepared, old.Token)
			}
			e.WantIntended(l)
			if got := e.Beat(e.B, old.IDs()...); got[0] != driver.BeatLost || got[1] != driver.BeatLost {
				e.Errorf("the holder's beat says %v", got)
			}
			e.WantLost(e.SendUpdate(e.B, driver.UpdateRequest{Fence: old.Fence(), Updates: []driver.Update{suite.Move(refA, v1, v3)}}), refA, refC)
		}},
		{"a preparation that a mismatch refuses leaves the stale locks as they were", func(e *env) {
			old := e.Acquire(e.B, refA)
			e.Age(old, stale)
			was := e.Row(refA)
			_, err := e.TryPrepare(e.A, suite.Move(refA, "", v1), suite.Move(refB, v1, v2))
			e.WantMismatches(err, driver.Mismatch{Ref: refB, Want: v1})
			e.WantLock(old)
			if now := e.Row(refA); !now.Heartbeat.Equal(was.Heartbeat) {
				e.Errorf("the heartbeat went from %v to %v", was.Heartbeat, now.Heartbeat)
			}
			if got := e.Beat(e.B, old.IDs()...); got[0] != driver.BeatRenewed {
				e.Errorf("the holder's beat says %v", got)
			}
		}},
		{"a lock of Gerrit's is taken over once it is stale", func(e *env) {
			e.DB.InsertLock(e, driver.LockInfo{Project: e.Project, Ref: refA, Owner: gerrit, Age: time.Second})
			_, err := e.TryPrepare(e.A, suite.Move(refA, "", v1))
			e.WantHolders(err, refA)
			e.DB.Age(e, e.Project, refA, 30*time.Second)
			e.WantIntended(e.Prepare(e.A, suite.Move(refA, "", v1)))
		}},
		{"P2 tokens of preparations and of locks are in a common order", func(e *env) {
			var last driver.Token
			for i := range 20 {
				var token driver.Token
				if i%2 == 0 {
					l := e.Prepare(e.A, suite.Move(refA, "", v1))
					token = l.Token
					e.Drop(e.A, l)
				} else {
					l := e.Acquire(e.B, refA)
					token = l.Token
					e.Release(e.B, l)
				}
				if token <= last {
					e.Fatalf("acquisition %d has token %d after %d", i, token, last)
				}
				last = token
			}
		}},
		{"however old it is, an intent refuses locks and updates", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			l := e.Prepare(e.A, suite.Move(refA, v1, v2))
			e.Age(l, 50*years)
			if h := e.Refused(e.B, refA, refB); len(h) != 1 || !h[0].Intended() {
				e.Errorf("the holders are %+v", h)
			}
			e.WantHolders(e.Update(e.B, suite.Move(refA, v1, v3), suite.Move(refB, "", v3)), refA)
			e.WantIntended(l)
			e.WantRefs(map[string]driver.Value{refA: v1})
			e.WantFree(refB)
		}},
		{"an intent refuses an advisory update, and other locks do not", func(e *env) {
			advisory := func(updates ...driver.Update) error {
				return e.SendUpdate(e.B, driver.UpdateRequest{Locks: driver.AdvisoryLocks, Updates: updates})
			}
			l, fresh, old := e.Prepare(e.A, suite.Move(refA, "", v1)), e.Acquire(e.A, refB), e.Acquire(e.A, refC)
			e.Age(old, stale)
			for _, updates := range [][]driver.Update{
				{suite.Move(refA, "", v3)},
				{suite.Move(refA, v1, v3)}, // a lock comes before a mismatch here too
				{suite.Move("HEAD", "", v3), suite.Move(refA, "", v3), suite.Move(refB, "", v3)},
			} {
				if h := e.WantHolders(advisory(updates...), refA); len(h) == 1 && (h[0].Token != l.Token || !h[0].Intended()) {
					e.Errorf("the holders are %+v", h)
				}
			}
			e.WantRefs(nil)
			e.Must(advisory(suite.Move(refB, "", v3), suite.Move(refC, "", v3)))
			e.WantRefs(map[string]driver.Value{refB: v3, refC: v3})
			e.WantIntended(l)
			e.WantLock(fresh)
			e.WantLock(old)
		}},
		{"an intent refuses even a forced removal of its project, and of no other project", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			l := e.Prepare(e.A, suite.Move(refC, "", v1))
			e.Age(l, 50*years)
			for _, mode := range []driver.LockMode{driver.MandatoryLocks, driver.AdvisoryLocks} {
				_, err := e.B.Remove(e.Context(), driver.RemoveRequest{Project: e.Project, Limit: 10, Locks: mode})
				e.WantHolders(err, refC)
			}
			e.WantRefs(map[string]driver.Value{refA: v1})
			e.WantIntended(l)
			other := e.Project + "/x"
			e.Must(e.SendUpdate(e.A, driver.UpdateRequest{Project: other, Updates: []driver.Update{suite.Move(refA, "", v1)}}))
			if n, err := e.B.Remove(e.Context(), driver.RemoveRequest{Project: other, Limit: 10, Locks: driver.AdvisoryLocks}); n != 1 || err != nil {
				e.Errorf("of another project: %d, %v", n, err)
			}
			e.Must(e.TryFinish(e.A, l, nil, []string{refC}))
			if n := e.Remove(driver.RemoveRequest{Limit: 10}); n != 1 {
				e.Errorf("removed %d", n)
			}
		}},
		{"purging tombstones ignores intents, and ends none", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", driver.Deleted)))
			l := e.Prepare(e.A, suite.Move(refA, "", v1))
			if n := e.PurgeTombstones(driver.TombstoneRequest{Limit: 10}); n != 1 {
				e.Errorf("removed %d", n)
			}
			e.WantIntended(l)
			e.Must(e.Finish(e.A, l))
			e.WantRefs(map[string]driver.Value{refA: v1})
		}},
		{"P7 a repeated request is the same preparation, however old and whatever its refs were expected to hold", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			first := e.Prepare(e.A, suite.Move(refA, v1, v2), suite.Move(refB, "", v2))
			e.Age(first, 50*years)
			for _, p := range []process{e.A, e.B} {
				again, err := e.SendPrepare(p, first.PrepareRequest)
				e.Must(err)
				if again.Token != first.Token || len(again.Reclaimed) != 0 {
					e.Errorf("got %+v, then %+v", first.Prepared, again.Prepared)
				}
			}
			e.WantIntended(first)
			if got := e.Pending(); len(got) != 2 {
				e.Errorf("the intents are %+v", got)
			}
		}},
		{"P7 a repeated request of which a part has ended is refused by the rest and changes nothing", func(e *env) {
			l := e.Prepare(e.A, suite.Move(refA, "", v1), suite.Move(refB, "", v1), suite.Move(refC, "", v1))
			e.Must(e.TryFinish(e.A, l, nil, []string{refB}))
			_, err := e.SendPrepare(e.A, l.PrepareRequest)
			e.WantHolders(err, refA, refC)
			e.WantFree(refB)
			e.WantIntended(l, refA, refC)
			if got := e.Pending(); len(got) != 2 {
				e.Errorf("the intents are %+v", got)
			}
		}},
		{"P8 a beat of an owner with intents renews only the locks that it names", func(e *env) {
			names := suite.ManyNames(e.Scale(1000))
			l, intent := e.Acquire(e.A, names...), e.Prepare(e.A, suite.Move(refA, "", v1))
			e.Age(intent, 10*time.Minute)
			was := e.Row(refA).Heartbeat
			for range 2 {
				want := slices.Repeat([]driver.BeatResult{driver.BeatRenewed}, len(names))
				if got := e.Beat(e.A, l.IDs()...); !slices.Equal(got, want) {
					e.Fatalf("got %v", got)
				}
			}
			if now := e.Row(refA).Heartbeat; !now.Equal(was) {
				e.Errorf("the heartbeat of %s went from %v to %v", refA, was, now)
			}
			e.WantIntended(intent)
		}},
		{"P10 names, values, owners, agents and requesters are data", suite.Long(func(e *env) {
			for i, name := range nastyProjects() {
				project := name
				ref := nastyRefs()[i%len(nastyRefs())]
				if driver.CheckKey(project, ref) != nil {
					ref = refA
				}
				r := &env{T: e.T, DB: e.DB, A: process{Driver: e.A.Driver, Owner: name}, B: e.B, Project: project}
				intention := r.PrepareRequest(r.A, suite.Move(ref, "", driver.Value(name)))
				intention.Agent, intention.By = name, strings.Map(printable, name)
				l, err := r.SendPrepare(r.A, intention)
				r.Must(err)
				r.WantIntended(l)
				if i%2 == 0 {
					r.Must(r.Finish(r.A, l))
				} else {
					r.Resolve(r.B, driver.TakeNew, suite.IntentIDs(r.Pending())...)
					r.Forget(r.B, l.IDs()...)
				}
				if got := r.GetOne(ref).Value; got != driver.Value(name) {
					e.Errorf("%q %q holds %q", project, ref, got)
				}
				r.WantNone()
			}
			for _, ref := range nastyRefs() { // some of which exclude others
				l := e.Prepare(e.A, suite.Move(ref, "", v1))
				e.WantIntended(l)
				e.Must(e.Finish(e.A, l))
				e.Must(e.Finish(e.A, e.Prepare(e.A, suite.Move(ref, v1, driver.Deleted))))
			}
			e.WantNone()
			if got := e.List(e.Project); len(got) != len(nastyRefs()) {
				e.Errorf("%d refs are there, want %d", len(got), len(nastyRefs()))
			}
		})},
		{"a preparation whose context has ended returns its error and leaves nothing", func(e *env) {
			ctx, cancel := context.WithCancel(e.Context())
			cancel()
			if _, err := e.A.Prepare(ctx, e.PrepareRequest(e.A, suite.Move(refA, "", v1))); !errors.Is(err, context.Canceled) {
				e.Errorf("got %v", err)
			}
			e.WantNone()
		}},
		{"every filter selects the matching intents, in order, in pages of any size", suite.Long(intentFilters)},
	}
}

// printable drops control characters: nobody's name has any.
func printable(r rune) rune {
	if unicode.IsControl(r) {
		return -1
	}
	return r
}

// Owners end their intents by Finish.
func intentEndRows() []row {
	return []row{
		{"a release, a purge and an abandonment all leave an intent", func(e *env) {
			l := e.Prepare(e.A, suite.Move(refA, "", v1))
			e.Age(l, 50*years)
			if missing := e.Release(e.A, l.Lock()); !slices.Equal(missing, []string{refA}) {
				e.Errorf("a release finds %q missing", missing)
			}
			for _, intent := range []driver.StandingLock{suite.Standing(l.IDs()...)[0], suite.AsListed(e.Row(refA))} {
				if got := e.Purge(e.A, intent); got[0] {
					e.Errorf("%+v was purged", intent)
				}
			}
			e.Abandon(e.A, l.Lock().AcquireRequest)
			e.WantIntended(l)
		}},
		{"done refs take their new values, dropped refs keep the old ones, and all intents end together", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1), suite.Move(refB, "", v1)))
			l := e.Prepare(e.A, suite.Move("HEAD", "", v2), suite.Move(refA, v1, v2), suite.Move(refB, v1, driver.Deleted), suite.Move(refC, "", v2))
			e.Must(e.TryFinish(e.A, l, []string{"HEAD", refB}, []string{refA, refC}))
			e.WantRefs(map[string]driver.Value{"HEAD": v2, refA: v1, refB: driver.Deleted})
			e.WantNone()
			e.Acquire(e.B, "HEAD", refA, refB, refC)
		}},
		{"an intent that is neither done nor dropped does not change, and ends later", func(e *env) {
			l := e.Prepare(e.A, suite.Move(refA, "", v1), suite.Move(refB, "", v1), suite.Move(refC, "", v1))
			e.Must(e.TryFinish(e.A, l, []string{refB}, nil))
			e.WantRefs(map[string]driver.Value{refB: v1})
			e.WantIntended(l, refA, refC)
			e.WantFree(refB)
			e.Must(e.Update(e.B, suite.Move(refB, v1, v2)))
			e.Must(e.TryFinish(e.A, l, []string{refA}, []string{refC}))
			e.WantRefs(map[string]driver.Value{refA: v1, refB: v2})
			e.WantNone()
		}},
		{"P6 an ended intent can't end again, and the others of the request don't end either", func(e *env) {
			l := e.Prepare(e.A, suite.Move(refA, "", v1), suite.Move(refB, "", v1), suite.Move(refC, "", v1))
			e.Must(e.TryFinish(e.A, l, []string{refB}, nil))
			e.WantLost(e.TryFinish(e.A, l, []string{refA, refB}, []string{refC}), refB)
			e.WantLost(e.TryFinish(e.A, l, []string{refC}, []string{refB}), refB)
			e.WantRefs(map[string]driver.Value{refB: v1})
			e.WantIntended(l, refA, refC)
		}},
		{"P6 an ended intent also prevents that the others are dropped, and nothing else is named", func(e *env) {
			l := e.Prepare(e.A, suite.Move("HEAD", "", v1), suite.Move(refA, "", v1), suite.Move(refB, "", v1), suite.Move(refC, "", v1), suite.Move("refs/x", "", v1))
			e.Must(e.TryFinish(e.A, l, nil, []string{refB}))
			e.Resolve(e.B, driver.KeepOld, l.IDs()[4])
			e.WantLost(e.TryDrop(e.A, l), refB, "refs/x")
			e.WantLost(e.Finish(e.A, l), refB, "refs/x")
			e.WantLost(e.TryFinish(e.A, l, []string{refA, refB}, []string{refC, "refs/x"}), refB, "refs/x")
			e.WantIntended(l, "HEAD", refA, refC)
			e.Must(e.TryFinish(e.A, l, nil, []string{"HEAD", refA, refC}))
			e.WantRefs(nil)
			e.Forget(e.A, l.IDs()...)
			e.WantNone()
		}},
		{"P2 another token ends nothing", func(e *env) {
			l := e.Prepare(e.A, suite.Move(refA, "", v1))
			for _, token := range []driver.Token{l.Token - 1, l.Token + 1, 0} {
				other := l
				other.Token = token
				e.WantLost(e.Finish(e.A, other), refA)
				e.WantLost(e.TryDrop(e.A, other), refA)
			}
			e.WantIntended(l)
			e.WantRefs(nil)
		}},
		{"P2 the right token ends nothing of another owner", func(e *env) {
			l := e.Prepare(e.A, suite.Move(refA, "", v1), suite.Move(refB, "", v1))
			other := l
			other.Owner = e.B.Owner
			e.WantLost(e.Finish(e.B, other), refA, refB)
			e.WantLost(e.TryDrop(e.B, other), refA, refB)
			e.WantIntended(l)
			e.ChangeOwner(refB)
			e.WantLost(e.Finish(e.A, l), refB)
			e.WantRefs(nil)
			e.WantChangedOwner(l, refB)
			e.WantLock(l, refA)
			e.Must(e.TryFinish(e.A, l, []string{refA}, nil))
			e.WantRefs(map[string]driver.Value{refA: v1})
		}},
		{"P6 a ref with an unexpected value refuses the finish, unless it is dropped", func(e *env) {
			l := e.Prepare(e.A, suite.Move(refA, "", v1), suite.Move(refB, "", v1), suite.Move(refC, "", v1))
			e.DB.InsertRef(e, e.Project, refB, v3)
			e.WantMismatches(e.Finish(e.A, l), driver.Mismatch{Ref: refB, Have: v3})
			e.WantMismatches(e.TryFinish(e.A, l, []string{refB}, []string{refA}), driver.Mismatch{Ref: refB, Have: v3})
			e.WantIntended(l)
			e.WantRefs(map[string]driver.Value{refB: v3})
			e.Must(e.TryFinish(e.A, l, []string{refA, refC}, []string{refB}))
			e.WantRefs(map[string]driver.Value{refA: v1, refB: v3, refC: v1})
			e.WantNone()
		}},
		{"an ended intent takes precedence over a mismatch", func(e *env) {
			l := e.Prepare(e.A, suite.Move(refA, "", v1), suite.Move(refB, "", v1))
			e.Must(e.TryFinish(e.A, l, nil, []string{refA}))
			e.DB.InsertRef(e, e.Project, refB, v3)
			e.WantLost(e.Finish(e.A, l), refA)
			e.WantIntended(l, refB)
		}},
		{"a moved ref carries the finish's ID, and a dropped ref is unchanged", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refB, "", v1)))
			was := e.GetOne(refB)
			l := e.Prepare(e.A, suite.Move(refA, "", v1), suite.Move(refB, v1, v2))
			before := e.Now(e.B)
			e.Must(e.A.Finish(e.Context(), driver.FinishRequest{
				Project: e.Project, Origin: driver.Origin{ID: "the finish", Owner: l.Owner}, Token: l.Token, Done: l.Updates[:1], Dropped: []string{refB},
			}))
			if got := e.GetOne(refA); got.Op != "the finish" || got.Time.Before(before.Truncate(time.Microsecond)) || got.Time.After(e.Now(e.B)) {
				e.Errorf("got %+v", got)
			}
			if now := e.GetOne(refB); now.Op != was.Op || !now.Time.Equal(was.Time) {
				e.Errorf("the ref was %+v and is %+v", was, now)
			}
		}},
		{"P11 the token of an intent alone moves its ref for no other owner, with others or without", func(e *env) {
			l := e.Prepare(e.A, suite.Move(refA, "", v1))
			p := e.Prepare(e.A, suite.Move(refB, "", v1), suite.Move(refC, "", v1))
			for _, mode := range []driver.LockMode{driver.MandatoryLocks, driver.AdvisoryLocks} {
				for _, release := range []bool{false, true} {
					r := driver.UpdateRequest{Fence: l.Lock().Fence(), Locks: mode, Updates: []driver.Update{suite.Move(refA, "", v3)}}
					r.Fence.Release = release
					e.WantLost(e.SendUpdate(e.B, r), refA)
					r.Fence, r.Updates = p.Lock().Fence(), []driver.Update{suite.Move(refC, "", v3), suite.Move("refs/heads/d", "", v3)}
					r.Fence.Release = release
					e.WantLost(e.SendUpdate(e.B, r), refB, refC)
				}
			}
			e.WantIntended(l)
			e.WantIntended(p)
			e.WantRefs(nil)
		}},
		{"a ref can be prepared again once its intent has ended, and in another project at any time", func(e *env) {
			l := e.Prepare(e.A, suite.Move(refA, "", v1))
			r := e.PrepareRequest(e.B, suite.Move(refA, "", v2))
			r.Project += "/x"
			other, err := e.SendPrepare(e.B, r)
			e.Must(err)
			e.Must(e.Finish(e.A, l))
			next := e.Prepare(e.B, suite.Move(refA, v1, v2))
			e.WantIntended(next)
			e.WantLost(e.Finish(e.A, l), refA)
			e.Must(e.Finish(e.B, next))
			e.WantRefs(map[string]driver.Value{refA: v2})
			e.WantNone()
			e.Must(e.Finish(e.B, other))
		}},
		{"the maximum number of refs of a preparation end together, or in parts", func(e *env) {
			names := suite.ManyNames(e.Scale(driver.MaxLockRefs))
			l := e.Prepare(e.A, suite.Creations(names)...)
			if got := e.Pending(); len(got) != len(names) {
				e.Fatalf("%d intents of %d", len(got), len(names))
			}
			last := names[len(names)-1]
			if h := e.Refused(e.B, "HEAD", last); len(h) != 1 || h[0].Ref != last {
				e.Fatalf("the holders are %+v", h)
			}
			half := len(names) / 2
			e.Must(e.TryFinish(e.A, l, names[:half/2], names[half/2:half]))
			if got := e.Pending(); len(got) != len(names)-half || got[0].Ref != names[half] {
				e.Fatalf("%d intents are left, the first %+v", len(got), got[:1])
			}
			e.Must(e.TryFinish(e.A, l, names[half:], nil))
			if got := e.List(e.Project); len(got) != len(names)-(half-half/2) {
				e.Errorf("%d refs hold a value", len(got))
			}
			e.WantNone()
		}},
	}
}
