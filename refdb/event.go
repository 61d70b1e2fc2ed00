package refdb

import (
	"errors"
	"time"
)

// The operations that an [Event] tells of.
const (
	OpGet     = "get"     // Get, GetAll, Exists, IsUpToDate, States
	OpList    = "list"    // a page of Refs or Locks
	OpUpdate  = "update"  // Update, CompareAndPut, Put, fenced or not, releasing or not; Finish
	OpRemove  = "remove"  // RemoveProject, PurgeTombstones
	OpTryLock = "trylock" // TryLock
	OpLock    = "lock"    // Lock, its waiting included
	OpRelease = "release" // Release, and each of its tries in the background
	OpBeat    = "beat"    // a beat of all locks held
	OpLost    = "lost"    // a lock that its holder lost; Held is how long it had it
	OpPurge   = "purge"   // Purge
	OpPrepare = "prepare" // Prepare
	OpResolve = "resolve" // Resolve
)

// An Event is one finished operation. It holds no names, so that it can become
// a metric's labels as it is.
type Event struct {
	Op       string
	Outcome  string // "ok", "locked", "mismatch", "lost", "unknown", "unavailable", "invalid" or "error"
	Class    Class
	Duration time.Duration
	Refs     int // how many refs or locks it was about

	// Held is for how long a lock stood, at the end of one: OpRelease, OpLost
	// and an OpUpdate that released.
	Held time.Duration
	// Reclaimed is how many stale locks an OpLock or OpTryLock took over.
	Reclaimed int
	// Attempts is how many times an OpLock asked the database.
	Attempts int
}

// outcome is the label for err.
func outcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, ErrOutcomeUnknown):
		return "unknown"
	case errors.Is(err, ErrLockLost), errors.Is(err, ErrReleased):
		return "lost"
	case errors.Is(err, ErrLocked):
		return "locked"
	case errors.Is(err, ErrMismatch):
		return "mismatch"
	case errors.Is(err, ErrInvalid), errors.Is(err, ErrTooMany):
		return "invalid"
	case ClassOf(err) == Retryable:
		return "unavailable"
	default:
		return "error"
	}
}

// observe completes e and hands it to the hook.
func (db *DB) observe(e Event, start time.Time, err error) {
	if db.opts.Observe == nil {
		return
	}
	e.Duration = time.Since(start)
	e.Outcome, e.Class = outcome(err), ClassOf(err)
	db.opts.Observe(e)
}
