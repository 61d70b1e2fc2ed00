package refdbtest

import (
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb"
)

func releaseRows() []row {
	return []row{
		{"a release frees the lock for anybody", func(e *env) {
			l := e.acquire(e.a, refA, refB)
			if got := e.release(e.a, l.held()...); !slices.Equal(got, []bool{true, true}) {
				e.Errorf("got %v", got)
			}
			e.wantFree(refA, refB)
			e.acquire(e.b, refA, refB)
		}},
		{"a release of nothing is nothing", func(e *env) {
			if got := e.release(e.a); len(got) != 0 {
				e.Errorf("got %v", got)
			}
		}},
		{"a second release finds nothing, and leaves the next holder alone", func(e *env) {
			l := e.acquire(e.a, refA)
			e.release(e.a, l.held()...)
			next := e.acquire(e.b, refA)
			if got := e.release(e.a, l.held()...); got[0] {
				e.Error("it released the next holder's")
			}
			e.wantLock(next)
		}},
		{"P2 another token releases nothing", func(e *env) {
			l := e.acquire(e.a, refA)
			for _, token := range []refdb.Token{l.Token - 1, l.Token + 1, 0} {
				if got := e.release(e.a, refdb.Held{Project: e.project, Ref: refA, Token: token}); got[0] {
					e.Errorf("token %d released %d", token, l.Token)
				}
			}
			e.wantLock(l)
		}},
		{"what became of each row comes back in the order it was asked, over projects", func(e *env) {
			var held []refdb.Held
			var want []bool
			for i, p := range []string{"A", "", "_", "/b"} {
				r := e.request(e.a, refA, refB)
				r.Project += p
				l, err := e.send(e.a, r)
				e.must(err)
				rows := l.held()
				slices.Reverse(rows)
				if i%2 == 0 {
					rows[0].Token++
				}
				held = append(held, rows...)
				want = append(want, i%2 != 0, true)
			}
			if got := e.release(e.b, held...); !slices.Equal(got, want) {
				e.Errorf("got %v, want %v", got, want)
			}
			for i, h := range held {
				if _, ok := e.db.RowLock(e, h.Project, h.Ref); ok == want[i] {
					e.Errorf("the row of %+v stands: %v", h, ok)
				}
			}
		}},
		{"a row named by its nonce matches by that, not by its token", func(e *env) {
			l := e.acquire(e.a, refA)
			if got := e.release(e.a, refdb.Held{Project: e.project, Ref: refA, Nonce: l.Nonce + "x", Owner: l.Owner, Token: l.Token}); got[0] {
				e.Error("another nonce released it")
			}
			e.wantLock(l)
			if got := e.release(e.a, refdb.Held{Project: e.project, Ref: refA, Nonce: l.Nonce, Owner: l.Owner}); !got[0] {
				e.Error("its own nonce did not release it")
			}
			e.wantFree(refA)
		}},
		{"P2 a row named by its nonce stays where Gerrit's plugin has taken the lock over", func(e *env) {
			l := e.acquire(e.a, refA, refB)
			e.db.TakeOver(e, e.project, refA, gerrit)
			rows := l.byNonce()
			if got := e.release(e.a, rows[0]); got[0] {
				e.Error("the plugin's lock was released")
			}
			if got := e.release(e.a, rows...); !slices.Equal(got, []bool{false, true}) {
				e.Errorf("of the plugin's lock and one's own were released %v", got)
			}
			if row := e.row(refA); row.Owner != gerrit {
				e.Errorf("the lock is %+v", row)
			}
			e.wantFree(refB)
		}},
		{"a release on condition of the heartbeat leaves a lock that has beaten since", func(e *env) {
			l := e.acquire(e.a, refA, refB)
			e.age(l, stale)
			var seen []refdb.Held
			for _, r := range []refdb.LockInfo{e.row(refA), e.row(refB)} {
				seen = append(seen, refdb.Held{Project: e.project, Ref: r.Ref, Token: r.Token, Heartbeat: r.Heartbeat})
			}
			e.beat(e.a, l.held()[0])
			if got := e.release(e.b, seen...); !slices.Equal(got, []bool{false, true}) {
				e.Errorf("got %v", got)
			}
			e.wantLock(l, refA)
			e.wantFree(refB)
		}},
		{"the heartbeat that a list of locks gives is the condition that matches", func(e *env) {
			e.acquire(e.a, refA)
			l := e.locks(refdb.LockQuery{LockFilter: refdb.LockFilter{Project: e.project}})[0]
			if got := e.release(e.b, refdb.Held{Project: e.project, Ref: refA, Token: l.Token, Heartbeat: l.Heartbeat}); !got[0] {
				e.Errorf("%+v was not released", l)
			}
		}},
		{"the heartbeat alone does not do: the token counts too", func(e *env) {
			l := e.acquire(e.a, refA)
			if got := e.release(e.b, refdb.Held{Project: e.project, Ref: refA, Token: l.Token + 1, Heartbeat: e.row(refA).Heartbeat}); got[0] {
				e.Error("another token released it")
			}
		}},
		{"a lock without token and heartbeat is named by token 0", func(e *env) {
			e.db.InsertLock(e, refdb.LockInfo{Project: e.project, Ref: refA, Owner: gerrit})
			if got := e.release(e.a, refdb.Held{Project: e.project, Ref: refA}); got[0] {
				e.Fatal("token 0 released a lock that has a token")
			}
			e.db.Exec(e, "UPDATE locks SET heartbeat = NULL, token = NULL WHERE project = '"+e.project+"'")
			l := e.locks(refdb.LockQuery{LockFilter: refdb.LockFilter{Project: e.project}})[0]
			if got := e.release(e.a, refdb.Held{Project: e.project, Ref: refA, Token: l.Token, Heartbeat: l.Heartbeat}); !got[0] {
				e.Errorf("%+v was not released", l)
			}
			e.wantFree(refA)
		}},
		{"a lock of Gerrit's is released by its token", func(e *env) {
			e.db.InsertLock(e, refdb.LockInfo{Project: e.project, Ref: refA, Owner: gerrit})
			l := e.row(refA)
			if got := e.release(e.a, refdb.Held{Project: e.project, Ref: refA, Token: l.Token}); !got[0] {
				e.Errorf("%+v was not released", l)
			}
		}},
		{"a marker is released as a lock is", func(e *env) {
			e.db.InsertLock(e, refdb.LockInfo{Project: marker(e.project, 1), Ref: refA, Owner: gerrit})
			for _, m := range e.locks(refdb.LockQuery{Markers: true}) {
				if m.Project != marker(e.project, 1) {
					continue
				}
				if got := e.release(e.a, refdb.Held{Project: m.Project, Ref: m.Ref, Token: m.Token, Heartbeat: m.Heartbeat}); !got[0] {
					e.Errorf("%+v was not released", m)
				}
				return
			}
			e.Error("the marker is not listed")
		}},
		{"a stale lock that nobody took is released by its holder", func(e *env) {
			l := e.acquire(e.a, refA)
			e.age(l, stale)
			if got := e.release(e.a, l.held()...); !got[0] {
				e.Error("it was not")
			}
		}},
	}
}
