package refdbtest

import (
	"maps"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// A caller whose acquisition got no reply asks again with the same nonce.
func nonceRows() []row {
	return []row{
		{"P7 the same request again is the same acquisition", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1)))
			first := e.acquire(e.a, refA, refB)
			again, err := e.send(e.a, first.AcquireRequest)
			e.must(err)
			if again.Token != first.Token || !maps.Equal(again.values(), map[string]refdb.Value{refA: v1}) {
				e.Errorf("got %+v, then %+v", first.Acquired, again.Acquired)
			}
			e.wantLock(first)
		}},
		{"P7 it is the same acquisition through another connection, and however old", func(e *env) {
			first := e.acquire(e.a, refA, refB)
			e.age(first, stale)
			again, err := e.send(e.spawn(e.a.owner), first.AcquireRequest)
			e.must(err)
			if again.Token != first.Token || len(again.Reclaimed) != 0 {
				e.Errorf("got %+v, then %+v", first.Acquired, again.Acquired)
			}
			e.wantLock(first)
		}},
		{"another nonce is another acquisition, of the same owner too", func(e *env) {
			l := e.acquire(e.a, refA)
			r := l.AcquireRequest
			r.Nonce += "x"
			_, err := e.send(e.a, r)
			e.wantHolders(err, refA)
			e.wantLock(l)
		}},
		{"P7 an acquisition of which others took a part is given up, and refused by them", func(e *env) {
			l := e.acquire(e.a, refA, refB, refC)
			e.db.Age(e, e.project, refB, stale)
			other := e.acquire(e.b, refB)
			_, err := e.send(e.a, l.AcquireRequest)
			e.wantHolders(err, refB)
			e.wantFree(refA, refC)
			e.wantLock(other)
		}},
		{"P7 an acquisition of which a part is gone starts over, with a larger token", func(e *env) {
			l := e.acquire(e.a, refA, refB)
			e.db.Age(e, e.project, refB, stale)
			e.must(e.update(e.b, move(refB, "", v1))) // ends the stale lock
			again, err := e.send(e.a, l.AcquireRequest)
			e.must(err)
			if again.Token <= l.Token || !maps.Equal(again.values(), map[string]refdb.Value{refB: v1}) {
				e.Errorf("got %+v after token %d", again.Acquired, l.Token)
			}
			e.wantLock(again)
		}},
		{"P7 an acquisition of which others took a part and grew stale starts over, and reclaims", func(e *env) {
			l := e.acquire(e.a, refA, refB)
			e.db.Age(e, e.project, refB, stale)
			other := e.acquire(e.b, refB)
			e.age(other, stale)
			again, err := e.send(e.a, l.AcquireRequest)
			e.must(err)
			if again.Token <= other.Token || len(again.Reclaimed) != 1 || again.Reclaimed[0].Token != other.Token {
				e.Errorf("got %+v, want token %d reclaimed", again.Acquired, other.Token)
			}
			e.wantLock(again)
		}},
		{"P7 an acquisition that was released meanwhile is made anew", func(e *env) {
			l := e.acquire(e.a, refA)
			e.release(e.a, l)
			again, err := e.send(e.a, l.AcquireRequest)
			e.must(err)
			if again.Token <= l.Token {
				e.Errorf("got token %d after %d", again.Token, l.Token)
			}
			e.wantLock(again)
		}},
		{"P1 P7 a lock that Gerrit's plugin took over, and left the nonce in, is not one's own", func(e *env) {
			for _, refs := range [][]string{{refA}, {refB, refC}} {
				l := e.acquire(e.a, refs...)
				for _, ref := range refs {
					e.db.TakeOver(e, e.project, ref, gerrit)
				}
				for range 2 {
					_, err := e.send(e.a, l.AcquireRequest)
					e.wantHolders(err, refs...)
				}
				for _, ref := range refs {
					if row := e.row(ref); row.Owner != gerrit {
						e.Errorf("the lock on %s is %+v", ref, row)
					}
				}
			}
		}},
		{"P1 P7 an acquisition of which Gerrit's plugin took over a part is given up, and refused by that", func(e *env) {
			l := e.acquire(e.a, refA, refB, refC)
			e.db.TakeOver(e, e.project, refB, gerrit)
			_, err := e.send(e.a, l.AcquireRequest)
			e.wantHolders(err, refB)
			e.wantFree(refA, refC)
			if row := e.row(refB); row.Owner != gerrit {
				e.Errorf("the lock is %+v", row)
			}
		}},
		{"P5 a lock that Gerrit's plugin took over is reclaimed by the first owner, once stale, as anybody's", func(e *env) {
			l := e.acquire(e.a, refA)
			e.db.TakeOver(e, e.project, refA, gerrit)
			e.db.Age(e, e.project, refA, stale)
			was := e.row(refA).Token
			again, err := e.send(e.a, l.AcquireRequest)
			e.must(err)
			if again.Token <= was || len(again.Reclaimed) != 1 || again.Reclaimed[0].Token != was || again.Reclaimed[0].Owner != gerrit {
				e.Errorf("got %+v, want token %d reclaimed", again.Acquired, was)
			}
			e.wantLock(again)
		}},
		{"a lock of Gerrit's, which has no nonce, is nobody's own", func(e *env) {
			e.db.InsertLock(e, refdb.LockInfo{Project: e.project, Ref: refA, Owner: e.a.owner})
			e.refused(e.a, refA)
		}},
	}
}
