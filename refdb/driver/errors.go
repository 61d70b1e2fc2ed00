package driver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

var (
	// ErrNotAdmitted: the database's server has changed, and not all witnesses have compared the
	// new server yet. Nothing was written. The error ends once they have.
	ErrNotAdmitted = fmt.Errorf("%w: its server was restarted or replaced, and not all sites have compared it yet", ErrUnavailable)
	// ErrLostChanges: the database went back in time. It refuses all writes until an operator has
	// recovered it.
	ErrLostChanges = errors.New("the database has lost acknowledged changes; run `refdbctl recover`")
)

// The errors of this package wrap one of these sentinels; errors.Is finds them.
var (
	// ErrLocked: a fresh lock stands on a ref. The details are a *LockedError.
	ErrLocked = errors.New("ref is locked")
	// ErrMismatch: a ref does not hold the expected value, or a project's row does not have the
	// expected revision; nothing was written. The details are a *MismatchError or a
	// *ProjectChangedError.
	ErrMismatch = errors.New("ref does not hold the expected value")
	// ErrNameConflict: git can't store a ref that the request creates beside an existing ref;
	// nothing was written. The details are a *NameConflictError.
	ErrNameConflict = errors.New("ref excluded by the name of another one")
	// ErrFrozen: the project is frozen, so none of its refs may be moved; nothing was written. The
	// details are a *FrozenError.
	ErrFrozen = errors.New("project is frozen")
	// ErrLockLost: the lock is no longer held; nothing was written. The
	// details are a *LostError.
	ErrLockLost = errors.New("lock lost")
	// ErrReleased: the lock was released by its own holder.
	ErrReleased = errors.New("lock already released")
	// ErrOutcomeUnknown: the request may or may not have been carried out. Read the database before
	// repeating the request.
	ErrOutcomeUnknown = errors.New("outcome unknown")
	// ErrUnconfirmed wraps ErrOutcomeUnknown, and reading does not resolve it: the request was
	// carried out and is visible, but the database may lose it in a failover.
	ErrUnconfirmed = fmt.Errorf("%w: not confirmed by a standby", ErrOutcomeUnknown)
	// ErrUnavailable: the database did not carry out the request; a retry may succeed.
	ErrUnavailable = errors.New("database unavailable")
	// ErrInvalid: a name, value or option is refused without a request to the database.
	ErrInvalid = errors.New("invalid")
	// ErrTooMany: the request exceeds a limit: [MaxUpdateRefs], [MaxLockRefs], [MaxPackPart], or
	// the size of one commit in the database.
	ErrTooMany = errors.New("request too large")
	// ErrSchema: the database's schema is missing, is older or newer than this program supports, or
	// was left incomplete by a failed migration.
	ErrSchema = errors.New("database schema does not fit")
	// ErrUnrecorded: a program that keeps no history changed a ref, so that the ref's earlier
	// values are unknown.
	ErrUnrecorded = errors.New("a program that keeps no history changed the ref")
	// ErrCredentials: the database's server refused the user, the password or the certificate of
	// the address.
	ErrCredentials = errors.New("the server refused the credentials")
	// ErrClosed: the DB was closed.
	ErrClosed = errors.New("database closed")
)

// A LockedError lists the locks that prevented a request. It wraps [ErrLocked].
type LockedError struct {
	// Holders are all locks found on the requested refs, including stale locks, in the order of
	// their refs. For an advisory update they are only the locks of intents. At least one of them
	// is fresh, unless Queued. Where names are checked, as with refdb.GitNames, Holders may also be
	// on other refs, whose names exclude requested refs.
	Holders []LockInfo
	// Queued says that the caller gave up waiting while other callers of refdb.DB.Lock in this
	// process were ahead of it for some of the refs. Holders are then the locks that refused those
	// callers.
	Queued bool
}

func (e *LockedError) Error() string {
	var fresh []string
	for _, h := range e.Holders {
		switch {
		case h.Stale():
		case h.Reserved():
			fresh = append(fresh, fmt.Sprintf("%s %s kept for %s, which waits", h.Project, h.Ref, strings.TrimSuffix(h.Owner, reserved)))
		default:
			fresh = append(fresh, fmt.Sprintf("%s %s by %s (last beat %s ago)",
				h.Project, h.Ref, h.Owner, h.Age.Round(time.Millisecond)))
		}
	}
	if e.Queued {
		return Enumerate(ErrLocked.Error(), fresh) + "; other callers of this process wait ahead"
	}
	return Enumerate(ErrLocked.Error(), fresh)
}

func (e *LockedError) Unwrap() error { return ErrLocked }

// A Mismatch is a ref that did not hold the value that the update expected.
type Mismatch struct {
	Ref  string
	Want Value // what the update expected: its Old
	Have Value // what the ref holds; Unknown or a zero ID if it is absent
}

// A MismatchError lists every ref that did not hold its expected value. It wraps [ErrMismatch].
type MismatchError struct {
	Project    string
	Mismatches []Mismatch // in the order of their refs
}

func (e *MismatchError) Error() string {
	var all []string
	for _, m := range e.Mismatches {
		all = append(all, fmt.Sprintf("%s %s: expected %s, holds %s", e.Project, m.Ref, m.Want.describe(), m.Have.describe()))
	}
	return Enumerate(ErrMismatch.Error(), all)
}

func (e *MismatchError) Unwrap() error { return ErrMismatch }

// A NameConflict is a ref that the request creates, and a ref that git can't store beside it.
type NameConflict struct {
	Ref  string
	With string // the first such ref that holds a value, or to which the same request gives a value
}

// A NameConflictError lists every ref that could not be created. It wraps [ErrNameConflict].
type NameConflictError struct {
	Project   string
	Conflicts []NameConflict // in the order of their refs
}

func (e *NameConflictError) Error() string {
	var all []string
	for _, c := range e.Conflicts {
		all = append(all, fmt.Sprintf("%s %s: git can't store it beside %s", e.Project, c.Ref, c.With))
	}
	return Enumerate(ErrNameConflict.Error(), all)
}

func (e *NameConflictError) Unwrap() error { return ErrNameConflict }

// A FrozenError names a frozen project, with the details of its freeze. It wraps [ErrFrozen].
type FrozenError struct {
	Project string
	Freeze  Freeze
}

func (e *FrozenError) Error() string {
	return "the project " + e.Project + " is frozen: " + e.Freeze.String()
}

func (e *FrozenError) Unwrap() error { return ErrFrozen }

// A LostError lists the refs of a lock that are no longer held. It wraps [ErrLockLost].
type LostError struct {
	Project string
	Refs    []string // the refs known to be lost; if one is lost, so is the whole lock
	Reason  string   // the cause, for display
}

func (e *LostError) Error() string {
	var all []string
	for _, ref := range e.Refs {
		all = append(all, e.Project+" "+ref)
	}
	msg := Enumerate(ErrLockLost.Error(), all)
	if e.Reason != "" {
		msg += " (" + e.Reason + ")"
	}
	return msg
}

func (e *LostError) Unwrap() error { return ErrLockLost }

// Enumerate appends the first few items to what, so that an error about 10,000 refs stays readable.
func Enumerate(what string, items []string) string {
	const most = 5
	if len(items) == 0 {
		return what
	}
	if n := len(items); n > most {
		items = append(items[:most:most], fmt.Sprintf("and %d more", n-most))
	}
	return what + ": " + strings.Join(items, "; ")
}

// A Class tells a caller how to react to an error.
type Class int

const (
	// ClassNone is the class of a nil error.
	ClassNone Class = iota
	// Retryable: the same caller may retry, within its lease.
	Retryable
	// Permanent: retrying is useless until something outside the request has changed.
	Permanent
	// StaleOwner: the caller no longer holds the lock. It must stop, and leave its work to the new
	// owner.
	StaleOwner
	// OutcomeUnknown: the request may have been carried out. Read the database, then decide.
	OutcomeUnknown
)

// String returns the name of the class, for logs.
func (c Class) String() string {
	return [...]string{"none", "retryable", "permanent", "stale-owner", "outcome-unknown"}[c]
}

// ClassOf returns the class of an error that package refdb or a driver returned. If several classes
// apply, it returns the first of OutcomeUnknown, StaleOwner, Retryable and Permanent: an update
// whose reply was lost together with its lock is OutcomeUnknown.
func ClassOf(err error) Class {
	switch {
	case err == nil:
		return ClassNone
	case errors.Is(err, ErrOutcomeUnknown):
		return OutcomeUnknown
	case errors.Is(err, ErrLockLost), errors.Is(err, ErrReleased):
		return StaleOwner
	case errors.Is(err, ErrLocked), errors.Is(err, ErrUnavailable),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return Retryable
	default:
		return Permanent
	}
}

var (
	// ErrPruned: the history does not reach back that far, because it was pruned or began later.
	ErrPruned = errors.New("the history does not go back that far")
	// ErrRewound: the changes that were read before are no longer part of the database's history.
	// The database was restored to an earlier state, or it is another database.
	ErrRewound = errors.New("the database's history is not the one that was read")
)

// ErrNoPack: the pack is not in the database, or is incomplete: it was never completed, or was
// dropped.
var ErrNoPack = errors.New("the pack is not in the database")

// A ProjectChangedError reports that a project's row does not have the expected revision. It wraps
// [ErrMismatch].
type ProjectChangedError struct {
	Project string
	Want    int64 // the revision that was expected; 0 for no row
	Have    int64
}

func (e *ProjectChangedError) Error() string {
	if e.Have == 0 {
		return fmt.Sprintf("project %s: not in the database", e.Project)
	}
	return fmt.Sprintf("project %s was changed meanwhile: revision %d instead of %d", e.Project, e.Have, e.Want)
}

func (e *ProjectChangedError) Unwrap() error { return ErrMismatch }
