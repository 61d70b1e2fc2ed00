package queue

import (
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// A Row is what the table of locks has of a ref.
type Row struct {
	Lock  *refdb.LockInfo // nil if there is no row; then the rest is zero
	Nonce string
	Queue Queue
	// Ours: the request that is decided about has taken it before, and its reply was lost.
	Ours bool
}

// reservedFor returns for whom the row is kept, if it is.
func (r Row) reservedFor() (p Place, ok bool) {
	if r.Lock == nil || !r.Lock.Reserved() {
		return Place{}, false
	}
	p, ok = Parse(r.Nonce)
	return p, ok && refdb.ReservedFor(p.Owner) == r.Lock.Owner
}

// inTheWay reports whether the row refuses p.
func (r Row) inTheWay(p Place) bool {
	if r.Lock == nil || r.Ours || r.Lock.Stale() {
		return false
	}
	other, reserved := r.reservedFor()
	return !reserved || other.ID != p.ID && !p.before(other)
}

// A Change is what becomes of a row that stands.
type Change int

const (
	Stays   Change = iota
	Queues         // only the queue changes
	Reserve        // it is reserved, and has the queue
	Delete
)

// An After is a row as a decision leaves it. Only what Change says is to be written.
type After struct {
	Change Change
	Lock   refdb.LockInfo // the reservation
	Nonce  string         // of the reservation; "" if it is for nobody: then anybody may take it
	Queue  Queue
}

// keeps is the row that is kept for p, from now on, instead of a lock that ended; for the zero Place, for
// nobody: it is stale. The token stays.
//
// The turn is what is left until the usual age: so the row says nothing unusual of a lock that
// Gerrit's plugin makes of it, which sets the heartbeat, the token and the owner alone.
func (p Place) keeps(ended refdb.LockInfo, now time.Time, q Queue) After {
	a := After{Change: Reserve, Lock: ended, Queue: q}
	a.Lock.Owner, a.Lock.StaleAfter, a.Lock.Heartbeat = refdb.ReservedFor(p.Owner), refdb.DefaultStaleAfter, time.UnixMicro(0)
	if p.ID != "" {
		a.Nonce, a.Lock.Heartbeat = p.String(), now.Add(p.Turn-refdb.DefaultStaleAfter)
	}
	a.Lock.Age = now.Sub(a.Lock.Heartbeat)
	return a
}

// End says what becomes of the row of a lock that ends. What is no lock but kept for somebody,
// and is purged, goes with its queue: else it would take an operator as many purges as waiters
// have died. Who lives comes back.
func End(lock refdb.LockInfo, q Queue, next refdb.Waiter, now time.Time) After {
	if lock.Reserved() {
		return After{Change: Delete}
	}
	return handOn(lock, q, next, now)
}

// handOn says what becomes of a row: it goes to next, a waiter of
// the lock's owner, or else to the first who waits. One that polls need not be waited for
// until somebody was passed too often: till then whoever asks may take the lock.
func handOn(lock refdb.LockInfo, q Queue, next refdb.Waiter, now time.Time) After {
	if len(q) == 0 {
		return After{Change: Delete}
	}
	first, due := q[0], q.due()
	switch {
	case next.ID != "" && !due:
		p := PlaceOf(next, lock.Owner)
		if was, waits := q.find(p.ID); waits {
			p.Ticket, p.Passed = was.Ticket, was.Passed
		}
		if p.Ticket == 0 {
			p.Ticket = now.UnixMicro()
		}
		p.Channel = "" // its own process tells it
		return p.keeps(lock, now, q.Without(p.ID))
	case first.Channel == "" && !due:
		return Place{}.keeps(lock, now, q)
	default:
		return first.keeps(lock, now, q[1:])
	}
}

// Withdraw says what becomes of a row when a waiter gives up. Nothing changes if it is
// neither in the queue nor has the row kept for it.
func Withdraw(r Row, id string, now time.Time) After {
	switch p, reserved := r.reservedFor(); {
	case r.Lock == nil || id == "":
		return After{}
	case reserved && p.ID == id:
		return handOn(*r.Lock, r.Queue.Without(id), refdb.Waiter{}, now)
	}
	if _, waits := r.Queue.find(id); !waits {
		return After{}
	}
	q := r.Queue.Without(id)
	if len(q) == 0 && r.Lock.Reserved() && r.Nonce == "" {
		return After{Change: Delete} // it was kept for nobody, and nobody waits
	}
	return After{Change: Queues, Queue: q}
}
