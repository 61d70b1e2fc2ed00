package refdbtest

import (
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// How their owner ends intents.
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
			e.disown(refB)
			e.wantLost(e.finish(e.a, l), refB)
			e.wantRefs(nil)
			e.wantDisowned(l, refB)
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
				Project: e.project, ID: "the finish", Owner: l.Owner, Token: l.Token, Done: l.Updates[:1], Dropped: []string{refB},
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
					e.wantLost(e.transact(e.b, r), refA)
					r.Fence, r.Updates = p.lock().fence(), []refdb.Update{move(refC, "", v3), move("refs/heads/d", "", v3)}
					r.Fence.Release = release
					e.wantLost(e.transact(e.b, r), refB, refC)
				}
			}
			e.wantIntended(l)
			e.wantIntended(p)
			e.wantRefs(nil)
		}},
		{"a ref is prepared again once its intent has ended, and in another project any time", func(e *env) {
			l := e.prepare(e.a, move(refA, "", v1))
			r := e.intention(e.b, move(refA, "", v2))
			r.Project += "/x"
			other, err := e.sendIntention(e.b, r)
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
			names := manyNames(e.most(refdb.MaxLockRefs))
			var updates []refdb.Update
			for _, name := range names {
				updates = append(updates, move(name, "", v1))
			}
			l := e.prepare(e.a, updates...)
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
