// Package locking acquires the lock or lease under which a command runs, and describes it in the
// command's environment.
package locking

import (
	"context"
	"slices"
	"strconv"

	"github.com/globalrefdb/globalrefdb/lease"
	"github.com/globalrefdb/globalrefdb/refdb"
)

// A Hold is a lock or a lease that is held.
type Hold interface {
	Project() string
	Refs() []string
	Owner() string
	Token() refdb.Token
	Done() <-chan struct{}
	Err() error
	Release(context.Context) error
}

// A Request requests a hold. Try fails with a *refdb.LockedError where Wait waits.
type Request interface {
	Try(context.Context, *refdb.DB) (Hold, error)
	Wait(context.Context, *refdb.DB) (Hold, error)
}

// Locks requests the lock on refs.
type Locks struct {
	Project string
	Refs    []string
}

// Try is refdb.DB.TryLock.
func (r Locks) Try(ctx context.Context, db *refdb.DB) (Hold, error) {
	return orNone(db.TryLock(ctx, r.Project, r.Refs...))
}

// Wait is refdb.DB.Lock.
func (r Locks) Wait(ctx context.Context, db *refdb.DB) (Hold, error) {
	return orNone(db.Lock(ctx, r.Project, r.Refs...))
}

// Lease requests a lease.
type Lease struct {
	Project, Name string
	Mode          lease.Mode
	// Under are the names of the holds that the caller runs under. If the lease is among them, the
	// request is refused in either mode: with another waiter in between, the caller would deadlock.
	Under []string
}

// Try is lease.TryAcquire.
func (r Lease) Try(ctx context.Context, db *refdb.DB) (Hold, error) {
	if len(r.Under) > 0 {
		rows, err := lease.Rows(ctx, db, r.Project, r.Name)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			if slices.Contains(r.Under, Name(row.Owner, row.Token)) {
				return nil, &refdb.LockedError{Holders: []refdb.LockInfo{row.LockInfo}}
			}
		}
	}
	return held(lease.TryAcquire(ctx, db, r.Project, r.Name, r.Mode))
}

// Wait is lease.Acquire.
func (r Lease) Wait(ctx context.Context, db *refdb.DB) (Hold, error) {
	return held(lease.Acquire(ctx, db, r.Project, r.Name, r.Mode))
}

// Name returns a name of a hold that is unique forever.
func Name(owner string, token refdb.Token) string {
	return owner + " " + strconv.FormatInt(int64(token), 10)
}

// orNone keeps a nil *refdb.Lock from becoming a Hold.
func orNone(l *refdb.Lock, err error) (Hold, error) {
	if err != nil {
		return nil, err
	}
	return l, nil
}

func held(l *lease.Lease, err error) (Hold, error) {
	if err != nil {
		return nil, err
	}
	return leaseHold{l}, nil
}

// A leaseHold is the lock on the lease's row.
type leaseHold struct{ *lease.Lease }

func (l leaseHold) Refs() []string     { return []string{l.Ref()} }
func (l leaseHold) Token() refdb.Token { return l.Ticket() }
