package refdbtest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const years = 365 * 24 * time.Hour

// An intent is recorded before a repository is changed; its lock refuses all others.
func intentRows() []row {
	return []row{
		{"a preparation takes all locks under one token, and records an intent for each", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1), move(refB, "", v1)))
			before := e.now(e.b)
			l := e.prepare(e.a, move(refA, v1, v2), move(refB, v1, refdb.Deleted), move(refC, "", v3))
			if l.Token <= 0 || len(l.Reclaimed) != 0 {
				e.Errorf("got %+v", l.Prepared)
			}
			e.wantIntended(l)
			got := e.pending()
			if len(got) != 3 {
				e.Fatalf("the intents are %+v", got)
			}
			for _, i := range got {
				if i.Time.Before(before.Truncate(time.Microsecond)) || i.Time.After(e.now(e.b)) {
					e.Errorf("the intent is of %v, the preparation was after %v", i.Time, before)
				}
				if i.DecidedBy != "" || i.Reason != "" || !i.DecidedAt.IsZero() {
					e.Errorf("somebody decided: %+v", i)
				}
			}
			e.wantRefs(map[string]refdb.Value{refA: v1, refB: v1})
			if got := e.decided(); len(got) != 0 {
				e.Errorf("decided are %+v", got)
			}
		}},
		{"an intent's lock is listed as one that never goes stale, however old", func(e *env) {
			l := e.prepare(e.a, move(refA, "", v1))
			e.age(l, 50*years)
			got := e.locks(refdb.LockQuery{LockFilter: refdb.LockFilter{Project: e.project, OlderThan: 49 * years}})
			if len(got) != 1 || got[0].StaleAfter != refdb.NeverStale || !got[0].Intended() || got[0].Stale() || got[0].Token != l.Token {
				e.Errorf("got %+v", got)
			}
			if got := e.locks(refdb.LockQuery{LockFilter: refdb.LockFilter{Project: e.project, Stale: true}}); len(got) != 0 {
				e.Errorf("stale are %+v", got)
			}
		}},
		{"refs that hold something else refuse all, each is named, and nothing is left", func(e *env) {
			e.must(e.update(e.a, move("HEAD", "", v1), move(refA, "", v1), move(refB, "", refdb.Deleted)))
			_, err := e.tryPrepare(e.a, move("HEAD", v1, v2), move(refA, v2, v3), move(refB, v1, v2), move(refC, v1, v2))
			e.wantMismatches(err, refdb.Mismatch{Ref: refA, Want: v2, Have: v1},
				refdb.Mismatch{Ref: refB, Want: v1, Have: refdb.Deleted}, refdb.Mismatch{Ref: refC, Want: v1})
			e.wantNone()
			e.wantRefs(map[string]refdb.Value{"HEAD": v1, refA: v1, refB: refdb.Deleted})
			e.acquire(e.b, "HEAD", refA, refB, refC)
		}},
		{"a ref that exists does not hold nothing", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1)))
			for _, old := range []refdb.Value{"", refdb.Deleted, refdb.Deleted256} {
				_, err := e.tryPrepare(e.a, move(refA, old, v2))
				e.wantMismatches(err, refdb.Mismatch{Ref: refA, Want: old, Have: v1})
			}
			e.wantNone()
		}},
		{"nothing is expected of an unknown ref and of a deleted one alike", func(e *env) {
			e.must(e.update(e.a, move(refA, "", refdb.Deleted), move(refB, "", refdb.Deleted256)))
			for _, old := range []refdb.Value{"", refdb.Deleted, refdb.Deleted256} {
				l := e.prepare(e.a, move(refA, old, v1), move(refB, old, v1), move(refC, old, v1))
				e.wantIntended(l)
				e.drop(e.a, l)
			}
			e.wantNone()
		}},
		{"values are compared by their bytes", func(e *env) {
			const lower refdb.Value = "abcdefabcdefabcdefabcdefabcdefabcdefabcd"
			upper := refdb.Value(strings.ToUpper(string(lower)))
			e.must(e.update(e.a, move(refA, "", lower)))
			_, err := e.tryPrepare(e.a, move(refA, upper, v1))
			e.wantMismatches(err, refdb.Mismatch{Ref: refA, Want: upper, Have: lower})
		}},
		{"a lock comes before a mismatch, and the refusal leaves nothing", func(e *env) {
			other := e.acquire(e.b, refB)
			_, err := e.tryPrepare(e.a, move(refA, v1, v2), move(refB, v1, v2))
			e.wantHolders(err, refB)
			e.wantFree(refA)
			e.wantLock(other)
			if got := e.pending(); len(got) != 0 {
				e.Errorf("intents are left: %+v", got)
			}
		}},
		{"an intent refuses another of the same ref, its own process's too", func(e *env) {
			l := e.prepare(e.a, move(refA, "", v1), move(refB, "", v1))
			for _, p := range []process{e.a, e.b} {
				_, err := e.tryPrepare(p, move(refB, "", v1), move(refC, "", v1))
				if h := e.wantHolders(err, refB); h[0].Token != l.Token || h[0].Owner != l.Owner || !h[0].Intended() {
					e.Errorf("the holders are %+v", h)
				}
			}
			e.wantIntended(l)
			e.wantFree(refC)
			if got := e.pending(); len(got) != 2 {
				e.Errorf("the intents are %+v", got)
			}
		}},
		{"P5 stale locks are taken over, with a larger token, and reported", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1)))
			old := e.acquire(e.b, refA, refC)
			e.age(old, stale)
			l := e.prepare(e.a, move(refA, v1, v2), move(refB, "", v2), move(refC, "", v2))
			if l.Token <= old.Token || len(l.Reclaimed) != 2 || l.Reclaimed[0].Token != old.Token || !l.Reclaimed[0].Stale() {
				e.Errorf("got %+v after token %d", l.Prepared, old.Token)
			}
			e.wantIntended(l)
			if got := e.beat(e.b, old.ids()...); got[0] != refdb.BeatLost || got[1] != refdb.BeatLost {
				e.Errorf("the holder's beat says %v", got)
			}
			e.wantLost(e.sendUpdate(e.b, refdb.UpdateRequest{Fence: old.fence(), Updates: []refdb.Update{move(refA, v1, v3)}}), refA, refC)
		}},
		{"a preparation that a mismatch refuses leaves the stale locks as they were", func(e *env) {
			old := e.acquire(e.b, refA)
			e.age(old, stale)
			was := e.row(refA)
			_, err := e.tryPrepare(e.a, move(refA, "", v1), move(refB, v1, v2))
			e.wantMismatches(err, refdb.Mismatch{Ref: refB, Want: v1})
			e.wantLock(old)
			if now := e.row(refA); !now.Heartbeat.Equal(was.Heartbeat) {
				e.Errorf("the heartbeat went from %v to %v", was.Heartbeat, now.Heartbeat)
			}
			if got := e.beat(e.b, old.ids()...); got[0] != refdb.Beaten {
				e.Errorf("the holder's beat says %v", got)
			}
		}},
		{"a lock of Gerrit's is taken over once it is stale", func(e *env) {
			e.db.InsertLock(e, refdb.LockInfo{Project: e.project, Ref: refA, Owner: gerrit, Age: 15 * time.Second})
			_, err := e.tryPrepare(e.a, move(refA, "", v1))
			e.wantHolders(err, refA)
			e.db.Age(e, e.project, refA, 16*time.Second)
			e.wantIntended(e.prepare(e.a, move(refA, "", v1)))
		}},
		{"P2 tokens of preparations and of locks are in one order", func(e *env) {
			var last refdb.Token
			for i := range 20 {
				var token refdb.Token
				if i%2 == 0 {
					l := e.prepare(e.a, move(refA, "", v1))
					token = l.Token
					e.drop(e.a, l)
				} else {
					l := e.acquire(e.b, refA)
					token = l.Token
					e.release(e.b, l)
				}
				if token <= last {
					e.Fatalf("acquisition %d has token %d after %d", i, token, last)
				}
				last = token
			}
		}},
		{"however old it is, an intent refuses locks and updates", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1)))
			l := e.prepare(e.a, move(refA, v1, v2))
			e.age(l, 50*years)
			if h := e.refused(e.b, refA, refB); len(h) != 1 || !h[0].Intended() {
				e.Errorf("the holders are %+v", h)
			}
			e.wantHolders(e.update(e.b, move(refA, v1, v3), move(refB, "", v3)), refA)
			e.wantIntended(l)
			e.wantRefs(map[string]refdb.Value{refA: v1})
			e.wantFree(refB)
		}},
		{"an intent refuses an advisory update too, and nothing else does", func(e *env) {
			advisory := func(updates ...refdb.Update) error {
				return e.sendUpdate(e.b, refdb.UpdateRequest{Locks: refdb.AdvisoryLocks, Updates: updates})
			}
			l, fresh, old := e.prepare(e.a, move(refA, "", v1)), e.acquire(e.a, refB), e.acquire(e.a, refC)
			e.age(old, stale)
			for _, updates := range [][]refdb.Update{
				{move(refA, "", v3)},
				{move(refA, v1, v3)}, // a lock comes before a mismatch here too
				{move("HEAD", "", v3), move(refA, "", v3), move(refB, "", v3)},
			} {
				if h := e.wantHolders(advisory(updates...), refA); len(h) == 1 && (h[0].Token != l.Token || !h[0].Intended()) {
					e.Errorf("the holders are %+v", h)
				}
			}
			e.wantRefs(nil)
			e.must(advisory(move(refB, "", v3), move(refC, "", v3)))
			e.wantRefs(map[string]refdb.Value{refB: v3, refC: v3})
			e.wantIntended(l)
			e.wantLock(fresh)
			e.wantLock(old)
		}},
		{"an intent refuses the removal of its project, by force too, and of no other", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1)))
			l := e.prepare(e.a, move(refC, "", v1))
			e.age(l, 50*years)
			for _, mode := range []refdb.LockMode{refdb.MandatoryLocks, refdb.AdvisoryLocks} {
				_, err := e.b.Remove(e.Context(), refdb.RemoveRequest{Project: e.project, Limit: 10, Locks: mode})
				e.wantHolders(err, refC)
			}
			e.wantRefs(map[string]refdb.Value{refA: v1})
			e.wantIntended(l)
			other := e.project + "/x"
			e.must(e.sendUpdate(e.a, refdb.UpdateRequest{Project: other, Updates: []refdb.Update{move(refA, "", v1)}}))
			if n, err := e.b.Remove(e.Context(), refdb.RemoveRequest{Project: other, Limit: 10, Locks: refdb.AdvisoryLocks}); n != 1 || err != nil {
				e.Errorf("of another project: %d, %v", n, err)
			}
			e.must(e.tryFinish(e.a, l, nil, []string{refC}))
			if n := e.remove(refdb.RemoveRequest{Limit: 10}); n != 1 {
				e.Errorf("removed %d", n)
			}
		}},
		{"purging tombstones neither heeds intents nor ends them", func(e *env) {
			e.must(e.update(e.a, move(refA, "", refdb.Deleted)))
			l := e.prepare(e.a, move(refA, "", v1))
			if n := e.purgeTombstones(refdb.TombstoneRequest{Limit: 10}); n != 1 {
				e.Errorf("removed %d", n)
			}
			e.wantIntended(l)
			e.must(e.finish(e.a, l))
			e.wantRefs(map[string]refdb.Value{refA: v1})
		}},
		{"P7 the same request again is the same preparation, however old and whatever its refs were said to hold", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1)))
			first := e.prepare(e.a, move(refA, v1, v2), move(refB, "", v2))
			e.age(first, 50*years)
			for _, p := range []process{e.a, e.b} {
				again, err := e.sendPrepare(p, first.PrepareRequest)
				e.must(err)
				if again.Token != first.Token || len(again.Reclaimed) != 0 {
					e.Errorf("got %+v, then %+v", first.Prepared, again.Prepared)
				}
			}
			e.wantIntended(first)
			if got := e.pending(); len(got) != 2 {
				e.Errorf("the intents are %+v", got)
			}
		}},
		{"P7 the same request, of which a part has ended, is refused by the rest and changes nothing", func(e *env) {
			l := e.prepare(e.a, move(refA, "", v1), move(refB, "", v1), move(refC, "", v1))
			e.must(e.tryFinish(e.a, l, nil, []string{refB}))
			_, err := e.sendPrepare(e.a, l.PrepareRequest)
			e.wantHolders(err, refA, refC)
			e.wantFree(refB)
			e.wantIntended(l, refA, refC)
			if got := e.pending(); len(got) != 2 {
				e.Errorf("the intents are %+v", got)
			}
		}},
		{"P8 a beat of an owner who has intents too renews the locks that it names, and those only", func(e *env) {
			names := manyNames(e.scale(1000))
			l, intent := e.acquire(e.a, names...), e.prepare(e.a, move(refA, "", v1))
			e.age(intent, 10*time.Minute)
			was := e.row(refA).Heartbeat
			for range 2 {
				want := slices.Repeat([]refdb.BeatResult{refdb.Beaten}, len(names))
				if got := e.beat(e.a, l.ids()...); !slices.Equal(got, want) {
					e.Fatalf("got %v", got)
				}
			}
			if now := e.row(refA).Heartbeat; !now.Equal(was) {
				e.Errorf("the heartbeat of %s went from %v to %v", refA, was, now)
			}
			e.wantIntended(intent)
		}},
		{"P10 names, values, owners, agents and who asked are data", func(e *env) {
			for i, name := range nastyProjects() {
				project := name
				ref := nastyRefs()[i%len(nastyRefs())]
				if refdb.CheckKey(project, ref) != nil {
					ref = refA
				}
				r := &env{T: e.T, db: e.db, a: process{e.a.Driver, name}, b: e.b, project: project}
				intention := r.prepareRequest(r.a, move(ref, "", refdb.Value(name)))
				intention.Agent, intention.By = name, strings.Map(printable, name)
				l, err := r.sendPrepare(r.a, intention)
				r.must(err)
				r.wantIntended(l)
				if i%2 == 0 {
					r.must(r.finish(r.a, l))
				} else {
					r.resolve(r.b, refdb.TakeNew, intentIDs(r.pending())...)
					r.forget(r.b, l.ids()...)
				}
				if got := r.getOne(ref).Value; got != refdb.Value(name) {
					e.Errorf("%q %q holds %q", project, ref, got)
				}
				r.wantNone()
			}
			for _, ref := range nastyRefs() {
				l := e.prepare(e.a, move(ref, "", v1))
				e.wantIntended(l)
				e.must(e.finish(e.a, l))
			}
			e.wantNone()
			if got := e.list(e.project); len(got) != len(nastyRefs()) {
				e.Errorf("%d refs are there, want %d", len(got), len(nastyRefs()))
			}
		}},
		{"a preparation whose context has ended says so and leaves nothing", func(e *env) {
			ctx, cancel := context.WithCancel(e.Context())
			cancel()
			if _, err := e.a.Prepare(ctx, e.prepareRequest(e.a, move(refA, "", v1))); !errors.Is(err, context.Canceled) {
				e.Errorf("got %v", err)
			}
			e.wantNone()
		}},
		{"every filter selects what it says, in order, on pages of any size", intentFilters},
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
			l := e.prepare(e.a, move(refA, "", v1))
			e.age(l, 50*years)
			if missing := e.release(e.a, l.lock()); !slices.Equal(missing, []string{refA}) {
				e.Errorf("a release finds %q missing", missing)
			}
			for _, intent := range []refdb.StandingLock{standing(l.ids()...)[0], asListed(e.row(refA))} {
				if got := e.purge(e.a, intent); got[0] {
					e.Errorf("%+v was purged", intent)
				}
			}
			e.abandon(e.a, l.lock().AcquireRequest)
			e.wantIntended(l)
		}},
		{"what is done takes its new value, what is dropped keeps the old, and all end together", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1), move(refB, "", v1)))
			l := e.prepare(e.a, move("HEAD", "", v2), move(refA, v1, v2), move(refB, v1, refdb.Deleted), move(refC, "", v2))
			e.must(e.tryFinish(e.a, l, []string{"HEAD", refB}, []string{refA, refC}))
			e.wantRefs(map[string]refdb.Value{"HEAD": v2, refA: v1, refB: refdb.Deleted})
			e.wantNone()
			e.acquire(e.b, "HEAD", refA, refB, refC)
		}},
		{"what is neither done nor dropped stays as it is, and ends later", func(e *env) {
			l := e.prepare(e.a, move(refA, "", v1), move(refB, "", v1), move(refC, "", v1))
			e.must(e.tryFinish(e.a, l, []string{refB}, nil))
			e.wantRefs(map[string]refdb.Value{refB: v1})
			e.wantIntended(l, refA, refC)
			e.wantFree(refB)
			e.must(e.update(e.b, move(refB, v1, v2)))
			e.must(e.tryFinish(e.a, l, []string{refA}, []string{refC}))
			e.wantRefs(map[string]refdb.Value{refA: v1, refB: v2})
			e.wantNone()
		}},
		{"P6 what ended before can't end again, and keeps the others from it", func(e *env) {
			l := e.prepare(e.a, move(refA, "", v1), move(refB, "", v1), move(refC, "", v1))
			e.must(e.tryFinish(e.a, l, []string{refB}, nil))
			e.wantLost(e.tryFinish(e.a, l, []string{refA, refB}, []string{refC}), refB)
			e.wantLost(e.tryFinish(e.a, l, []string{refC}, []string{refB}), refB)
			e.wantRefs(map[string]refdb.Value{refB: v1})
			e.wantIntended(l, refA, refC)
		}},
		{"P6 what ended before keeps the others from being dropped too, and nothing else is named", func(e *env) {
			l := e.prepare(e.a, move("HEAD", "", v1), move(refA, "", v1), move(refB, "", v1), move(refC, "", v1), move("refs/x", "", v1))
			e.must(e.tryFinish(e.a, l, nil, []string{refB}))
			e.resolve(e.b, refdb.KeepOld, l.ids()[4])
			e.wantLost(e.tryDrop(e.a, l), refB, "refs/x")
			e.wantLost(e.finish(e.a, l), refB, "refs/x")
			e.wantLost(e.tryFinish(e.a, l, []string{refA, refB}, []string{refC, "refs/x"}), refB, "refs/x")
			e.wantIntended(l, "HEAD", refA, refC)
			e.must(e.tryFinish(e.a, l, nil, []string{"HEAD", refA, refC}))
			e.wantRefs(nil)
			e.forget(e.a, l.ids()...)
			e.wantNone()
		}},
		{"P2 another token ends nothing", func(e *env) {
			l := e.prepare(e.a, move(refA, "", v1))
			for _, token := range []refdb.Token{l.Token - 1, l.Token + 1, 0} {
				other := l
				other.Token = token
				e.wantLost(e.finish(e.a, other), refA)
				e.wantLost(e.tryDrop(e.a, other), refA)
			}
			e.wantIntended(l)
			e.wantRefs(nil)
		}},
		{"P2 the right token ends nothing of another owner", func(e *env) {
			l := e.prepare(e.a, move(refA, "", v1), move(refB, "", v1))
			other := l
			other.Owner = e.b.owner
			e.wantLost(e.finish(e.b, other), refA, refB)
			e.wantLost(e.tryDrop(e.b, other), refA, refB)
			e.wantIntended(l)
			e.changeOwner(refB)
			e.wantLost(e.finish(e.a, l), refB)
			e.wantRefs(nil)
			e.wantChangedOwner(l, refB)
			e.wantLock(l, refA)
			e.must(e.tryFinish(e.a, l, []string{refA}, nil))
			e.wantRefs(map[string]refdb.Value{refA: v1})
		}},
		{"P6 a ref that holds another value after all keeps everything as it is, unless it is dropped", func(e *env) {
			l := e.prepare(e.a, move(refA, "", v1), move(refB, "", v1), move(refC, "", v1))
			e.db.InsertRef(e, e.project, refB, v3)
			e.wantMismatches(e.finish(e.a, l), refdb.Mismatch{Ref: refB, Have: v3})
			e.wantMismatches(e.tryFinish(e.a, l, []string{refB}, []string{refA}), refdb.Mismatch{Ref: refB, Have: v3})
			e.wantIntended(l)
			e.wantRefs(map[string]refdb.Value{refB: v3})
			e.must(e.tryFinish(e.a, l, []string{refA, refC}, []string{refB}))
			e.wantRefs(map[string]refdb.Value{refA: v1, refB: v3, refC: v1})
			e.wantNone()
		}},
		{"an intent that ended comes before a mismatch", func(e *env) {
			l := e.prepare(e.a, move(refA, "", v1), move(refB, "", v1))
			e.must(e.tryFinish(e.a, l, nil, []string{refA}))
			e.db.InsertRef(e, e.project, refB, v3)
			e.wantLost(e.finish(e.a, l), refA)
			e.wantIntended(l, refB)
		}},
		{"a ref that was moved carries the finish's ID, one that was dropped is untouched", func(e *env) {
			e.must(e.update(e.a, move(refB, "", v1)))
			was := e.getOne(refB)
			l := e.prepare(e.a, move(refA, "", v1), move(refB, v1, v2))
			before := e.now(e.b)
			e.must(e.a.Finish(e.Context(), refdb.FinishRequest{
				Project: e.project, Origin: refdb.Origin{ID: "the finish", Owner: l.Owner}, Token: l.Token, Done: l.Updates[:1], Dropped: []string{refB},
			}))
			if got := e.getOne(refA); got.Op != "the finish" || got.Time.Before(before.Truncate(time.Microsecond)) || got.Time.After(e.now(e.b)) {
				e.Errorf("got %+v", got)
			}
			if now := e.getOne(refB); now.Op != was.Op || !now.Time.Equal(was.Time) {
				e.Errorf("the ref was %+v and is %+v", was, now)
			}
		}},
		{"P11 the token of an intent alone moves its ref for nobody, with others or without", func(e *env) {
			l := e.prepare(e.a, move(refA, "", v1))
			p := e.prepare(e.a, move(refB, "", v1), move(refC, "", v1))
			for _, mode := range []refdb.LockMode{refdb.MandatoryLocks, refdb.AdvisoryLocks} {
				for _, release := range []bool{false, true} {
					r := refdb.UpdateRequest{Fence: l.lock().fence(), Locks: mode, Updates: []refdb.Update{move(refA, "", v3)}}
					r.Fence.Release = release
					e.wantLost(e.sendUpdate(e.b, r), refA)
					r.Fence, r.Updates = p.lock().fence(), []refdb.Update{move(refC, "", v3), move("refs/heads/d", "", v3)}
					r.Fence.Release = release
					e.wantLost(e.sendUpdate(e.b, r), refB, refC)
				}
			}
			e.wantIntended(l)
			e.wantIntended(p)
			e.wantRefs(nil)
		}},
		{"a ref is prepared again once its intent has ended, and in another project any time", func(e *env) {
			l := e.prepare(e.a, move(refA, "", v1))
			r := e.prepareRequest(e.b, move(refA, "", v2))
			r.Project += "/x"
			other, err := e.sendPrepare(e.b, r)
			e.must(err)
			e.must(e.finish(e.a, l))
			next := e.prepare(e.b, move(refA, v1, v2))
			e.wantIntended(next)
			e.wantLost(e.finish(e.a, l), refA)
			e.must(e.finish(e.b, next))
			e.wantRefs(map[string]refdb.Value{refA: v2})
			e.wantNone()
			e.must(e.finish(e.b, other))
		}},
		{"as many refs as a preparation may have end together, or in parts", func(e *env) {
			names := manyNames(e.scale(refdb.MaxLockRefs))
			l := e.prepare(e.a, creations(names)...)
			if got := e.pending(); len(got) != len(names) {
				e.Fatalf("%d intents of %d", len(got), len(names))
			}
			last := names[len(names)-1]
			if h := e.refused(e.b, "HEAD", last); len(h) != 1 || h[0].Ref != last {
				e.Fatalf("the holders are %+v", h)
			}
			half := len(names) / 2
			e.must(e.tryFinish(e.a, l, names[:half/2], names[half/2:half]))
			if got := e.pending(); len(got) != len(names)-half || got[0].Ref != names[half] {
				e.Fatalf("%d intents are left, the first %+v", len(got), got[:1])
			}
			e.must(e.tryFinish(e.a, l, names[half:], nil))
			if got := e.list(e.project); len(got) != len(names)-(half-half/2) {
				e.Errorf("%d refs hold a value", len(got))
			}
			e.wantNone()
		}},
	}
}
