package sessions

import (
	"context"
	"time"

	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// phase is how far a request has come.
type phase int

const (
	deciding phase = iota // nothing of it moves yet
	granted               // its guard may carry it out
	over                  // its guard can't carry it out any more; it is settled as soon as possible
)

// A request is a transaction, or the creation of a repository, that a guard has asked for and that
// is not settled. The lock of guards guards what changes after it has begun.
type request struct {
	id       pusher.Transaction
	phase    phase
	ended    time.Time               // when it was over
	session  *session                // which is told the outcome; nil if there is none
	reported bool                    // its session waits for the message that it is settled
	cancel   context.CancelCauseFunc // the decision
	// mayHaveMoved says that it was granted, or may have been by an earlier daemon.
	mayHaveMoved bool
	settling     bool
}

// answer tells a guard the outcome of a decision, and reports whether the request is granted.
// Otherwise it is over, and to be settled. Ctx has ended with [errCancelled] if nobody waits for
// the answer any more.
func (gs *Guards) answer(ctx context.Context, r *request, s *session, refs int, err error) bool {
	gs.lock()
	cancelled := ctx.Err() != nil && context.Cause(ctx) == errCancelled
	if err == nil && !cancelled {
		r.phase, r.mayHaveMoved = granted, true
		s.send(wire.Granted{TX: r.id.TX})
		gs.unlock()
		return true
	}
	if !cancelled {
		gs.State.Counts.Refused.Add(1)
		gs.State.Counts.RefusedRefs.Add(uint64(refs))
		gs.State.Counts.RefusedFor(err)
		s.send(wire.Refused{TX: r.id.TX, Kind: refusal.KindOf(err), Reason: string(refusal.ReasonOf(err)), Lines: refusal.TextOf(err)})
		r.session = nil
	}
	r.finish()
	gs.wake()
	gs.unlock()
	if !cancelled {
		refusal.Log(ctx, gs.Logger, err)
	}
	return false
}

// end is called when the guard says, or has shown, that it won't carry out the request any more. It
// reports whether the request is over. If it is being decided, the goroutine that decides settles
// it. The guards are locked.
func (r *request) end() bool {
	if r.phase == deciding {
		r.cancel(errCancelled)
		return false
	}
	r.finish()
	return true
}

// finish makes the request be over. The guards are locked.
func (r *request) finish() {
	if r.phase != over {
		r.phase, r.ended = over, time.Now()
	}
}

// leave is called when the session ends. An answer can't be sent any more. The guards are locked.
func (r *request) leave() {
	r.session, r.reported = nil, false
	if r.phase == deciding {
		r.cancel(errCancelled)
	}
}

// tellSettled tells the session that has reported the request what became of it. The guards are
// locked.
func (r *request) tellSettled(values []wire.RefValue) {
	if r.reported {
		r.session.send(wire.Settled{TX: r.id.TX, Values: values})
		r.reported = false
	}
}
