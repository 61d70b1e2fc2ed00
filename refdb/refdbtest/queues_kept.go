package refdbtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// What is kept for somebody who waits is nobody's lock, and is over after the turn.
func keptRows() []row {
	return []row{
		{"who is kept a lock, and does not come, loses it when its turn is over", func(e *env) {
			l := e.acquire(e.a, refA)
			first, second := e.told(e.a), e.told(e.b)
			first.waits(refA)
			second.waits(refA)
			e.release(e.a, l)
			e.endTurn(refA)
			l = second.granted(refA)
			if len(l.Reclaimed) != 0 {
				e.Errorf("%+v was no lock", l.Reclaimed)
			}
			third := e.told(e.b)
			third.waits(refA)
			first.waits(refA)
			e.release(e.b, l)
			first.wantKept(refA) // by its ticket
		}},
		{"what Gerrit's plugin makes of a lock that is kept is a lock like any other", func(e *env) {
			for what, waiter := range map[string]*queued{"for-somebody": e.told(e.a), "for-nobody": e.polling(e.a)} {
				ref := "refs/heads/" + what
				l := e.acquire(e.a, ref)
				waiter.waits(ref)
				e.release(e.a, l)
				e.endTurn(ref)
				e.db.TakeOver(e, e.project, ref, gerrit)
				e.db.Age(e, e.project, ref, refdb.DefaultStaleAfter/2)
				if h := e.refused(e.b, ref); h[0].Owner != gerrit || h[0].StaleAfter != refdb.DefaultStaleAfter {
					e.Errorf("refused by %+v", h)
				}
				e.wantHolders(e.update(e.b, move(ref, "", v1)), ref)
			}
		}},
		{"what is kept is purged with its queue, and who waits comes back with its place", func(e *env) {
			for what, q := range map[string]*queued{"for-somebody": e.told(e.a), "for-nobody": e.polling(e.a)} {
				ref := "refs/heads/" + what
				l := e.acquire(e.a, ref)
				other := e.told(e.b)
				q.waits(ref)
				other.waits(ref)
				e.release(e.a, l)
				e.endTurn(ref)
				if got := e.purge(e.b, asListed(e.row(ref))); !got[0] {
					e.Error("it was not purged")
				}
				e.wantFree(ref)
				l = e.acquire(e.a, ref)
				other.waits(ref)
				q.waits(ref)
				if q.Place.Ahead != 0 {
					e.Errorf("%d are ahead of the first", q.Place.Ahead)
				}
				e.release(e.a, l)
			}
		}},
		{"one that gives up what was kept for nobody leaves no row", func(e *env) {
			l := e.acquire(e.a, refA)
			q, r := e.polling(e.b), e.polling(e.b)
			q.waits(refA)
			r.waits(refA)
			e.release(e.a, l)
			q.givesUp(refA)
			e.row(refA)
			r.givesUp(refA)
			e.wantFree(refA)
		}},
		{"a turn that is over and is followed by one who polls is for anybody", func(e *env) {
			l := e.acquire(e.a, refA)
			first, second := e.told(e.a), e.polling(e.b)
			first.waits(refA)
			second.waits(refA)
			e.release(e.a, l)
			e.endTurn(refA)
			e.acquire(e.a, refA)
		}},
		{"a turn that is over is followed by the next one's, whoever asks", func(e *env) {
			a := e.acquire(e.a, refA)
			first, second := e.told(e.a), e.told(e.b)
			first.waits(refA)
			second.waits(refA)
			e.release(e.a, a)
			e.endTurn(refA)
			e.refused(e.a, refA)
			second.wantKept(refA)
			third := e.told(e.a)
			third.waits(refA)
			e.endTurn(refA)
			e.release(e.a, first.granted(refA)) // it came before the third
			third.wantKept(refA)
		}},
		{"what is kept is nobody's lock: nothing that its last holder does can match it", func(e *env) {
			l := e.acquire(e.a, refA)
			q := e.told(e.a) // of the same owner
			q.waits(refA)
			e.release(e.a, l)
			if missing := e.release(e.a, l); !slices.Equal(missing, []string{refA}) {
				e.Errorf("missing at the second release: %q", missing)
			}
			if got := e.beat(e.a, l.ids()...); got[0] != refdb.BeatLost {
				e.Errorf("the beat says %v", got)
			}
			e.wantLost(e.transact(e.a, refdb.UpdateRequest{Fence: l.fence(), Updates: []refdb.Update{move(refA, "", v1)}}), refA)
			if got := e.purge(e.a, standing(l.ids()...)...); got[0] {
				e.Error("it was purged as the lock before")
			}
			e.abandon(e.a, l.AcquireRequest)
			q.wantKept(refA)
			q.granted(refA)
		}},
		{"what is kept is in the way of others as a fresh lock is, and can be purged as one", func(e *env) {
			l := e.acquire(e.a, refA)
			q := e.told(e.a)
			q.waits(refA)
			e.release(e.a, l)
			e.wantHolders(e.update(e.b, move(refA, "", v1)), refA)
			_, err := e.tryPrepare(e.b, move(refA, "", v1))
			e.wantHolders(err, refA)
			_, err = e.b.Remove(e.Context(), refdb.RemoveRequest{Project: e.project, Limit: 10})
			e.wantHolders(err, refA)
			page, err := e.b.Locks(e.Context(), refdb.LockQuery{LockFilter: refdb.LockFilter{Project: e.project}, Limit: 10})
			e.must(err)
			if len(page.Locks) != 1 || !page.Locks[0].Reserved() {
				e.Fatalf("listed are %+v", page.Locks)
			}
			if got := e.purge(e.b, asListed(page.Locks[0])); !got[0] {
				e.Error("it was not purged")
			}
			e.must(e.update(e.b, move(refA, "", v1)))
		}},
		{"what is kept, and nobody takes, is in nobody's way when the turn is over", func(e *env) {
			for what, take := range map[string]func(ref string){
				"update":  func(ref string) { e.must(e.update(e.b, move(ref, "", v1))) },
				"acquire": func(ref string) { e.acquire(e.b, ref) },
				"prepare": func(ref string) {
					if p := e.prepare(e.b, move(ref, "", v1)); len(p.Reclaimed) != 0 {
						e.Errorf("%+v was no lock", p.Reclaimed)
					}
				},
			} {
				ref := "refs/heads/" + what
				l := e.acquire(e.a, ref)
				e.told(e.a).waits(ref)
				e.release(e.a, l)
				e.endTurn(ref)
				take(ref)
			}
		}},
		{"the queue of a stale lock stays with whoever takes that over", func(e *env) {
			for what, take := range map[string]func(ref string) (over func()){
				"lock": func(ref string) func() {
					l := e.acquire(e.b, ref)
					return func() { e.release(e.b, l) }
				},
				"intent": func(ref string) func() {
					l := e.prepare(e.b, move(ref, "", v1))
					return func() { e.must(e.finish(e.b, l)) }
				},
			} {
				ref := "refs/heads/" + what
				l := e.acquire(e.a, ref)
				q := e.told(e.a)
				q.waits(ref)
				e.age(l, stale)
				over := take(ref)
				over()
				q.wantKept(ref)
			}
		}},
		{"turns may be a millisecond, and owners any text", func(e *env) {
			for _, owner := range []string{"", "a.b.c", "site/host:1 (waits)", "Ärger/" + fmt.Sprint(time.Hour)} {
				ref := fmt.Sprintf("refs/heads/%x", owner)
				p := process{e.a.Driver, owner}
				if owner == "" {
					p.owner = "."
				}
				l := e.acquire(e.b, ref)
				q := e.told(p)
				q.waits(ref)
				e.release(e.b, l)
				q.wantKept(ref)
				e.release(p, q.granted(ref))
				e.wantFree(ref)
			}
			l := e.acquire(e.b, refA)
			q := e.told(e.a)
			q.Turn = time.Millisecond
			q.waits(refA)
			e.release(e.b, l)
			e.eventually("the end of the turn", func() bool { return e.update(e.b, move(refA, "", v1)) == nil })
		}},
	}
}
