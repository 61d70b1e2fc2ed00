package lease

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	// A waiter polls at intervals of at most pauseStep for each row ahead of it, and at most
	// pauseMax: the next waiter polls often, waiters far behind seldom.
	pauseStep = 40 * time.Millisecond
	pauseMax  = 250 * time.Millisecond

	// tryEntryLimit is how long TryAcquire waits for the entry lock, which other requests hold for
	// a round trip or two.
	tryEntryLimit = 2 * time.Second
)

// Acquire acquires a lease of a project. It waits for all conflicting leases of that name that were
// requested earlier. The name is any text of 1 to [MaxNameBytes] bytes.
//
// Acquire gives up when ctx ends. Then, or if the database can't be reached, it leaves no row for
// which others would wait longer than until the row is stale. The error wraps ctx's and, if leases
// or locks refused the request, a [*refdb.LockedError] that names them. [refdb.Options].MaxWait
// limits only the wait for the entry lock, not the wait for the lease.
//
// A process that loses its place while it waits, because it was frozen or disconnected, starts
// over.
func Acquire(ctx context.Context, db *refdb.DB, project, name string, mode Mode) (*Lease, error) {
	r := request{db, project, name, mode}
	l, err := r.acquire(ctx, func(l *Lease, entry string) error {
		if err := l.lock.ReleaseRefs(ctx, entry); err != nil {
			return err
		}
		return r.await(ctx, l)
	}, func(refs ...string) (*refdb.Lock, error) { return db.Lock(ctx, project, refs...) })
	return l, r.failed(err)
}

// TryAcquire is [Acquire] without the wait: if conflicting leases are held or awaited, the error is
// a [*refdb.LockedError] that names them, and no other request waits because of the attempt.
// TryAcquire waits only for the entry lock, at most two seconds.
func TryAcquire(ctx context.Context, db *refdb.DB, project, name string, mode Mode) (*Lease, error) {
	r := request{db, project, name, mode}
	l, err := r.acquire(ctx, func(l *Lease, entry string) error {
		// No other request reads the rows before the entry lock is released, so none sees a row
		// that is withdrawn.
		ahead, err := r.look(ctx, l.place())
		if err != nil {
			return err
		}
		if len(ahead.conflicting) > 0 {
			return &refdb.LockedError{Holders: ahead.conflicting}
		}
		return l.lock.ReleaseRefs(ctx, entry)
	}, func(refs ...string) (*refdb.Lock, error) { return r.tryLock(ctx, refs) })
	return l, r.failed(err)
}

// A request is a request for a lease.
type request struct {
	db            *refdb.DB
	project, name string
	mode          Mode
}

func (r request) failed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("acquiring the %s lease %q of %s: %w", r.mode, r.name, r.project, err)
}

// acquire takes the entry lock and a row of its own, in one transaction, and the lease if admit
// returns nil. It starts over if the row or the entry lock is lost.
//
// The entry lock orders tickets: a row with a smaller ticket was written before that lock changed
// hands, so a process that has held the lock sees the row when it reads afterwards.
func (r request) acquire(ctx context.Context, admit func(l *Lease, entry string) error, lock func(refs ...string) (*refdb.Lock, error)) (*Lease, error) {
	if err := check(r.project, r.name, r.mode); err != nil {
		return nil, err
	}
	prefix := prefixOf(r.name)
	for {
		ref := prefix + r.mode.String() + "-" + rand.Text()
		held, err := lock(prefix+entryLock, ref)
		if err != nil {
			return nil, err
		}
		l := &Lease{lock: held, name: r.name, ref: ref, mode: r.mode}
		if err = admit(l, prefix+entryLock); err == nil {
			err = l.Err()
		}
		if err == nil {
			return l, nil
		}
		// Release also ends the remaining rows of a lost lock. If it fails, it continues in the
		// background.
		_ = held.Release(ctx)
		if !errors.Is(err, refdb.ErrLockLost) || ctx.Err() != nil {
			return nil, err
		}
	}
}

// tryLock is Lock with a short wait limit.
func (r request) tryLock(ctx context.Context, refs []string) (*refdb.Lock, error) {
	limited, cancel := context.WithTimeout(ctx, tryEntryLimit)
	defer cancel()
	lock, err := r.db.Lock(limited, r.project, refs...)
	if err == nil || limited.Err() == nil || ctx.Err() != nil {
		return lock, err
	}
	if locked := new(refdb.LockedError); errors.As(err, &locked) {
		return nil, locked
	}
	return nil, fmt.Errorf("%w: no answer within %s", refdb.ErrUnavailable, tryEntryLimit)
}

// ahead contains the rows with smaller tickets than that of a request.
type ahead struct {
	conflicting []refdb.LockInfo // the rows that the request waits for
	rows        int              // of either mode
}

// await waits until no row ahead of l has a conflicting mode. A short outage does not end the wait;
// in a longer one l is lost.
func (r request) await(ctx context.Context, l *Lease) error {
	var before ahead
	for {
		now, err := r.look(ctx, l.place())
		switch {
		case ctx.Err() != nil:
			return r.gaveUp(ctx, before)
		case err == nil && len(now.conflicting) == 0:
			return nil
		case err == nil:
			before = now
		case !errors.Is(err, refdb.ErrUnavailable):
			return err
		}
		timer := time.NewTimer(pause(before.rows))
		select {
		case <-timer.C:
		case <-ctx.Done():
		case <-l.Done():
		}
		timer.Stop()
		if err := l.Err(); err != nil {
			return err
		}
	}
}

// gaveUp returns the error of a waiter whose context ended.
func (r request) gaveUp(ctx context.Context, last ahead) error {
	if len(last.conflicting) == 0 {
		return ctx.Err()
	}
	return fmt.Errorf("%w: %w", ctx.Err(), &refdb.LockedError{Holders: last.conflicting})
}

// pause returns the polling interval of a waiter with the given number of rows ahead of it.
func pause(rows int) time.Duration {
	longest := min(time.Duration(max(rows, 1))*pauseStep, pauseMax)
	return longest/2 + mathrand.N(longest/2)
}

// A place is the row of a request.
type place struct {
	ref, owner string
	ticket     refdb.Token
}

// place returns the row of l.
func (l *Lease) place() place { return place{l.ref, l.Owner(), l.Ticket()} }

// look returns the rows ahead of p. It removes stale rows of either mode, whose processes have
// died. The error wraps refdb.ErrLockLost if the row of p no longer exists.
func (r request) look(ctx context.Context, p place) (ahead, error) {
	rows, foreign, err := read(ctx, r.db, r.project, r.name)
	if err != nil {
		return ahead{}, err
	}
	if len(foreign) > 0 {
		return ahead{}, fmt.Errorf("%w: another program has a lock on a row of the lease: release that lock", &refdb.LockedError{Holders: foreign})
	}
	own := slices.IndexFunc(rows, func(row Row) bool { return row.Ref == p.ref && row.Token == p.ticket && row.Owner == p.owner })
	if own < 0 {
		return ahead{}, &refdb.LostError{Project: r.project, Refs: []string{p.ref}, Reason: "the database no longer has the lock, or another owner has it"}
	}
	var stale []refdb.LockInfo
	for i, row := range rows {
		if row.Stale() && i != own {
			stale = append(stale, row.LockInfo)
		}
	}
	earlier := rows[:own]
	if len(stale) > 0 {
		removed, err := r.db.Operator().Purge(ctx, stale)
		if errors.Is(err, refdb.ErrOutcomeUnknown) && ctx.Err() == nil {
			err = fmt.Errorf("%w: %v", refdb.ErrUnavailable, err) // the next look shows the outcome
		}
		if err != nil {
			return ahead{}, err
		}
		earlier = slices.DeleteFunc(slices.Clone(earlier), func(row Row) bool { return slices.Contains(removed, row.LockInfo) })
	}
	return ahead{predecessors(earlier, r.mode), len(earlier)}, nil
}
