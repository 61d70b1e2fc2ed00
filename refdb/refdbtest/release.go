package refdbtest

import (
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb"
)

func releaseRows() []row {
	return []row{
		{"a release frees the lock for anybody", func(e *env) {
			l := e.acquire(e.a, refA, refB)
			if missing := e.release(e.a, l); len(missing) != 0 {
				e.Errorf("%q were missing", missing)
			}
			e.wantFree(refA, refB)
			e.acquire(e.b, refA, refB)
		}},
		{"a second release finds nothing, and leaves the next holder alone", func(e *env) {
			l := e.acquire(e.a, refA)
			e.release(e.a, l)
			next := e.acquire(e.b, refA)
			if missing := e.release(e.a, l); !slices.Equal(missing, []string{refA}) {
				e.Errorf("%q were missing", missing)
			}
			e.wantLock(next)
		}},
		{"rows that don't match are named in order, and the others are deleted", func(e *env) {
			l := e.acquire(e.a, "HEAD", refA, refB, refC, "refs/x")
			for _, ref := range []string{refC, refA} {
				e.db.Age(e, e.project, ref, stale)
			}
			e.must(e.update(e.b, move(refA, "", v1))) // ends the stale lock
			next := e.acquire(e.b, refC)              // reclaims it
			if missing := e.release(e.a, l); !slices.Equal(missing, []string{refA, refC}) {
				e.Errorf("%q were missing", missing)
			}
			e.wantFree("HEAD", refA, refB, "refs/x")
			e.wantLock(next)
		}},
		{"a release names its refs, and leaves the rest of the lock", func(e *env) {
			l := e.acquire(e.a, refA, refB, refC)
			if missing := e.release(e.a, l, refA, refC); len(missing) != 0 {
				e.Errorf("%q were missing", missing)
			}
			e.wantFree(refA, refC)
			e.wantLock(l, refB)
		}},
		{"a release in one project leaves the same refs of its neighbours alone", func(e *env) {
			l := e.acquire(e.a, refA)
			for _, p := range []string{"/b", "_", "A"} {
				other := l
				other.Project += p
				if missing := e.release(e.a, other); !slices.Equal(missing, []string{refA}) {
					e.Errorf("project %q: %q were missing", other.Project, missing)
				}
			}
			e.wantLock(l)
		}},
		{"P2 another token releases nothing", func(e *env) {
			l := e.acquire(e.a, refA)
			for _, token := range []refdb.Token{l.Token - 1, l.Token + 1, 0} {
				other := l
				other.Token = token
				if missing := e.release(e.a, other); !slices.Equal(missing, []string{refA}) {
					e.Errorf("token %d released %d", token, l.Token)
				}
			}
			e.wantLock(l)
		}},
		{"P2 the right token releases nothing of another owner", func(e *env) {
			l := e.acquire(e.a, refA, refB)
			e.disown(refA)
			if missing := e.release(e.a, l); !slices.Equal(missing, []string{refA}) {
				e.Errorf("%q were missing", missing)
			}
			e.wantDisowned(l, refA)
			e.wantFree(refB)
			alone := e.acquire(e.a, refC)
			e.disown(refC)
			if missing := e.release(e.a, alone); !slices.Equal(missing, []string{refC}) {
				e.Errorf("%q were missing", missing)
			}
			e.wantDisowned(alone, refC)
		}},
		{"P2 a lock that Gerrit's plugin has taken over is not released", func(e *env) {
			l := e.acquire(e.a, refA, refB)
			e.db.TakeOver(e, e.project, refA, gerrit)
			if missing := e.release(e.a, l); !slices.Equal(missing, []string{refA}) {
				e.Errorf("%q were missing", missing)
			}
			if row := e.row(refA); row.Owner != gerrit {
				e.Errorf("the lock is %+v", row)
			}
			e.wantFree(refB)
		}},
		{"a stale lock that nobody took is released by its holder", func(e *env) {
			l := e.acquire(e.a, refA)
			e.age(l, stale)
			if missing := e.release(e.a, l); len(missing) != 0 {
				e.Error("it was not")
			}
		}},
	}
}
