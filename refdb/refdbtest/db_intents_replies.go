package refdbtest

import (
	"context"
	"errors"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// P7, as for locks and updates: lose and drop can't be told apart.
func dbIntentReplyRows() []row {
	return []row{
		{"P7 a preparation whose reply was lost is made once", func(e *env) {
			for i, fault := range []func(string) func(call) error{lose, drop} {
				db, tap := e.openTapped(refdb.Options{})
				ref := []string{refA, refB}[i]
				tap.do(fault("Prepare"))
				p := e.intend(db, move(ref, "", v1), move(refC, "", v1))
				if n := tap.count("Prepare"); n != 2 {
					e.Errorf("it took %d requests", n)
				}
				e.wantOnly(preparationOf(p))
				e.must(db.Finish(e.Context(), p, []string{ref}, []string{refC}))
				e.must(db.Forget(e.Context(), e.decided()))
				e.wantNone()
			}
			e.wantRefs(map[string]refdb.Value{refA: v1, refB: v1})
		}},
		{"P7 a preparation that was asked for again, finished and forgotten, does not come a second time", func(e *env) {
			db, tap := e.openTapped(refdb.Options{})
			var late refdb.PrepareRequest
			tap.do(first("Prepare", func(c call) error {
				late = c.arg.(refdb.PrepareRequest)
				return errLost
			}))
			p := e.intend(db, move(refA, "", v1))
			e.must(db.Finish(e.Context(), p, []string{refA}, nil))
			e.must(e.update(e.b, move(refA, v1, refdb.Deleted))) // there and back
			_, err := e.sendIntention(e.a, late)
			e.wantIs(err, refdb.ErrReleased)
			e.wantFree(refA)
		}},
		{"P7 a preparation that nobody can tell the outcome of is its caller's to revoke", func(e *env) {
			db, tap := e.openTapped(refdb.Options{})
			tap.do(func(c call) error {
				if c.method == "Prepare" {
					return errors.Join(errLost, c.do())
				}
				return c.do()
			})
			p, err := db.Prepare(e.Context(), e.project, []refdb.Update{move(refA, "", v1), move(refB, "", v1)}, agent)
			e.wantClass(err, refdb.ErrOutcomeUnknown, refdb.OutcomeUnknown)
			e.must(db.Revoke(e.Context(), p))
			e.wantFree(refA, refB)
			e.must(db.Forget(e.Context(), e.decided()))
			e.wantNone()
		}},
		{"P7 a preparation that comes after its caller gave up and revoked it does nothing", func(e *env) {
			db, tap := e.openTapped(refdb.Options{})
			ctx, cancel := context.WithCancel(e.Context())
			defer cancel()
			var late refdb.PrepareRequest
			tap.do(first("Prepare", func(c call) error {
				late = c.arg.(refdb.PrepareRequest)
				cancel()
				return errors.Join(errLost, c.ctx.Err())
			}))
			p, err := db.Prepare(ctx, e.project, []refdb.Update{move(refA, "", v1)}, agent)
			e.wantIs(err, context.Canceled)
			e.wantIs(err, refdb.ErrOutcomeUnknown)
			e.must(db.Revoke(e.Context(), p))
			// The ref has been there and back.
			e.must(e.update(e.b, move(refA, "", v1)))
			e.must(e.update(e.b, move(refA, v1, refdb.Deleted)))
			_, err = e.sendIntention(e.a, late)
			e.wantIs(err, refdb.ErrReleased)
			e.wantFree(refA)
		}},
		{"P7 a finish whose reply was lost happens once", func(e *env) {
			for i, fault := range []func(string) func(call) error{lose, drop} {
				db, tap := e.openTapped(refdb.Options{})
				ref := []string{refA, refB}[i]
				p := e.intend(db, move(ref, "", v1), move(refC, "", v1))
				tap.do(fault("Finish"))
				e.must(db.Finish(e.Context(), p, []string{ref}, []string{refC}))
				if n := tap.count("Finish"); n != 1+i {
					e.Errorf("it was sent %d times", n)
				}
				e.wantNone()
				e.wantLost(db.Finish(e.Context(), p, []string{ref}, []string{refC}), ref, refC)
			}
			e.wantRefs(map[string]refdb.Value{refA: v1, refB: v1})
		}},
		{"P7 a finish that arrives late, after it was sent again, happens once", func(e *env) {
			db, tap := e.openTapped(refdb.Options{})
			p := e.intend(db, move(refA, "", v1))
			var late func() error
			tap.do(func(c call) error {
				switch {
				case c.method != "Finish":
					return c.do()
				case late == nil:
					late = c.do
					return errLost
				default:
					e.must(late())
					return c.do()
				}
			})
			e.must(db.Finish(e.Context(), p, []string{refA}, nil))
			e.wantRefs(map[string]refdb.Value{refA: v1})
			e.wantNone()
		}},
		{"P7 a finish that was overwritten before it could be looked for has an unknown outcome, and is not repeated", func(e *env) {
			db, tap := e.openTapped(refdb.Options{})
			p := e.intend(db, move(refA, "", v1))
			tap.do(first("Finish", func(c call) error {
				e.must(c.do())
				e.must(e.update(e.b, move(refA, v1, "")))
				return errLost
			}))
			e.wantClass(db.Finish(e.Context(), p, []string{refA}, nil), refdb.ErrOutcomeUnknown, refdb.OutcomeUnknown)
			e.wantLost(db.Finish(e.Context(), p, []string{refA}, nil), refA)
			if got := e.getOne(refA).Value; !got.IsAbsent() {
				e.Errorf("it holds %q", got)
			}
		}},
		{"P7 a finish that drops all, and whose reply was lost, can be repeated", func(e *env) {
			for _, carriedOut := range []bool{true, false} {
				db, tap := e.openTapped(refdb.Options{})
				p := e.intend(db, move(refA, "", v1))
				fault := drop
				if carriedOut {
					fault = lose
				}
				tap.do(fault("Finish"))
				e.wantClass(db.Finish(e.Context(), p, nil, []string{refA}), refdb.ErrOutcomeUnknown, refdb.OutcomeUnknown)
				if err := db.Finish(e.Context(), p, nil, []string{refA}); e.loss(err) != carriedOut {
					e.Errorf("again: %v", err)
				}
				e.wantNone()
			}
		}},
		{"P7 a finish that the database certainly didn't do is tried again", func(e *env) {
			db, tap := e.openTapped(refdb.Options{})
			p := e.intend(db, move(refA, "", v1), move(refB, "", v1))
			tap.do(first("Finish", func(call) error { return errDown }))
			e.must(db.Finish(e.Context(), p, []string{refA}, nil))
			tap.do(func(call) error { return errDown })
			e.wantClass(db.Finish(e.Context(), p, []string{refB}, nil), refdb.ErrUnavailable, refdb.Retryable)
			tap.do(nil)
			e.must(db.Finish(e.Context(), p, []string{refB}, nil))
			e.wantNone()
		}},
	}
}
