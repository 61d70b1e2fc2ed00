package queue

import (
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// A Row is what the table of locks holds about a ref.
type Row struct {
	Lock  *driver.LockInfo // nil if there is no row; then the rest is zero
	Nonce string
	Queue Queue
	// Ours says that the same request took the lock before, and its reply was lost.
	Ours bool
}

// reservedFor returns the waiter that the row is reserved for, if it is a reservation for one.
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

// An Action is what is done to a row.
type Action int

const (
	Keep     Action = iota
	SetQueue        // another queue is written
	Reserve         // it becomes a reservation, with another queue
	Delete
)

// A RowUpdate is a row as a decision leaves it. Action says what is to be written.
type RowUpdate struct {
	Action Action
	Lock   driver.LockInfo // the reservation
	Nonce  string          // of the reservation: its waiter's place; "" if it is for nobody, and anybody may take it
	Queue  Queue
}

// reserve makes a lock that ended a reservation for p, from now on. The token stays. For the zero
// Place it is a reservation for nobody, which is stale.
//
// The heartbeat lies so far back that the reservation is stale by the default stale-after once the
// turn is over. Gerrit's plugin, when it takes the row over, sets heartbeat, token and owner
// alone: what it leaves must be right for its lock.
func (p Place) reserve(ended driver.LockInfo, now time.Time, q Queue) RowUpdate {
	a := RowUpdate{Action: Reserve, Lock: ended, Queue: q}
	a.Lock.Owner, a.Lock.StaleAfter, a.Lock.Heartbeat = driver.ReservedFor(p.Owner), driver.DefaultStaleAfter, time.UnixMicro(0)
	if p.ID != "" {
		a.Nonce, a.Lock.Heartbeat = p.String(), now.Add(p.Turn-driver.DefaultStaleAfter)
	}
	a.Lock.Age = now.Sub(a.Lock.Heartbeat)
	return a
}

// Purge says what becomes of a row that is purged. A reservation is deleted with its queue:
// otherwise an operator would need as many purges as waiters have died. Waiters that live come
// back.
func Purge(lock driver.LockInfo, q Queue, now time.Time) RowUpdate {
	if lock.Reserved() {
		return RowUpdate{Action: Delete}
	}
	return End(lock, q, driver.Waiter{}, now)
}

// Pass says what becomes of a row that an update passes: its lock is stale, or its turn is over. A
// row that is reserved for nobody stays as it is, because anybody may take it already.
func Pass(r Row, now time.Time) RowUpdate {
	if r.Lock.Reserved() && r.Nonce == "" && len(r.Queue) > 0 {
		return RowUpdate{}
	}
	return End(*r.Lock, r.Queue, driver.Waiter{}, now)
}

// End says what becomes of the row of a lock that ends. It is reserved for next, a waiter of the
// lock's owner, or else for the first in the queue. If the first one polls, the row is reserved for
// nobody until a waiter was passed too often: until then any request may take the lock. If next
// does not get the lock, it waits with the others. A row with an empty queue is deleted.
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

// Withdraw says what becomes of a row when a waiter gives up. Nothing changes if it is
// not in the queue and the row is not reserved for it.
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
		return RowUpdate{Action: Delete} // it was reserved for nobody, and nobody waits
	}
	return RowUpdate{Action: SetQueue, Queue: q}
}
