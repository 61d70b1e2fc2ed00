// Package rules holds the decisions of the protocol as pure functions: rows in, verdict out. A
// driver reads rows in a transaction, calls this package, and writes the verdict. The rules are
// those of docs/PROTOCOL.md.
//
//   - adopt.go: has this request been carried out already?
//   - frozen.go: may any ref of the project be moved?
//   - free.go: do the existing locks allow the request?
//   - mismatch.go: do the refs hold the expected values?
//   - names.go: can git store the refs that the request creates?
//   - fence.go: is the lock that the request needs still held?
//   - packs.go: may a part be stored, may packs be used?
//   - recover.go: what is the outcome of lost changes, and which server is admitted?
//   - requests.go: whole requests, which combine these.
//
// Package queue decides which waiter gets a lock next.
package rules

import (
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/queue"
)

// A Row contains the rows of one ref in all tables.
type Row struct {
	Name  string
	Ref   *driver.Ref      // nil if the ref is unknown
	Lock  *driver.LockInfo // nil if there is none
	Nonce string           // of the request that took the lock; "" if not recorded
	Queue queue.Queue      // of the waiters for the lock
}

// queueRow converts r for package queue.
func (r Row) queueRow(c Claim) queue.Row {
	if r.Lock == nil {
		return queue.Row{}
	}
	return queue.Row{Lock: r.Lock, Nonce: r.Nonce, Queue: r.Queue, Ours: c.Took(r)}
}

// RefsOf returns the refs of updates.
func RefsOf(updates []driver.Update) []string {
	refs := make([]string, len(updates))
	for i, u := range updates {
		refs[i] = u.Ref
	}
	return refs
}

// Locks returns the locks in rows.
func Locks(rows []Row) (locks []driver.LockInfo) {
	for _, r := range rows {
		if r.Lock != nil {
			locks = append(locks, *r.Lock)
		}
	}
	return locks
}

// Refs returns the refs in rows.
func Refs(rows []Row) (refs []driver.Ref) {
	for _, r := range rows {
		if r.Ref != nil {
			refs = append(refs, *r.Ref)
		}
	}
	return refs
}

// States returns the states of those refs in rows that have a row or a lock.
func States(rows []Row) (states []driver.State) {
	for _, r := range rows {
		if r.Ref == nil && r.Lock == nil {
			continue
		}
		s := driver.State{Ref: r.Name, Lock: r.Lock}
		if r.Ref != nil {
			s.Value = r.Ref.Value
		}
		states = append(states, s)
	}
	return states
}

// A Kind is the purpose of a lock.
type Kind int

const (
	Lease  Kind = iota // work that lasts as long as the lock is renewed
	Intent             // a recorded intent, until that is ended
)

// KindOf returns the kind of a lock.
func KindOf(l driver.LockInfo) Kind {
	if l.Intended() {
		return Intent
	}
	return Lease
}
