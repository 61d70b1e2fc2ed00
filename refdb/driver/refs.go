package driver

import "time"

// A Ref is a row of the table of refs.
type Ref struct {
	Name  string
	Value Value
	Time  time.Time // of the last change, by the database's clock; zero if not recorded
	Op    string    // the operation that last wrote it through this package, or ""
}

// A State is what the database knows about a ref at one moment.
type State struct {
	Ref   string
	Value Value     // [Unknown] if there is no row
	Lock  *LockInfo // nil if there is none; it may be stale
}

// A RefQuery selects a page of a project's refs.
type RefQuery struct {
	Project string
	Prefix  string // of the name, compared as bytes; "" for all
	After   string // only names greater than this; "" to start
	Limit   int    // at most this many
	Deleted bool   // tombstones too
}

// A RefPage is a part of a listing. It may be short, or empty, and not be the last.
type RefPage struct {
	Refs []Ref
	Next string // RefQuery.After of the next page; "" if there is none
}

// A ProjectSummary counts what the database has of one project.
type ProjectSummary struct {
	Name    string
	Refs    int       // that hold a value
	Deleted int       // refs
	Locks   int       // stale ones too
	Changed time.Time // when a ref last was, by the database's clock; zero if not recorded
}

// A SummaryQuery selects a page of projects.
type SummaryQuery struct {
	After string // only names greater than this; "" to start
	Limit int    // at most this many
}

// A SummaryPage is a part of a listing. It may be short, or empty, and not be the last.
type SummaryPage struct {
	Summaries []ProjectSummary
	Next      string // SummaryQuery.After of the next page; "" if there is none
}

// A LockMode says which locks of others stand in the way of a request. Locks
// that stand for an intent always do.
type LockMode int

const (
	// MandatoryLocks: every fresh lock stands in the way; the request ends stale ones.
	MandatoryLocks LockMode = iota
	// AdvisoryLocks: no lock stands in the way, and none is ended for being stale.
	AdvisoryLocks
)

// An Origin names an operation and who makes it. It is recorded with each change in the history.
type Origin struct {
	ID    string // of the operation; random, at most 64 bytes
	Owner string // the process
	By    string // who asked the process for it, or ""
}

// An UpdateRequest is an atomic update of several refs of one project.
type UpdateRequest struct {
	Project string
	// Origin says who makes the update. Its ID is stored in every row that the update
	// writes, so that reading the rows shows what became of it if the reply is lost.
	Origin
	// Updates are sorted by ref. An absent Old matches an unknown or deleted
	// ref, any other Old only an equal value. New is never Unknown.
	Updates []Update
	// Adopt makes any Old match an unknown ref.
	Adopt bool
	// GitNames refuses to create refs as a PrepareRequest does. It is never set together with
	// Adopt.
	GitNames bool
	// Locks says which locks on refs of Updates, not of Fence, stand in the way.
	Locks LockMode
	// Fence, unless nil, is a lock that must still be held; if not, the error is a
	// *LostError. Its own rows do not stand in the way.
	Fence *Fence
	// AnyRef: Fence need not be on the refs of Updates. Drivers never look at that.
	AnyRef bool
}

// A Fence is a lock that must still be held. A row that stands for an intent
// does not match.
type Fence struct {
	Refs  []string // sorted
	Owner string
	Token Token
	// Release says that the same transaction also ends the lock, as a ReleaseRequest
	// with Next does.
	Release bool
	Next    Waiter
}

// A RemoveRequest selects a project's refs to delete for good, and its locks with
// the last of them.
type RemoveRequest struct {
	Origin
	Project string
	Limit   int // at most this many refs
	Locks   LockMode
}

// A TombstoneRequest selects rows of deleted refs to delete for good.
type TombstoneRequest struct {
	Project   string
	Limit     int           // at most this many refs
	OlderThan time.Duration // only those deleted at least so long ago
}

// An Update moves one ref from Old to New.
type Update struct {
	Ref string
	// Old is what the ref must hold. [Unknown] and the zero IDs all match a
	// ref that is unknown or deleted.
	Old Value
	// New is what the ref holds afterwards. A zero ID, such as [Deleted], deletes it and
	// leaves a tombstone: a zero ID, as long as Old if Old is an object ID. [Unknown] is
	// refused.
	New Value
}
