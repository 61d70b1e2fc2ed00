package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/grants"
)

// A GrantRequest asks for a lease on behalf of a client of a service, which keeps no state: see package
// grants. The rows are those of [Acquire], so that clients of the service and processes exclude each other.
type GrantRequest struct {
	Project, Name string
	Mode          Mode
	// Owner is the client's, for a single acquisition: every request with this owner and these other
	// fields is a repeat of that acquisition, whichever process makes it.
	Owner string
	// Row is the last part of the name of the acquisition's row: letters and digits that no other
	// acquisition has.
	Row string
	// StaleAfter is how long the row stands unless it is extended, whether the client holds the lease
	// or waits for it.
	StaleAfter time.Duration
	// Queue: if conflicting leases were asked for before, the row stays, as a place in the order of tickets,
	// which a repeat extends.
	Queue bool
}

// Grant acquires a lease, without waiting. The grant is on the row of the lease, and lasts, is extended and is
// released as any other; a write under it needs refdb.AnyRef. If an earlier request of the owner acquired the
// lease, or has a place in the queue, Grant extends that row first, and existing is true.
//
// While conflicting leases are ahead, the error is a [*refdb.LockedError] that names them. It is one, too,
// while another process has the entry lock: repeat the request soon. If the process ends during a request,
// the entry lock may stand for r.StaleAfter, and nobody else can acquire the lease before that.
//
// If the outcome is not known, the error wraps [refdb.ErrOutcomeUnknown], and a repeat tells.
func Grant(ctx context.Context, db *refdb.DB, r GrantRequest) (g grants.Grant, existing bool, err error) {
	q := request{db, r.Project, r.Name, r.Mode}
	if err := check(r.Project, r.Name, r.Mode); err != nil {
		return grants.Grant{}, false, q.failed(err)
	}
	g = grants.Grant{Project: r.Project, Refs: []string{prefixOf(r.Name) + r.Mode.String() + "-" + r.Row}, Owner: r.Owner}
	began := time.Now()
	switch existing, err = r.standing(ctx, db, &g); {
	case err != nil:
	case existing:
		if err = q.again(ctx, g); !errors.Is(err, refdb.ErrLockLost) {
			break
		}
		existing = false
		fallthrough
	default:
		err = q.enter(ctx, &g, r)
	}
	if errors.Is(err, refdb.ErrLockLost) {
		err = fmt.Errorf("%w: the row of the request was removed", refdb.ErrUnavailable)
	}
	if err == nil && time.Since(began) >= r.StaleAfter {
		err = fmt.Errorf("%w: the database took longer to answer than the lease lasts", refdb.ErrUnavailable)
	}
	return g, existing, q.failed(err)
}

// standing sets g.Token to that of the acquisition's row, if there is one. While the entry lock stands
// with the row, a process is still deciding about the acquisition, or has ended: it may yet remove the row.
func (r GrantRequest) standing(ctx context.Context, db *refdb.DB, g *grants.Grant) (bool, error) {
	entry := prefixOf(r.Name) + entryLock
	var turn, own *refdb.LockInfo
	for info, err := range db.Locks(ctx, refdb.LockFilter{Project: r.Project, Prefix: prefixOf(r.Name), Owner: r.Owner}) {
		switch {
		case err != nil:
			return false, err
		case info.Owner != r.Owner || info.Stale():
		case info.Ref == entry:
			turn = &info
		case info.Ref == g.Refs[0]:
			own = &info
		}
	}
	switch {
	case turn != nil:
		return false, &refdb.LockedError{Holders: []refdb.LockInfo{*turn}}
	case own == nil:
		return false, nil
	}
	g.Token = own.Token
	return true, nil
}

// again extends the row of an earlier request, which nothing but its owner removes any more. The error is
// a *refdb.LockedError if it has to wait still.
func (r request) again(ctx context.Context, g grants.Grant) error {
	now, err := r.look(ctx, place{g.Refs[0], g.Owner, g.Token})
	if err == nil {
		err = r.db.Grants().Extend(ctx, g)
	}
	switch {
	case err != nil:
		return err
	case len(now.conflicting) > 0:
		return &refdb.LockedError{Holders: now.conflicting}
	}
	return nil
}

// enter takes the entry lock and a row, and sets g.Token. It decides while it has the entry lock: nobody sees
// a row that it removes.
func (r request) enter(ctx context.Context, g *grants.Grant, q GrantRequest) error {
	entry := prefixOf(r.name) + entryLock
	both, err := r.db.Grants().Acquire(ctx, q.Owner, q.StaleAfter, r.project, entry, g.Refs[0])
	if err != nil {
		return err
	}
	g.Token = both.Token
	now, err := r.look(ctx, place{g.Refs[0], g.Owner, g.Token})
	ended := both.Grant
	if err == nil && (len(now.conflicting) == 0 || q.Queue) {
		ended.Refs = []string{entry}
	}
	switch release := r.db.Grants().Release(ctx, ended); {
	case err != nil:
		return err
	case release != nil && len(now.conflicting) == 0:
		return fmt.Errorf("%w: %w", refdb.ErrOutcomeUnknown, release)
	case len(now.conflicting) > 0:
		return &refdb.LockedError{Holders: now.conflicting}
	}
	return nil
}
