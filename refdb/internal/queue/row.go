package queue

import (
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// A Row is the row of a ref in the table of locks.
type Row struct {
	Lock  *driver.LockInfo // nil if there is no row; the other fields are then zero
	Nonce string
	Queue Queue
	// Ours says that the same request took the lock earlier, and its reply was lost.
	Ours bool
}

// reservedFor returns the waiter for which the row is reserved, if it is a reservation for a
// waiter.
func (r Row) reservedFor() (p Place, ok bool) {
	if r.Lock == nil || !r.Lock.Reserved() {
		return Place{}, false
	}
	p, ok = Parse(r.Nonce)
	return p, ok && driver.ReservedFor(p.Owner) == r.Lock.Owner
}

// refuses reports whether the row refuses p: it is a fresh lock, or is reserved for an earlier
// waiter.
func (r Row) refuses(p Place) bool {
	if r.Lock == nil || r.Ours || r.Lock.Stale() {
		return false
	}
	other, reserved := r.reservedFor()
	return !reserved || other.ID != p.ID && !p.before(other)
}

// An Action is the kind of a RowUpdate.
type Action int

const (
	Keep     Action = iota
	SetQueue        // the queue is replaced
	Reserve         // the row becomes a reservation, and the queue is replaced
	Delete
)

// A RowUpdate is the update of a row that results from a decision. Action says which fields are
// written.
type RowUpdate struct {
	Action Action
	Lock   driver.LockInfo // the reservation
	Nonce  string          // of the reservation: its waiter's place; "" if it is for no waiter, and any request may take it
	Queue  Queue
}

// reserve returns the update that turns the row of an ended lock into a reservation for p, whose
// turn begins now. The token stays the same. For the zero Place the row becomes a reservation for
// nobody, which is stale.
//
// The heartbeat lies so far in the past that the reservation is stale by the default stale-after
// once the turn is over. When Gerrit's plugin takes the row over, it sets only heartbeat, token and
// owner, so the other columns must be right for its lock.
func (p Place) reserve(ended driver.LockInfo, now time.Time, q Queue) RowUpdate {
	a := RowUpdate{Action: Reserve, Lock: ended, Queue: q}
	a.Lock.Owner, a.Lock.StaleAfter, a.Lock.Heartbeat = driver.ReservedFor(p.Owner), driver.DefaultStaleAfter, time.UnixMicro(0)
	if p.ID != "" {
		a.Nonce, a.Lock.Heartbeat = p.String(), now.Add(p.Turn-driver.DefaultStaleAfter)
	}
	a.Lock.Age = now.Sub(a.Lock.Heartbeat)
	return a
}

// Purge returns the update of a row that is purged. A reservation is deleted together with its
// queue: otherwise an operator would need a purge for each waiter that has died. Live waiters come
// back.
func Purge(lock driver.LockInfo, q Queue, now time.Time) RowUpdate {
	if lock.Reserved() {
		return RowUpdate{Action: Delete}
	}
	return End(lock, q, driver.Waiter{}, now)
}

// Pass returns the update of a row that an update of refs passes, because its lock is stale or its
// turn is over. A row that is reserved for nobody does not change, because any request may already
// take it.
func Pass(r Row, now time.Time) RowUpdate {
	if r.Lock.Reserved() && r.Nonce == "" && len(r.Queue) > 0 {
		return RowUpdate{}
	}
	return End(*r.Lock, r.Queue, driver.Waiter{}, now)
}

// End returns the update of the row of a lock that ends. The row is reserved for next, a waiter of
// the lock's owner, or else for the first waiter in the queue. If the first waiter polls, the row
// is reserved for nobody, and any request may take the lock, until a waiter has been passed too
// often. If next does not get the lock, it enters the queue. A row with an empty queue is deleted.
func End(lock driver.LockInfo, q Queue, next driver.Waiter, now time.Time) RowUpdate {
	if len(q) == 0 {
		return RowUpdate{Action: Delete}
	}
	first, rest, due := q[0], q[1:], q.due()
	if next.ID != "" {
		p := PlaceOf(next, lock.Owner)
		if was, waits := q.find(p.ID); waits {
			p.Ticket, p.Passed = was.Ticket, was.Passed
		}
		if p.Ticket == 0 {
			p.Ticket = now.UnixMicro()
		}
		switch {
		case !due:
			return p.reserve(lock, now, q.Without(p.ID))
		case p.ID != first.ID:
			rest = rest.with(p)
		}
	}
	if first.Channel == "" && !due {
		return Place{}.reserve(lock, now, q)
	}
	return first.reserve(lock, now, rest)
}

// Withdraw returns the update of a row when the waiter with the given ID gives up. The row does not
// change if the waiter is not in the queue and the row is not reserved for the waiter.
func Withdraw(r Row, id string, now time.Time) RowUpdate {
	switch p, reserved := r.reservedFor(); {
	case r.Lock == nil || id == "":
		return RowUpdate{}
	case reserved && p.ID == id:
		return End(*r.Lock, r.Queue.Without(id), driver.Waiter{}, now)
	}
	if _, waits := r.Queue.find(id); !waits {
		return RowUpdate{}
	}
	q := r.Queue.Without(id)
	if len(q) == 0 && r.Lock.Reserved() && r.Nonce == "" {
		return RowUpdate{Action: Delete} // it was reserved for nobody, and has no waiters left
	}
	return RowUpdate{Action: SetQueue, Queue: q}
}
