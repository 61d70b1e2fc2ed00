package queue

import (
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// A Verdict is what becomes of a request for the locks on some rows.
type Verdict struct {
	// Refused: something is in the way. Else the request takes all rows, each with its Queue.
	Refused bool
	// Others are the locks that others have on the rows, stale ones too; reservations only if they refuse.
	Others []refdb.LockInfo
	// Place is the waiter's, if it was refused.
	Place refdb.Place
	// After are the rows as the request leaves them, in the order in which they were
	// given. Of those that it takes only the Queue counts; of Ours, if it was refused, that it is Delete.
	After []After
}

// Decide decides about a request of w, who may be zero, for owner.
func Decide(rows []Row, w refdb.Waiter, owner string, now time.Time) Verdict {
	d := decision{w: PlaceOf(w, owner), now: now, rows: slices.Clone(rows), Verdict: Verdict{After: make([]After, len(rows))}}
	for i := range d.rows {
		d.endTurn(i)
		d.recall(d.rows[i])
	}
	for _, r := range d.rows {
		refuses := r.inTheWay(d.w)
		d.Refused = d.Refused || refuses
		d.intended = d.intended || refuses && r.Lock.Intended()
		if r.Lock != nil && !r.Ours && (refuses || !r.Lock.Reserved()) {
			d.Others = append(d.Others, *r.Lock)
		}
	}
	if d.Refused {
		d.refuse()
	} else {
		d.grant()
	}
	return d.Verdict
}

// A decision is one under way.
type decision struct {
	Verdict
	w        Place // of the waiter; it has an ID if there is one, and a ticket if that is known
	now      time.Time
	rows     []Row
	intended bool // an intent is in the way
}

// endTurn hands on what is kept for somebody whose turn is over, if others wait: else whoever asks
// could pass them, once for each waiter that is dead or late.
func (d *decision) endTurn(i int) {
	r := &d.rows[i]
	if p, reserved := r.reservedFor(); !reserved || p.ID == d.w.ID || !r.Lock.Stale() || len(r.Queue) == 0 {
		return
	}
	a := handOn(*r.Lock, r.Queue, refdb.Waiter{}, d.now)
	r.Lock, r.Nonce, r.Queue = &a.Lock, a.Nonce, a.Queue
	d.After[i] = a
}

// recall adds what a row knows of the waiter: the reply to an earlier request may have been lost.
func (d *decision) recall(r Row) {
	was, reserved := r.reservedFor()
	if !reserved || was.ID != d.w.ID {
		var waits bool
		if was, waits = r.Queue.find(d.w.ID); !waits {
			return
		}
	}
	if d.w.Ticket == 0 || was.Ticket < d.w.Ticket {
		d.w.Ticket = was.Ticket
	}
	d.w.Passed = max(d.w.Passed, was.Passed)
}

func (d *decision) grant() {
	for i, r := range d.rows {
		q := r.Queue.Without(d.w.ID).passedBy(d.w)
		if p, reserved := r.reservedFor(); reserved && p.ID != d.w.ID && !r.Lock.Stale() {
			q = q.with(p) // it came later, and waits on
		}
		d.After[i] = After{Queue: q}
	}
}

func (d *decision) refuse() {
	for i, r := range d.rows {
		if r.Ours {
			d.After[i] = After{Change: Delete}
		}
	}
	if d.w.ID == "" {
		return
	}
	if d.w.Ticket == 0 {
		d.w.Ticket = d.now.UnixMicro()
	}
	kept := slices.ContainsFunc(d.rows, d.isKept)
	keeps := d.w.Passed >= refdb.MaxPassed
	if kept && !d.intended && !keeps {
		d.w.Passed++ // each time, or two could yield to each other for as long as a third holds what both need
	}
	for i, r := range d.rows {
		if d.isKept(r) {
			d.After[i] = d.handOn(r, keeps)
		}
	}
	d.Place = refdb.Place{Ticket: time.UnixMicro(d.w.Ticket), Passed: d.w.Passed}
	for i, r := range d.rows {
		d.enqueue(i, r)
	}
}

// isKept reports whether a row is kept for the waiter.
func (d *decision) isKept(r Row) bool {
	p, reserved := r.reservedFor()
	return reserved && p.ID == d.w.ID
}

// handOn says what becomes of a row that is kept for the waiter, which can't take all that it needs.
//
// While an intent is in the way that may be so for ever: then it keeps nothing, and waits for
// nothing else. Else it yields to whoever came next after it, or to those before if nobody
// did, and waits on; but not for ever.
func (d *decision) handOn(r Row, keeps bool) After {
	switch later := slices.IndexFunc(r.Queue, d.w.before); {
	case d.intended:
		return handOn(*r.Lock, r.Queue, refdb.Waiter{}, d.now)
	case keeps:
		return d.w.keeps(*r.Lock, d.now, r.Queue)
	case len(r.Queue) == 0:
		return After{Change: Delete}
	default:
		next := r.Queue[max(later, 0)]
		return next.keeps(*r.Lock, d.now, r.Queue.Without(next.ID).with(d.w))
	}
}

// enqueue gives the waiter its place in the queue of a row that is in the way. If an intent
// is, it has one there alone.
func (d *decision) enqueue(i int, r Row) {
	q := r.Queue
	switch refuses := r.inTheWay(d.w); {
	case refuses && (!d.intended || r.Lock.Intended()):
		d.Place.Ahead = max(d.Place.Ahead, q.ahead(d.w))
		q = q.with(d.w)
	case d.intended:
		q = q.Without(d.w.ID)
	}
	if slices.Equal(q, r.Queue) {
		return
	}
	if d.After[i].Change == Stays {
		d.After[i].Change = Queues
	}
	d.After[i].Queue = q
}
