package driver

import "time"

// A Ref is a row of the table of refs.
type Ref struct {
	Name  string
	Value Value
	Time  time.Time // of the last change, by the database's clock; zero if not recorded
	Op    string    // the operation that last wrote the row through this package, or ""
}

// A State is the value and the lock of a ref at one moment.
type State struct {
	Ref   string
	Value Value     // [Unknown] if there is no row
	Lock  *LockInfo // nil if there is no lock; the lock may be stale
}

// A RefQuery selects a page of a project's refs.
type RefQuery struct {
	Project string
	Prefix  string // of the name, compared as bytes; "" for all refs
	After   string // only names greater than this; "" to start
	Limit   int    // at most this many
	Deleted bool   // include tombstones
}

// A RefPage is a part of a listing. A page that is short or empty need not be the last one.
type RefPage struct {
	Refs []Ref
	Next string // RefQuery.After of the next page; "" if there is none
}

// A ProjectSummary contains the numbers of a project's rows in the database.
type ProjectSummary struct {
	Name    string
	Refs    int       // refs that hold a value
	Deleted int       // deleted refs
	Locks   int       // locks, including stale ones
	Changed time.Time // the latest change of a ref, by the database's clock; zero if not recorded
}

// A SummaryQuery selects a page of projects.
type SummaryQuery struct {
	After string // only names greater than this; "" to start
	Limit int    // at most this many
}

// A SummaryPage is a part of a listing. A page that is short or empty need not be the last one.
type SummaryPage struct {
	Summaries []ProjectSummary
	Next      string // SummaryQuery.After of the next page; "" if there is none
}

// A LockMode says which locks of others refuse a request. Locks of intents always refuse it.
type LockMode int

const (
	// MandatoryLocks: every fresh lock refuses the request; the request ends stale locks.
	MandatoryLocks LockMode = iota
	// AdvisoryLocks: no other lock refuses the request, and the request ends no stale locks.
	AdvisoryLocks
)

// An Origin identifies an operation, its process and its requester. It is recorded with each change
// in the history.
type Origin struct {
	ID    string // of the operation; random, at most 64 bytes
	Owner string // the process
	By    string // the requester, or ""
}

// An UpdateRequest is an atomic update of several refs of one project.
type UpdateRequest struct {
	Project string
	// Origin identifies the update. Its ID is stored in every row that the update writes, so that
	// reading the rows shows the outcome of the update if the reply is lost.
	Origin
	// Updates are sorted by ref. An absent Old matches an unknown or deleted ref; any other Old
	// matches only an equal value. New is never Unknown.
	Updates []Update
	// Adopt makes any Old match an unknown ref.
	Adopt bool
	// GitNames makes the request refuse to create refs whose names are excluded by others, as a
	// PrepareRequest does. It is never set together with Adopt.
	GitNames bool
	// Locks says which locks on refs of Updates, other than those of Fence, refuse the request.
	Locks LockMode
	// Fence, unless nil, is a lock that must still be held; otherwise the error is a *LostError.
	// The rows of the Fence itself do not refuse the request.
	Fence *Fence
	// AnyRef says that Fence need not be on the refs of Updates. Drivers ignore it.
	AnyRef bool
}

// A Fence is a lock that must still be held. A row that belongs to an intent does not match.
type Fence struct {
	Refs  []string // sorted
	Owner string
	Token Token
	// Release makes the same transaction end the lock, as a ReleaseRequest with Next does.
	Release bool
	Next    Waiter
}

// A RemoveRequest selects a project's refs to delete permanently and, together with the last ref,
// the project's locks.
type RemoveRequest struct {
	Origin
	Project string
	Limit   int // at most this many refs
	Locks   LockMode
}

// A TombstoneRequest selects rows of deleted refs to delete permanently.
type TombstoneRequest struct {
	Project   string
	Limit     int           // at most this many refs
	OlderThan time.Duration // only refs deleted at least this long ago
}

// An Update moves one ref from Old to New.
type Update struct {
	Ref string
	// Old is the value that the ref must hold. [Unknown] and the zero IDs all match a ref that is
	// unknown or deleted.
	Old Value
	// New is the value that the ref holds afterwards. A zero ID, such as [Deleted], deletes the ref
	// and leaves a tombstone: a zero ID, of the same length as Old if Old is an object ID.
	// [Unknown] is refused.
	New Value
}
