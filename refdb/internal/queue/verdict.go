package queue

import (
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// A Verdict is what becomes of a request for the locks on some rows.
type Verdict struct {
	// Refused says that a row refuses the request. Otherwise it takes all rows, each with its
	// Queue.
	Refused bool
	// Others are the locks of others on the rows, stale ones too, and the reservations that refuse.
	Others []driver.LockInfo
	// Place is the place of the waiter, if it was refused.
	Place driver.Place
	// After are the rows as the request leaves them, in the order in which they were
	// given. If the request takes them, only their Queue counts. If it is refused, locks that
	// are Ours end.
	After []RowUpdate
}

// Decide decides about a request of w, which may be zero, for owner.
func Decide(rows []Row, w driver.Waiter, owner string, now time.Time) Verdict {
	d := decision{waiter: PlaceOf(w, owner), now: now, rows: slices.Clone(rows), Verdict: Verdict{After: make([]RowUpdate, len(rows))}}
	for i := range d.rows {
		d.endTurn(i)
		d.recall(d.rows[i])
	}
	for _, r := range d.rows {
		refuses := r.refuses(d.waiter)
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

// A decision is the state of Decide.
type decision struct {
	Verdict
	waiter   Place // of the waiter: with an ID if there is one, and a ticket if it is known
	now      time.Time
	rows     []Row
	intended bool // an intent refuses the request
}

// endTurn hands over a reservation whose turn is over, if others wait. Otherwise any request
// could pass them, once for each waiter that is dead or late.
func (d *decision) endTurn(i int) {
	r := &d.rows[i]
	if p, reserved := r.reservedFor(); !reserved || p.ID == d.waiter.ID || !r.Lock.Stale() || len(r.Queue) == 0 {
		return
	}
	a := End(*r.Lock, r.Queue, driver.Waiter{}, d.now)
	r.Lock, r.Nonce, r.Queue = &a.Lock, a.Nonce, a.Queue
	d.After[i] = a
}

// recall adds what a row knows about the waiter: the reply to an earlier request may have been
// lost.
func (d *decision) recall(r Row) {
	was, reserved := r.reservedFor()
	if !reserved || was.ID != d.waiter.ID {
		var waits bool
		if was, waits = r.Queue.find(d.waiter.ID); !waits {
			return
		}
	}
	if d.waiter.Ticket == 0 || was.Ticket < d.waiter.Ticket {
		d.waiter.Ticket = was.Ticket
	}
	d.waiter.Passed = max(d.waiter.Passed, was.Passed)
}

func (d *decision) grant() {
	for i, r := range d.rows {
		q := r.Queue.Without(d.waiter.ID).passedBy(d.waiter)
		if p, reserved := r.reservedFor(); reserved && p.ID != d.waiter.ID && !r.Lock.Stale() {
			q = q.with(p) // it came later, and goes on waiting
		}
		d.After[i] = RowUpdate{Queue: q}
	}
}

func (d *decision) refuse() {
	for i, r := range d.rows {
		if r.Ours {
			d.After[i] = End(*r.Lock, r.Queue, driver.Waiter{}, d.now)
		}
	}
	if d.waiter.ID == "" {
		return
	}
	if d.waiter.Ticket == 0 {
		d.waiter.Ticket = d.now.UnixMicro()
	}
	reserved := slices.ContainsFunc(d.rows, d.isReserved)
	keeps := d.waiter.Passed >= driver.MaxPassed
	if reserved && !d.intended && !keeps {
		d.waiter.Passed++ // each time: otherwise two could yield to each other as long as a third holds what both need
	}
	for i, r := range d.rows {
		if d.isReserved(r) {
			d.After[i] = d.yield(r, keeps)
		}
	}
	d.Place = driver.Place{Ticket: time.UnixMicro(d.waiter.Ticket), Passed: d.waiter.Passed}
	for i, r := range d.rows {
		if !r.Ours {
			d.enqueue(i, r)
		}
	}
}

// isReserved reports whether a row is reserved for the waiter.
func (d *decision) isReserved(r Row) bool {
	p, reserved := r.reservedFor()
	return reserved && p.ID == d.waiter.ID
}

// yield says what becomes of a row that is reserved for the waiter, which can't take all rows that
// it needs. With keeps it was passed too often, and keeps the row for another turn.
//
// An intent may refuse it for ever: then it keeps nothing, and waits for nothing
// else. Otherwise it yields to the next waiter after it, or to an earlier one if there is none, and
// goes on waiting.
func (d *decision) yield(r Row, keeps bool) RowUpdate {
	switch later := slices.IndexFunc(r.Queue, d.waiter.before); {
	case d.intended:
		return End(*r.Lock, r.Queue, driver.Waiter{}, d.now)
	case keeps:
		return d.waiter.reserve(*r.Lock, d.now, r.Queue)
	case len(r.Queue) == 0:
		return RowUpdate{Action: Delete}
	default:
		next := r.Queue[max(later, 0)]
		return next.reserve(*r.Lock, d.now, r.Queue.Without(next.ID).with(d.waiter))
	}
}

// enqueue gives the waiter its place in the queue of a row that refuses it. If intents do, it
// waits in the queues of intents alone.
func (d *decision) enqueue(i int, r Row) {
	q := r.Queue
	switch refuses := r.refuses(d.waiter); {
	case refuses && (!d.intended || r.Lock.Intended()):
		d.Place.Ahead = max(d.Place.Ahead, q.ahead(d.waiter))
		q = q.with(d.waiter)
	case d.intended:
		q = q.Without(d.waiter.ID)
	}
	if slices.Equal(q, r.Queue) {
		return
	}
	if d.After[i].Action == Keep {
		d.After[i].Action = SetQueue
	}
	d.After[i].Queue = q
}
