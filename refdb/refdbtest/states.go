package refdbtest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

func stateRows() []row {
	return []row{
		{"a state is the value and the lock of each ref that has one of them", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1), move(refB, "", v2), move("refs/dead", "", refdb.Deleted)))
			l := e.acquire(e.a, refB, refC)
			got := e.states(refA, refB, refC, "refs/dead", "refs/not/there")
			want := map[string]refdb.Value{refA: v1, refB: v2, refC: refdb.Unknown, "refs/dead": refdb.Deleted}
			if len(got) != len(want) {
				e.Errorf("got %+v", got)
			}
			for ref, value := range want {
				s, ok := got[ref]
				if !ok || s.Value != value || (s.Lock != nil) != (ref == refB || ref == refC) {
					e.Errorf("%s is %+v (%v), want %q", ref, s, ok, value)
				}
				if s.Lock != nil && (s.Lock.Project != e.project || s.Lock.Ref != ref || s.Lock.Owner != l.Owner || s.Lock.Token != l.Token ||
					s.Lock.StaleAfter != staleAfter || !s.Lock.Heartbeat.Equal(e.row(ref).Heartbeat) || s.Lock.Age < 0 || s.Lock.Age > time.Minute) {
					e.Errorf("the lock on %s is %+v, want %+v", ref, s.Lock, l)
				}
			}
		}},
		{"stale locks are told too, and those that stand for an intent", func(e *env) {
			e.age(e.acquire(e.a, refA), stale)
			e.prepare(e.a, move(refB, "", v1))
			e.db.InsertLock(e, refdb.LockInfo{Project: e.project, Ref: refC, Owner: gerrit, Age: 15 * time.Second})
			got := e.states(refA, refB, refC)
			if l := got[refA].Lock; l == nil || !l.Stale() || l.Age < stale {
				e.Errorf("got %+v", l)
			}
			if l := got[refB].Lock; l == nil || !l.Intended() || l.Stale() {
				e.Errorf("got %+v", l)
			}
			if l := got[refC].Lock; l == nil || l.StaleAfter != refdb.DefaultStaleAfter || l.Owner != "gerrit" || l.Age < 15*time.Second {
				e.Errorf("got %+v", l)
			}
		}},
		{"refs of other projects have no state here", func(e *env) {
			for _, p := range []string{"/b", "_", "A"} {
				r := e.intention(e.a, move(refA, "", v1))
				r.Project += p
				_, err := e.sendIntention(e.a, r)
				e.must(err)
				e.must(e.transact(e.a, refdb.UpdateRequest{Project: e.project + p, Updates: []refdb.Update{move(refB, "", v1)}}))
			}
			if got := e.states(refA, refB); len(got) != 0 {
				e.Errorf("got %+v", got)
			}
		}},
		{"P10 every valid ref name has its state", func(e *env) {
			names := nastyRefs()
			e.store(names)
			l := e.acquire(e.a, "HEAD")
			got := e.states(names...)
			for _, name := range names {
				if s := got[name]; string(s.Value) != name || (s.Lock != nil) != (name == "HEAD") {
					e.Errorf("%q is %+v", name, s)
				}
			}
			if got["HEAD"].Lock.Token != l.Token || len(got) != len(names) {
				e.Errorf("got %d states of %d", len(got), len(names))
			}
		}},
		{"many states come at once", func(e *env) {
			names := manyNames(e.most(1000))
			e.store(names[len(names)/4:])
			e.acquire(e.a, names[:len(names)/2]...)
			got := e.states(names...)
			if len(got) != len(names) {
				e.Errorf("got %d states of %d", len(got), len(names))
			}
			for i, name := range names {
				if s := got[name]; (s.Lock != nil) != (i < len(names)/2) || (s.Value != refdb.Unknown) != (i >= len(names)/4) {
					e.Fatalf("%s is %+v", name, s)
				}
			}
		}},
		{"a question whose context has ended says so", func(e *env) {
			ctx, cancel := context.WithCancel(e.Context())
			cancel()
			if _, err := e.a.States(ctx, e.project, []string{refA}); !errors.Is(err, context.Canceled) {
				e.Errorf("got %v", err)
			}
		}},
	}
}

// states returns what is known of the refs, by name. It sorts them.
func (e *env) states(refs ...string) map[string]refdb.State {
	e.Helper()
	got, err := e.tryStates(refs...)
	e.must(err)
	return got
}

func (e *env) tryStates(refs ...string) (map[string]refdb.State, error) {
	var got []refdb.State
	err := retry(func() (err error) {
		got, err = e.b.States(e.Context(), e.project, slices.Sorted(slices.Values(refs)))
		return err
	})
	byRef := make(map[string]refdb.State, len(got))
	for _, s := range got {
		if _, twice := byRef[s.Ref]; twice {
			e.Errorf("%s has two states", s.Ref)
		}
		byRef[s.Ref] = s
	}
	return byRef, err
}
