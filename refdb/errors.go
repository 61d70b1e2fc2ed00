package refdb

import "github.com/globalrefdb/globalrefdb/refdb/driver"

// The errors of this package wrap one of these sentinels; errors.Is finds them.
var (
	// ErrLocked: a fresh lock stands on a ref. The details are a *LockedError.
	ErrLocked = driver.ErrLocked
	// ErrMismatch: a ref does not hold the expected value; nothing was written. The details are a
	// *MismatchError.
	ErrMismatch = driver.ErrMismatch
	// ErrNameConflict: git could not hold a ref that was to be created beside one that is there;
	// nothing was written. The details are a *NameConflictError.
	ErrNameConflict = driver.ErrNameConflict
	// ErrFrozen: no ref of the project may be moved until an operator unfreezes it; nothing was
	// written. The details are a *FrozenError.
	ErrFrozen = driver.ErrFrozen
	// ErrLockLost: the lock is no longer held; nothing was written. The details are a *LostError.
	ErrLockLost = driver.ErrLockLost
	// ErrReleased: the lock was released by its own holder.
	ErrReleased = driver.ErrReleased
	// ErrOutcomeUnknown: the request may or may not have been carried out. Read the database before
	// doing it again.
	ErrOutcomeUnknown = driver.ErrOutcomeUnknown
	// ErrUnconfirmed is an ErrOutcomeUnknown that reading doesn't resolve: the database shows the
	// request carried out, but may lose it in a failover.
	ErrUnconfirmed = driver.ErrUnconfirmed
	// ErrUnavailable: the database did not carry out the request; it may if the request is made
	// again.
	ErrUnavailable = driver.ErrUnavailable
	// ErrNotAdmitted is an ErrUnavailable: the database's server is another than before, and not
	// all sites have compared it yet. Nothing was written.
	ErrNotAdmitted = driver.ErrNotAdmitted
	// ErrLostChanges: the database went back in time. Nothing is written until an operator has
	// recovered it.
	ErrLostChanges = driver.ErrLostChanges
	// ErrInvalid: a name, value or option is refused without a request to the database.
	ErrInvalid = driver.ErrInvalid
	// ErrTooMany: the request exceeds a limit, such as [MaxUpdateRefs], or what one commit of the
	// database takes.
	ErrTooMany = driver.ErrTooMany
	// ErrSchema: the database's schema is missing, older or newer than this program's, or left
	// half-way by a migration that failed.
	ErrSchema = driver.ErrSchema
	// ErrPruned: the history does not go back that far: it was pruned, or began later.
	ErrPruned = driver.ErrPruned
	// ErrRewound: what was read before is no longer part of the database's history. The database
	// was put back to an earlier state, or it is another one.
	ErrRewound = driver.ErrRewound
	// ErrClosed: the DB was closed.
	ErrClosed = driver.ErrClosed
)

// A LockedError says which locks stand in the way. It wraps [ErrLocked].
type LockedError = driver.LockedError

// A MismatchError names every ref that did not hold what the update expected. It wraps
// [ErrMismatch].
type MismatchError = driver.MismatchError

// A Mismatch is a ref that did not hold what the update expected.
type Mismatch = driver.Mismatch

// A NameConflictError names every ref that could not be created. It wraps [ErrNameConflict].
type NameConflictError = driver.NameConflictError

// A NameConflict is a ref that was to be created, and one that git could not hold beside it.
type NameConflict = driver.NameConflict

// A FrozenError says who froze a project, and why. It wraps [ErrFrozen].
type FrozenError = driver.FrozenError

// A Freeze says that no ref of a project may be moved, and why.
type Freeze = driver.Freeze

// A LostError says which refs of a lock are no longer held. It wraps [ErrLockLost].
type LostError = driver.LostError

// A Class says what a caller can do about an error.
type Class = driver.Class

const (
	// ClassNone is the class of a nil error.
	ClassNone = driver.ClassNone
	// Retryable: the same caller may try again, within its lease.
	Retryable = driver.Retryable
	// Permanent: something outside must change first.
	Permanent = driver.Permanent
	// StaleOwner: the caller no longer holds the lock. It must stop, and leave the work to the new
	// owner.
	StaleOwner = driver.StaleOwner
	// OutcomeUnknown: the request may have been carried out. Read, then decide.
	OutcomeUnknown = driver.OutcomeUnknown
)

// ClassOf returns the class of an error that this package returned. An error of several classes has
// the first of OutcomeUnknown, StaleOwner, Retryable and Permanent: an update whose reply was lost
// together with its lock is OutcomeUnknown.
func ClassOf(err error) Class { return driver.ClassOf(err) }
