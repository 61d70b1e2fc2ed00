package refdbtest

import (
	"context"
	"errors"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

func connectionRows() []row {
	return []row{
		{"P3 the time is the database's, the same for every process, and goes on", func(e *env) {
			last := e.now(e.a)
			for i := range 100 {
				now := e.now([]process{e.a, e.b}[i%2])
				if now.Before(last) {
					e.Fatalf("%v after %v", now, last)
				}
				last = now
			}
			if l := e.acquire(e.a, refA); e.now(e.b).Before(l.Token.Time()) {
				e.Errorf("token %v lies in the future", l.Token.Time())
			}
		}},
		{"every method says that its context has ended", func(e *env) {
			ctx, cancel := context.WithDeadline(e.Context(), time.Unix(0, 0))
			defer cancel()
			for name, call := range calls(e, ctx, e.a) {
				if err := call(); !errors.Is(err, context.DeadlineExceeded) {
					e.Errorf("%s: %v", name, err)
				}
			}
			e.wantRefs(nil)
			e.wantNone()
		}},
		{"a closed driver refuses every call, and closes again in peace", func(e *env) {
			p := e.spawn("site-c/3")
			e.must(p.Close())
			for name, call := range calls(e, e.Context(), p) {
				if err := call(); err == nil {
					e.Errorf("%s succeeded", name)
				}
			}
			e.must(p.Close())
			e.wantRefs(nil)
			e.wantNone()
		}},
		{"processes come and go without an effect on each other", func(e *env) {
			l := e.acquire(e.a, refA)
			p := e.spawn("site-c/3")
			e.must(p.Close())
			e.must(e.transact(e.a, refdb.UpdateRequest{Fence: l.fence(), Updates: []refdb.Update{move(refA, "", v1)}}))
			e.wantLock(l)
		}},
	}
}

// calls is one call of every method.
func calls(e *env, ctx context.Context, p process) map[string]func() error {
	refs := []string{refA}
	ids := idsOf(e.project, p.owner, 1, refs)
	return map[string]func() error{
		"Get":    func() error { return second(p.Get(ctx, e.project, refs)) },
		"List":   func() error { return second(p.List(ctx, refdb.RefQuery{Project: e.project, Limit: 1})) },
		"States": func() error { return second(p.States(ctx, e.project, refs)) },
		"Update": func() error {
			return p.Update(ctx, refdb.UpdateRequest{Project: e.project, ID: "x", Updates: []refdb.Update{move(refA, "", v1)}})
		},
		"Remove": func() error { return second(p.Remove(ctx, refdb.RemoveRequest{Project: e.project, Limit: 1})) },
		"PurgeTombstones": func() error {
			return second(p.PurgeTombstones(ctx, refdb.TombstoneRequest{Project: e.project, Limit: 1}))
		},
		"Acquire": func() error { return second(p.Acquire(ctx, e.request(p, refA))) },
		"Beat":    func() error { return second(p.Beat(ctx, ids)) },
		"Release": func() error {
			return second(p.Release(ctx, refdb.ReleaseRequest{Project: e.project, Refs: refs, Owner: p.owner, Token: 1}))
		},
		"Purge": func() error { return second(p.Purge(ctx, standing(ids...))) },
		"Abandon": func() error {
			return p.Abandon(ctx, refdb.AbandonRequest{Project: e.project, Refs: refs, Owner: p.owner, Nonce: "x"})
		},
		"Locks":   func() error { return second(p.Locks(ctx, refdb.LockQuery{Limit: 1})) },
		"Prepare": func() error { return second(p.Prepare(ctx, e.intention(p, move(refA, "", v1)))) },
		"Finish": func() error {
			return p.Finish(ctx, refdb.FinishRequest{Project: e.project, ID: "x", Owner: p.owner, Token: 1, Dropped: refs})
		},
		"Revoke": func() error { return p.Revoke(ctx, e.intention(p, move(refA, "", v1))) },
		"Resolve": func() error {
			return second(p.Resolve(ctx, refdb.ResolveRequest{Intents: ids, Decision: refdb.KeepOld, By: "x", Reason: "x"}))
		},
		"Forget":  func() error { return p.Forget(ctx, ids) },
		"Intents": func() error { return second(p.Intents(ctx, refdb.IntentQuery{Limit: 1})) },
		"Now":     func() error { return second(p.Now(ctx)) },
	}
}
