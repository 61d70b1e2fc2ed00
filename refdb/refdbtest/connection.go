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
			e.wantFree(refA)
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
			e.wantFree(refA)
		}},
		{"processes come and go without an effect on each other", func(e *env) {
			l := e.acquire(e.a, refA)
			p := e.spawn("site-c/3")
			e.must(p.Close())
			e.must(e.transact(e.a, refdb.Transaction{Fence: l.fence(), Updates: []refdb.Update{move(refA, "", v1)}}))
			e.wantLock(l)
		}},
	}
}

// calls is one call of every method, each of which would do something.
func calls(e *env, ctx context.Context, p process) map[string]func() error {
	return map[string]func() error{
		"Get":  func() error { _, err := p.Get(ctx, e.project, []string{refA}); return err },
		"List": func() error { _, err := p.List(ctx, refdb.RefQuery{Project: e.project, Limit: 1}); return err },
		"Update": func() error {
			return p.Update(ctx, refdb.Transaction{Project: e.project, ID: "x", Updates: []refdb.Update{move(refA, "", v1)}})
		},
		"Remove":  func() error { _, err := p.Remove(ctx, refdb.RemoveRequest{Project: e.project, Limit: 1}); return err },
		"Acquire": func() error { _, err := p.Acquire(ctx, e.request(p, refA)); return err },
		"Beat": func() error {
			_, err := p.Beat(ctx, p.owner, []refdb.Held{{Project: e.project, Ref: refA, Token: 1}})
			return err
		},
		"Release": func() error {
			_, err := p.Release(ctx, []refdb.Held{{Project: e.project, Ref: refA, Token: 1}})
			return err
		},
		"Locks": func() error { _, err := p.Locks(ctx, refdb.LockQuery{Limit: 1}); return err },
		"Now":   func() error { _, err := p.Now(ctx); return err },
	}
}
