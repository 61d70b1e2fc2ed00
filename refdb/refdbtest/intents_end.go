package refdbtest

import (
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// How their owner ends intents.
func intentEndRows() []row {
	return []row{
		{"a release that doesn't speak of intents leaves them, whatever it names them by", func(e *env) {
			l := e.prepare(e.a, move(refA, "", v1))
			e.age(l, 50*years)
			byToken := l.held()[0]
			byNonce, byHeartbeat := byToken, byToken
			byNonce.Nonce, byNonce.Owner = l.Nonce, l.Owner
			byHeartbeat.Heartbeat = e.row(refA).Heartbeat
			for _, h := range []refdb.Held{byToken, byNonce, byHeartbeat} {
				if got := e.release(e.a, h); got[0] {
					e.Errorf("%+v released it", h)
				}
			}
			e.wantIntended(l)
		}},
		{"a release that does ends locks and intents, by token or nonce, and ordinary locks", func(e *env) {
			byToken, byNonce, plain := e.prepare(e.a, move(refA, "", v1)), e.prepare(e.a, move(refB, "", v1)), e.acquire(e.a, refC)
			held := []refdb.Held{
				byToken.intended()[0],
				{Project: e.project, Ref: refB, Nonce: byNonce.Nonce, Owner: byNonce.Owner, Intent: true},
				plain.intended()[0],
				{Project: e.project, Ref: "refs/x", Token: plain.Token, Intent: true},
			}
			for _, wrong := range []refdb.Held{
				{Project: e.project, Ref: refA, Token: byToken.Token - 1, Intent: true},
				{Project: e.project, Ref: refB, Token: byNonce.Token, Nonce: byNonce.Nonce + "x", Owner: byNonce.Owner, Intent: true},
			} {
				if got := e.release(e.a, wrong); got[0] {
					e.Errorf("%+v released something", wrong)
				}
			}
			e.wantIntended(byToken)
			e.wantIntended(byNonce)
			if got := e.release(e.b, held...); !slices.Equal(got, []bool{true, true, true, false}) {
				e.Errorf("got %v", got)
			}
			e.wantNone()
			e.wantRefs(nil)
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
		{"P2 another token ends nothing", func(e *env) {
			l := e.prepare(e.a, move(refA, "", v1))
			for _, token := range []refdb.Token{l.Token - 1, l.Token + 1, 0} {
				other := l
				other.Token = token
				e.wantLost(e.finish(e.a, other), refA)
				if got := e.release(e.a, other.intended()...); got[0] {
					e.Errorf("token %d released %d", token, l.Token)
				}
			}
			e.wantIntended(l)
			e.wantRefs(nil)
		}},
		{"P6 a ref that holds another value after all keeps everything as it is", func(e *env) {
			l := e.prepare(e.a, move(refA, "", v1), move(refB, "", v1))
			fence := l.fence()
			fence.Intents = true
			e.must(e.transact(e.a, refdb.Transaction{Fence: fence, Updates: []refdb.Update{move(refB, "", v3)}}))
			e.wantMismatches(e.finish(e.a, l), refdb.Mismatch{Ref: refB, Have: v3})
			e.wantIntended(l)
			e.wantRefs(map[string]refdb.Value{refB: v3})
		}},
		{"P11 the token of an intent alone moves its ref for nobody, with others or without", func(e *env) {
			l := e.prepare(e.a, move(refA, "", v1))
			p := e.prepare(e.a, move(refB, "", v1), move(refC, "", v1))
			for _, release := range []bool{false, true} {
				for _, advisory := range []bool{false, true} {
					t := refdb.Transaction{Fence: l.fence(), Release: release, Advisory: advisory, Updates: []refdb.Update{move(refA, "", v3)}}
					e.wantLost(e.transact(e.b, t), refA)
					t.Fence, t.Updates = p.fence(), []refdb.Update{move(refC, "", v3), move("refs/heads/d", "", v3)}
					e.wantLost(e.transact(e.b, t), refB, refC)
				}
			}
			e.wantIntended(l)
			e.wantIntended(p)
			e.wantRefs(nil)
		}},
		{"an update fenced by intents that releases nothing leaves them", func(e *env) {
			l := e.prepare(e.a, move(refA, "", v1))
			fence := l.fence()
			fence.Intents = true
			e.must(e.transact(e.a, refdb.Transaction{Fence: fence, Updates: []refdb.Update{move(refA, "", v1), move(refB, "", v1)}}))
			e.wantIntended(l)
			e.wantRefs(map[string]refdb.Value{refA: v1, refB: v1})
		}},
		{"a ref is prepared again once its intent has ended, and in another project any time", func(e *env) {
			l := e.prepare(e.a, move(refA, "", v1))
			r := e.intention(e.b, move(refA, "", v2))
			r.Project += "/x"
			other, err := e.send(e.b, r)
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
