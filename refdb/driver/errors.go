package driver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

var (
	// ErrNotAdmitted: the database's server is another than before, and not all witnesses have
	// compared it yet. Nothing was written. It passes once they have.
	ErrNotAdmitted = fmt.Errorf("%w: its server was restarted or replaced, and not all sites have compared it yet", ErrUnavailable)
	// ErrLostChanges: the database went back in time. Nothing is written until an operator has
	// recovered it.
	ErrLostChanges = errors.New("the database has lost acknowledged changes; run `refdbctl recover`")
)

// The errors of this package wrap one of these sentinels; errors.Is finds them.
var (
	// ErrLocked: a fresh lock stands on a ref. The details are a *LockedError.
	ErrLocked = errors.New("ref is locked")
	// ErrMismatch: a ref does not hold the expected value; nothing was
	// written. The details are a *MismatchError.
	ErrMismatch = errors.New("ref does not hold the expected value")
	// ErrNameConflict: git could not hold a ref that was to be created beside one that is
	// there; nothing was written. The details are a *NameConflictError.
	ErrNameConflict = errors.New("ref excluded by the name of another one")
	// ErrFrozen: no ref of the project may be moved; nothing was written. The details are a
	// *FrozenError.
	ErrFrozen = errors.New("project is frozen")
	// ErrLockLost: the lock is no longer held; nothing was written. The
	// details are a *LostError.
	ErrLockLost = errors.New("lock lost")
	// ErrReleased: the lock was released by its own holder.
	ErrReleased = errors.New("lock already released")
	// ErrOutcomeUnknown: the request may or may not have been carried out. Read
	// the database before doing it again.
	ErrOutcomeUnknown = errors.New("outcome unknown")
	// ErrUnconfirmed is an ErrOutcomeUnknown that reading doesn't resolve: the
	// database shows the request carried out, but may lose it in a failover.
	ErrUnconfirmed = fmt.Errorf("%w: not confirmed by a standby", ErrOutcomeUnknown)
	// ErrUnavailable: the database did not carry out the request; it may if the
	// request is made again.
	ErrUnavailable = errors.New("database unavailable")
	// ErrInvalid: a name, value or option is refused without a request to the database.
	ErrInvalid = errors.New("invalid")
	// ErrTooMany: the request exceeds a limit: [MaxUpdateRefs], [MaxLockRefs], [MaxPackPart], or
	// what one commit of the database takes.
	ErrTooMany = errors.New("request too large")
	// ErrSchema: the database's schema is missing, older or newer than this
	// program's, or left half-way by a migration that failed.
	ErrSchema = errors.New("database schema does not fit")
	// ErrUnrecorded: a ref was changed by a program that keeps no history, so that what it held
	// before can't be told.
	ErrUnrecorded = errors.New("a program that keeps no history changed the ref")
	// ErrCredentials: the database's server has refused the user, the password or the certificate of
	// the address.
	ErrCredentials = errors.New("the server refused the credentials")
	// ErrClosed: the DB was closed.
	ErrClosed = errors.New("database closed")
)

// A LockedError says which locks stand in the way. It wraps [ErrLocked].
type LockedError struct {
	// Holders are all the locks found on the requested refs, stale ones too, in
	// the order of their refs. For an advisory update they are only those that
	// stand for an intent. At least one is fresh, unless Queued. Where names are judged,
	// as by refdb.GitNames, they may be on other refs, whose names exclude requested ones.
	Holders []LockInfo
	// Queued: the caller gave up waiting while other callers of refdb.DB.Lock in this
	// process were ahead of it for some of the refs. Holders are the locks by
	// which those others were refused.
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

// A Mismatch is a ref that did not hold what the update expected.
type Mismatch struct {
	Ref  string
	Want Value // what the update expected: its Old
	Have Value // what the ref holds; Unknown or a zero ID if it is absent
}

// A MismatchError names every ref that differed. It wraps [ErrMismatch].
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

// A NameConflict is a ref that was to be created, and one that git could not hold beside it.
type NameConflict struct {
	Ref  string
	With string // the first of those that hold a value, or that the same request gives one
}

// A NameConflictError names every ref that could not be created. It wraps [ErrNameConflict].
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

// A FrozenError says who froze a project, and why. It wraps [ErrFrozen].
type FrozenError struct {
	Project string
	Freeze  Freeze
}

func (e *FrozenError) Error() string {
	return "the project " + e.Project + " is frozen: " + e.Freeze.String()
}

func (e *FrozenError) Unwrap() error { return ErrFrozen }

// A LostError says which refs of a lock are no longer held. It wraps [ErrLockLost].
type LostError struct {
	Project string
	Refs    []string // those known to be lost; losing one loses the whole lock
	Reason  string   // why, for people
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

// Enumerate joins the first few items, so that an error about 10,000 refs stays readable.
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

// A Class says what a caller can do about an error.
type Class int

const (
	// ClassNone is the class of a nil error.
	ClassNone Class = iota
	// Retryable: the same caller may try again, within its lease.
	Retryable
	// Permanent: something outside must change first.
	Permanent
	// StaleOwner: the caller no longer holds the lock. It must stop, and leave the
	// work to the new owner.
	StaleOwner
	// OutcomeUnknown: the request may have been carried out. Read, then decide.
	OutcomeUnknown
)

// String returns the name of the class, for logs.
func (c Class) String() string {
	return [...]string{"none", "retryable", "permanent", "stale-owner", "outcome-unknown"}[c]
}

// ClassOf returns the class of an error that package refdb or a driver returned. An error of
// several classes has the first of OutcomeUnknown, StaleOwner, Retryable and
// Permanent: an update whose reply was lost together with its lock is
// OutcomeUnknown.
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
	// ErrPruned: the history does not go back that far: it was pruned, or began later.
	ErrPruned = errors.New("the history does not go back that far")
	// ErrRewound: what was read before is not part of the database's history any more. The
	// database was put back to an earlier state, or it is another one.
	ErrRewound = errors.New("the database's history is not the one that was read")
)

// ErrNoPack: the database does not have the pack, or not all of it: it was never completed, or was
// dropped.
var ErrNoPack = errors.New("the pack is not in the database")

// A ProjectChangedError says that a project's row does not have the expected
// revision. It wraps [ErrMismatch].
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
