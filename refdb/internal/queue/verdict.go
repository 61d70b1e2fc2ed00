package queue

import (
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// A Verdict is the result of a request for the locks of some rows.
type Verdict struct {
	// Refused says that a row refuses the request. Otherwise the request takes all rows, each with
	// its Queue in After.
	Refused bool
	// Others are the locks of other requests on the rows, including stale locks, and the
	// reservations that refuse the request.
	Others []driver.LockInfo
	// Place is the place of the waiter, if the request was refused.
	Place driver.Place
	// After are the updates of the rows, in the order of Decide's argument. If the request takes
	// the rows, only the Queue of each update counts. If the request is refused, locks that are
	// Ours end.
	After []RowUpdate
}

// Decide decides on a request of w, a waiter of owner, for the locks of rows. The waiter w may be
// zero.
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
	waiter   Place // of the waiter: its ID is "" if there is no waiter, its ticket 0 if it is not known
	now      time.Time
	rows     []Row
	intended bool // an intent refuses the request
}

// endTurn gives a reservation whose turn is over to the next waiter, if there is one. Otherwise any
// request could pass the waiters, once for each waiter that is dead or late.
func (d *decision) endTurn(i int) {
	r := &d.rows[i]
	if p, reserved := r.reservedFor(); !reserved || p.ID == d.waiter.ID || !r.Lock.Stale() || len(r.Queue) == 0 {
		return
	}
	a := End(*r.Lock, r.Queue, driver.Waiter{}, d.now)
	r.Lock, r.Nonce, r.Queue = &a.Lock, a.Nonce, a.Queue
	d.After[i] = a
}

// recall takes the waiter's ticket and count from its place in a row, because the reply to an
// earlier request may have been lost.
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
			q = q.with(p) // its ticket is later, and it continues to wait
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
		// Every yielding counts: otherwise two waiters could yield to each other for as long as a third
		// holds a lock that both need.
		d.waiter.Passed++
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

// yield returns the update of a row that is reserved for the waiter, whose request was refused
// because of other rows. If keeps is true, the waiter has been passed too often, and keeps the row
// for another turn.
//
// If an intent refuses the request, which may last for any length of time, the waiter keeps no rows
// and waits only for intents. Otherwise it yields to the next waiter after it or, if there is none,
// to the first one, and continues to wait.
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

// enqueue gives the waiter its place in the queue of a row that refuses its request. If an intent
// refuses the request, the waiter waits only in the queues of intents.
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
