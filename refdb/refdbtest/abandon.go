package refdbtest

import (
	"github.com/globalrefdb/globalrefdb/refdb"
)

// An acquisition whose caller gave up on its answer is abandoned: it may have
// been carried out or not.
func abandonRows() []row {
	return []row{
		{"abandoning an acquisition deletes its locks, and no others", func(e *env) {
			l, other := e.acquire(e.a, refA, refB), e.acquire(e.a, refC)
			e.abandon(e.b, l.AcquireRequest)
			e.wantFree(refA, refB)
			e.wantLock(other)
			e.abandon(e.a, l.AcquireRequest) // nothing is left to delete
		}},
		{"abandoning an acquisition that was never carried out deletes nothing", func(e *env) {
			a, b := e.acquire(e.a, refA), e.acquire(e.b, refB)
			e.abandon(e.a, e.request(e.a, refA, refB, refC))
			e.wantLock(a)
			e.wantLock(b)
		}},
		{"another nonce of the same owner is left alone", func(e *env) {
			l := e.acquire(e.a, refA)
			r := l.AcquireRequest
			r.Nonce += "x"
			e.abandon(e.a, r)
			e.wantLock(l)
		}},
		{"the same nonce of another owner is left alone", func(e *env) {
			l := e.acquire(e.a, refA)
			r := l.AcquireRequest
			r.Owner = e.b.owner
			e.abandon(e.b, r)
			e.wantLock(l)
		}},
		{"P2 a row that Gerrit's plugin has taken over, and left the nonce in, is left alone, and the rest goes", func(e *env) {
			l := e.acquire(e.a, refA, refB)
			e.db.TakeOver(e, e.project, refA, gerrit)
			alone := l.AcquireRequest
			alone.Refs = []string{refA}
			e.abandon(e.a, alone)
			e.abandon(e.a, l.AcquireRequest)
			if row := e.row(refA); row.Owner != gerrit {
				e.Errorf("the lock is %+v", row)
			}
			e.wantFree(refB)
		}},
		{"a row that somebody reclaimed is left alone, and the rest goes", func(e *env) {
			l := e.acquire(e.a, refA, refB, refC)
			e.db.Age(e, e.project, refB, stale)
			next := e.acquire(e.b, refB)
			e.abandon(e.a, l.AcquireRequest)
			e.wantFree(refA, refC)
			e.wantLock(next)
		}},
		{"a lock of Gerrit's, which has no nonce, is left alone", func(e *env) {
			e.db.InsertLock(e, refdb.LockInfo{Project: e.project, Ref: refA, Owner: e.a.owner})
			e.abandon(e.a, e.request(e.a, refA))
			e.row(refA)
		}},
		{"abandoning an acquisition in one project leaves the same refs of its neighbours alone", func(e *env) {
			l := e.acquire(e.a, refA)
			for _, p := range []string{"/b", "_", "A"} {
				r := l.AcquireRequest
				r.Project += p
				e.abandon(e.a, r)
			}
			e.wantLock(l)
		}},
		{"as many locks as an acquisition may have are abandoned at once", func(e *env) {
			names := manyNames(e.most(refdb.MaxLockRefs))
			l := e.acquire(e.a, names...)
			e.abandon(e.a, l.AcquireRequest)
			if got := e.locks(refdb.LockQuery{LockFilter: refdb.LockFilter{Project: e.project}}); len(got) != 0 {
				e.Errorf("%d locks are left", len(got))
			}
		}},
		{"locks that stand for intents are left alone", func(e *env) {
			l := e.prepare(e.a, move(refA, "", v1))
			e.abandon(e.a, l.lock().AcquireRequest)
			e.wantIntended(l)
		}},
	}
}
