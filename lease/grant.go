package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/grants"
)

// A GrantRequest requests a lease on behalf of a client of a service that keeps no state: see
// package grants. The rows are those of [Acquire], so that clients of the service and processes
// exclude each other.
type GrantRequest struct {
	Project, Name string
	Mode          Mode
	// Owner is a name that the client uses for a single acquisition: every request with this owner
	// and the same other fields is a repeat of that acquisition, whichever process makes it.
	Owner string
	// Row is the last part of the name of the acquisition's row: letters and digits that no other
	// acquisition has.
	Row string
	// StaleAfter is how long the row lasts unless it is extended, whether the client holds the
	// lease or waits for it.
	StaleAfter time.Duration
	// Queue says that the row stays if conflicting leases were requested earlier: it is then a
	// place in the order of tickets, which a repeat extends. The row does not stay behind maxRows
	// others.
	Queue bool
}

const (
	// maxRows limits the rows of a lease with a queue of clients, because each look of a waiter
	// lists all of them.
	maxRows = 100
	// releaseLimit limits the time for the release of a request's locks, whether or not its context
	// has ended.
	releaseLimit = 5 * time.Second
)

// Grant acquires a lease, without waiting. The grant is on the row of the lease, and lasts, is
// extended and is released like any other grant; a write under it requires refdb.AnyRef. If an
// earlier request of the owner acquired the lease, or has a place in the queue, Grant extends that
// row first, and existing is true.
//
// While conflicting leases are ahead, the error is a [*refdb.LockedError] that names them. The
// error has the same type while another process has the entry lock: repeat the request soon. If the
// process ends during a request, the entry lock may remain for r.StaleAfter, and no other owner can
// acquire the lease before that.
//
// If the request may have left a row, or the owner may have the lease without a known end, the
// error wraps [refdb.ErrOutcomeUnknown], and a repeat determines the outcome. After all other
// errors the owner has no more than before.
func Grant(ctx context.Context, db *refdb.DB, r GrantRequest) (g grants.Grant, existing bool, err error) {
	q := request{db, r.Project, r.Name, r.Mode}
	if err := check(r.Project, r.Name, r.Mode); err != nil {
		return grants.Grant{}, false, q.failed(err)
	}
	g = grants.Grant{Project: r.Project, Refs: []string{prefixOf(r.Name) + r.Mode.String() + "-" + r.Row}, Owner: r.Owner}
	began := time.Now()
	own, err := r.standing(ctx, db, &g)
	existing = own != nil
	if err == nil && existing {
		if err = q.again(ctx, g, own.Age < r.StaleAfter/3); errors.Is(err, refdb.ErrLockLost) {
			existing = false
		}
	}
	if !existing && (err == nil || errors.Is(err, refdb.ErrLockLost)) {
		err = q.enter(ctx, &g, r)
	}
	switch {
	case errors.Is(err, refdb.ErrOutcomeUnknown):
	case errors.Is(err, refdb.ErrLockLost):
		err = fmt.Errorf("%w: the row of the request was removed", refdb.ErrUnavailable)
	case err == nil && time.Since(began) >= r.StaleAfter:
		err = fmt.Errorf("%w: the database took longer to answer than the lease lasts", refdb.ErrOutcomeUnknown)
	}
	return g, existing, q.failed(err)
}

// standing returns the acquisition's row, if there is one, and sets g.Token to the row's. While the
// acquisition also has the entry lock, a process is still deciding about the acquisition and may
// yet remove the row, or the process has ended.
func (r GrantRequest) standing(ctx context.Context, db *refdb.DB, g *grants.Grant) (own *refdb.LockInfo, err error) {
	entry := prefixOf(r.Name) + entryLock
	var turn *refdb.LockInfo
	for info, err := range db.Locks(ctx, refdb.LockFilter{Project: r.Project, Prefix: prefixOf(r.Name), Owner: r.Owner}) {
		switch {
		case err != nil:
			return nil, err
		case info.Owner != r.Owner || info.Stale():
		case info.Ref == entry:
			turn = &info
		case info.Ref == g.Refs[0]:
			own = &info
		}
	}
	switch {
	case turn != nil:
		return nil, &refdb.LockedError{Holders: []refdb.LockInfo{*turn}}
	case own != nil:
		g.Token = own.Token
	}
	return own, nil
}

// again extends the row of an earlier request, which only its owner removes from now on. The error
// is a *refdb.LockedError if the request still has to wait; then a recent row is not extended.
func (r request) again(ctx context.Context, g grants.Grant, recent bool) error {
	now, err := r.look(ctx, place{g.Refs[0], g.Owner, g.Token})
	if err != nil {
		return err
	}
	waits := len(now.conflicting) > 0
	if !waits || !recent {
		err = r.db.Grants().Extend(ctx, g)
	}
	switch {
	case waits && err == nil:
		return &refdb.LockedError{Holders: now.conflicting}
	case err == nil || waits || errors.Is(err, refdb.ErrLockLost):
		return err
	}
	return fmt.Errorf("%w: the lease is the owner's, but could not be extended: %w", refdb.ErrOutcomeUnknown, err)
}

// enter takes the entry lock and a row, and sets g.Token. It decides while it has the entry lock,
// so that no other request sees a row that enter removes.
func (r request) enter(ctx context.Context, g *grants.Grant, q GrantRequest) error {
	entry := prefixOf(r.name) + entryLock
	both, err := r.db.Grants().Acquire(ctx, q.Owner, q.StaleAfter, r.project, entry, g.Refs[0])
	if err != nil {
		return err
	}
	g.Token = both.Token
	now, err := r.look(ctx, place{g.Refs[0], g.Owner, g.Token})
	refused := err == nil && len(now.conflicting) > 0
	stays := err == nil && (!refused || q.Queue && now.rows < maxRows)
	ended := both.Grant
	if stays {
		ended.Refs = []string{entry}
	}
	lasting, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
	defer cancel()
	release := r.db.Grants().Release(lasting, ended)
	if errors.Is(release, refdb.ErrLockLost) && !errors.Is(release, refdb.ErrOutcomeUnknown) && !stays {
		release = nil // neither lock exists
	}
	switch {
	case release != nil:
		return fmt.Errorf("%w: %w", refdb.ErrOutcomeUnknown, errors.Join(err, release))
	case refused:
		return &refdb.LockedError{Holders: now.conflicting}
	}
	return err
}
