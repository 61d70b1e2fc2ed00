package refdbtest

import (
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// How an operator ends the locks of others.
func purgeRows() []row {
	return []row{
		{"a purge ends the locks of any owners, fresh or stale", func(e *env) {
			a, b := e.acquire(e.a, refA, refB), e.acquire(e.b, refC)
			e.db.Age(e, e.project, refA, stale)
			if got := e.purge(e.b, standing(slices.Concat(a.ids(), b.ids())...)...); !slices.Equal(got, []bool{true, true, true}) {
				e.Errorf("got %v", got)
			}
			e.wantFree(refA, refB, refC)
			if got := e.beat(e.a, a.ids()...); got[0] != refdb.BeatLost || got[1] != refdb.BeatLost {
				e.Errorf("the holder's beat says %v", got)
			}
		}},
		{"a purge of nothing is nothing", func(e *env) {
			if got := e.purge(e.a); len(got) != 0 {
				e.Errorf("got %v", got)
			}
		}},
		{"a second purge finds nothing, and leaves the next holder alone", func(e *env) {
			l := e.acquire(e.a, refA)
			e.purge(e.b, standing(l.ids()...)...)
			next := e.acquire(e.b, refA)
			if got := e.purge(e.b, standing(l.ids()...)...); got[0] {
				e.Error("it purged the next holder's")
			}
			e.wantLock(next)
		}},
		{"P2 another token purges nothing", func(e *env) {
			l := e.acquire(e.a, refA)
			for _, token := range []refdb.Token{l.Token - 1, l.Token + 1, 0} {
				id := l.ids()[0]
				id.Token = token
				if got := e.purge(e.b, standing(id)...); got[0] {
					e.Errorf("token %d purged %d", token, l.Token)
				}
			}
			e.wantLock(l)
		}},
		{"P2 the right token purges nothing of another owner", func(e *env) {
			l := e.acquire(e.a, refA, refB)
			listed := []refdb.StandingLock{asListed(e.row(refA)), asListed(e.row(refB))}
			e.disown(refA)
			for _, one := range []refdb.StandingLock{listed[0], standing(l.ids()[0])[0]} {
				if got := e.purge(e.b, one); got[0] {
					e.Errorf("%+v was purged", one)
				}
			}
			if got := e.purge(e.b, listed...); !slices.Equal(got, []bool{false, true}) {
				e.Errorf("got %v", got)
			}
			e.wantDisowned(l, refA)
			e.wantFree(refB)
		}},
		{"what became of each row comes back in the order it was asked, over projects", func(e *env) {
			var asked []refdb.StandingLock
			var want []bool
			for i, p := range []string{"A", "", "_", "/b"} {
				r := e.request([]process{e.a, e.b}[i/2], refA, refB)
				r.Project += p
				l, err := e.send(e.a, r)
				e.must(err)
				rows := standing(l.ids()...)
				slices.Reverse(rows)
				if i%2 == 0 {
					rows[0].Token++
				}
				asked = append(asked, rows...)
				want = append(want, i%2 != 0, true)
			}
			if got := e.purge(e.b, asked...); !slices.Equal(got, want) {
				e.Errorf("got %v, want %v", got, want)
			}
			for i, l := range asked {
				if _, ok := e.db.RowLock(e, l.Project, l.Ref); ok == want[i] {
					e.Errorf("the row of %+v stands: %v", l, ok)
				}
			}
		}},
		{"on condition of the heartbeat, a purge leaves a lock that has beaten since", func(e *env) {
			l := e.acquire(e.a, refA, refB)
			e.age(l, stale)
			seen := []refdb.StandingLock{asListed(e.row(refA)), asListed(e.row(refB))}
			e.beat(e.a, l.ids()[0])
			if got := e.purge(e.b, seen...); !slices.Equal(got, []bool{false, true}) {
				e.Errorf("got %v", got)
			}
			e.wantLock(l, refA)
			e.wantFree(refB)
		}},
		{"the heartbeat that a list of locks gives is the condition that matches", func(e *env) {
			e.acquire(e.a, refA)
			l := e.locks(refdb.LockQuery{LockFilter: refdb.LockFilter{Project: e.project}})[0]
			if got := e.purge(e.b, asListed(l)); !got[0] {
				e.Errorf("%+v was not purged", l)
			}
		}},
		{"the heartbeat alone does not do: the token counts too", func(e *env) {
			l := e.acquire(e.a, refA)
			other := asListed(e.row(refA))
			other.Token++
			if got := e.purge(e.b, other); got[0] {
				e.Error("another token purged it")
			}
			e.wantLock(l)
		}},
		{"a lock without token and heartbeat is named by token 0", func(e *env) {
			e.db.InsertLock(e, refdb.LockInfo{Project: e.project, Ref: refA, Owner: gerrit})
			nameless := refdb.LockID{Project: e.project, Ref: refA, Owner: gerrit}
			if got := e.purge(e.a, standing(nameless)...); got[0] {
				e.Fatal("token 0 purged a lock that has a token")
			}
			e.db.Exec(e, "UPDATE locks SET heartbeat = NULL, token = NULL WHERE project = '"+e.project+"'")
			l := e.locks(refdb.LockQuery{LockFilter: refdb.LockFilter{Project: e.project}})[0]
			if got := e.purge(e.a, asListed(l)); !got[0] {
				e.Errorf("%+v was not purged", l)
			}
			e.wantFree(refA)
		}},
		{"a lock of Gerrit's is purged as any other", func(e *env) {
			e.db.InsertLock(e, refdb.LockInfo{Project: e.project, Ref: refA, Owner: gerrit})
			l := e.row(refA)
			if got := e.purge(e.a, standing(l.ID())...); !got[0] {
				e.Errorf("%+v was not purged", l)
			}
		}},
		{"a marker is purged as a lock is", func(e *env) {
			e.db.InsertLock(e, refdb.LockInfo{Project: marker(e.project, 1), Ref: refA, Owner: gerrit})
			for _, m := range e.locks(refdb.LockQuery{Markers: true}) {
				if m.Project != marker(e.project, 1) {
					continue
				}
				if got := e.purge(e.a, asListed(m)); !got[0] {
					e.Errorf("%+v was not purged", m)
				}
				return
			}
			e.Error("the marker is not listed")
		}},
		{"a lock that stands for an intent is not purged, and keeps nothing else from it", func(e *env) {
			l, other := e.prepare(e.a, move(refA, "", v1)), e.acquire(e.a, refB)
			e.age(l, 50*years)
			for _, intent := range []refdb.StandingLock{standing(l.ids()...)[0], asListed(e.row(refA))} {
				if got := e.purge(e.b, intent); got[0] {
					e.Errorf("%+v was purged", intent)
				}
			}
			if got := e.purge(e.b, standing(l.ids()[0], other.ids()[0])...); !slices.Equal(got, []bool{false, true}) {
				e.Errorf("got %v", got)
			}
			e.wantIntended(l)
			e.wantFree(refB)
		}},
	}
}
