package refdbtest

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

func acquireRows() []row {
	return []row{
		{"free locks are taken together, under one token", func(e *env) {
			l := e.acquire(e.a, refA, refB, refC)
			if l.Token <= 0 || len(l.Reclaimed) != 0 || len(l.Acquired.Refs) != 0 {
				e.Errorf("got %+v", l.Acquired)
			}
			e.wantLock(l)
		}},
		{"an acquisition returns what its refs hold, and only those that have a row", func(e *env) {
			e.must(e.update(e.b, move(refA, "", v1), move(refB, "", refdb.Deleted)))
			l := e.acquire(e.a, refA, refB, refC)
			if want := (map[string]refdb.Value{refA: v1, refB: refdb.Deleted}); !maps.Equal(l.values(), want) {
				e.Errorf("got %v, want %v", l.values(), want)
			}
			got := valuesByName(e.get(refA, refB))
			for _, r := range l.Acquired.Refs {
				if w := got[r.Name]; !r.Time.Equal(w.Time) || r.Op != w.Op {
					e.Errorf("got %+v, want %+v", r, w)
				}
			}
		}},
		{"a refused acquisition takes nothing and returns every holder", func(e *env) {
			c, a := e.acquire(e.b, refC), e.acquire(e.a, refA)
			rows := map[string]refdb.LockInfo{refA: e.row(refA), refC: e.row(refC)}
			_, err := e.tryAcquire(e.b, "HEAD", refA, refB, refC, "refs/x")
			for _, h := range e.wantHolders(err, refA, refC) {
				l := map[string]lock{refA: a, refC: c}[h.Ref]
				if h.Project != e.project || h.Owner != l.Owner || h.Token != l.Token ||
					!h.Heartbeat.Equal(rows[h.Ref].Heartbeat) || h.StaleAfter != staleAfter || h.Age < 0 || h.Age > time.Minute {
					e.Errorf("got %+v, want that of %+v", h, l)
				}
			}
			e.wantFree("HEAD", refB, "refs/x")
			e.wantLock(a)
			e.wantLock(c)
			for ref, was := range rows {
				if now := e.row(ref); !now.Heartbeat.Equal(was.Heartbeat) {
					e.Errorf("the heartbeat of %s went from %v to %v", ref, was.Heartbeat, now.Heartbeat)
				}
			}
		}},
		{"an acquisition that one fresh lock refuses leaves the stale ones, and names them", func(e *env) {
			old, fresh := e.acquire(e.a, refA), e.acquire(e.a, refB)
			e.age(old, stale)
			_, err := e.tryAcquire(e.b, refA, refB, refC)
			if h := e.wantHolders(err, refA, refB); !h[0].Stale() || h[1].Stale() {
				e.Errorf("got %+v", h)
			}
			e.wantLock(old)
			e.wantLock(fresh)
			e.wantFree(refC)
		}},
		{"a process is refused by its own lock", func(e *env) {
			l := e.acquire(e.a, refA)
			e.refused(e.a, refA)
			e.wantLock(l)
		}},
		{"asking to wait changes neither the answer nor the lock", func(e *env) {
			l := e.acquire(e.a, refA)
			q := e.told(e.b)
			for range 3 {
				q.refused([]string{refA, refB}, refA)
			}
			e.wantFree(refB)
			e.wantLock(l)
			if got := e.beat(e.a, l.ids()...); got[0] != refdb.Beaten {
				e.Errorf("the holder's beat says %v", got)
			}
			e.must(e.transact(e.a, refdb.UpdateRequest{Fence: l.releasing(), Updates: []refdb.Update{move(refA, "", v1)}}))
			q.granted(refA, refB)
		}},
		{"locks of one project don't stand on those of another", func(e *env) {
			e.acquire(e.a, refA)
			for _, p := range []string{e.project + "/b", e.project + "_", e.project + "A"} {
				r := e.request(e.b, refA)
				r.Project = p
				_, err := e.send(e.b, r)
				e.must(err)
			}
		}},
		{"a lock records who took it, when, and how long it may be silent", func(e *env) {
			before := e.now(e.b)
			for _, after := range []time.Duration{time.Millisecond, 1500 * time.Millisecond, 100 * 24 * time.Hour} {
				r := e.request(e.a, refA)
				r.StaleAfter = after
				l, err := e.send(e.a, r)
				e.must(err)
				got := e.locks(refdb.LockQuery{LockFilter: refdb.LockFilter{Project: e.project}})
				if len(got) != 1 || got[0].StaleAfter != after || got[0].Owner != r.Owner || got[0].Token != l.Token {
					e.Fatalf("got %+v, want %+v", got, l)
				}
				if at := got[0].Heartbeat; at.Before(before.Truncate(time.Microsecond)) || at.After(e.now(e.b)) {
					e.Errorf("the heartbeat is %v, the acquisition was after %v", at, before)
				}
				e.release(e.a, l)
			}
		}},
		{"P2 every token is larger than any before it on any of the refs, whoever took them", func(e *env) {
			sets := [][]string{{refA}, {refA, refB}, {refB, refC}, {refC}, {refA, refB, refC}, {refB}}
			last := make(map[string]refdb.Token)
			for i := range 10 * len(sets) {
				p := []process{e.a, e.b, e.b}[i%3]
				l := e.acquire(p, sets[i%len(sets)]...)
				for _, ref := range l.refs() {
					if l.Token <= last[ref] {
						e.Fatalf("acquisition %d of %s has token %d after %d", i, ref, l.Token, last[ref])
					}
					last[ref] = l.Token
				}
				e.release(p, l)
			}
		}},
		{"an acquisition whose context has ended says so and takes nothing", func(e *env) {
			ctx, cancel := context.WithCancel(e.Context())
			cancel()
			if _, err := e.a.Acquire(ctx, e.request(e.a, refA)); !errors.Is(err, context.Canceled) {
				e.Errorf("got %v", err)
			}
			e.wantFree(refA)
		}},
	}
}

func valuesByName(refs []refdb.Ref) map[string]refdb.Ref {
	all := make(map[string]refdb.Ref)
	for _, r := range refs {
		all[r.Name] = r
	}
	return all
}
