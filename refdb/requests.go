package refdb

import (
	"strings"
	"time"
)

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
	// GitNames refuses to create refs as a PrepareRequest does. It is never set together with Adopt.
	GitNames bool
	// Locks says which locks on refs of Updates, not of Fence, stand in the way.
	Locks LockMode
	// Fence, unless nil, is a lock that must still be held; if not, the error is a
	// *LostError. Its own rows do not stand in the way.
	Fence *Fence

	anyRef bool // Fence need not be on the refs of Updates; drivers never look at that
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

// A LockID names one acquisition of the lock on one ref. It also names the intent
// that was recorded with the lock.
type LockID struct {
	Project, Ref string
	Owner        string
	Token        Token
}

// LockInfo is a row of the table of locks.
type LockInfo struct {
	Project    string
	Ref        string
	Owner      string
	Token      Token
	Heartbeat  time.Time     // of the last beat, by the database's clock
	Age        time.Duration // the database's now − Heartbeat
	StaleAfter time.Duration // the age above which it is stale; its holder relies on it
}

// Idle reports whether the row is a reservation whose turn is over: it stands in nobody's way.
func (l LockInfo) Idle() bool { return l.Reserved() && l.Stale() }

// Reserved reports whether the row is not a lock but a reservation for a waiter: see [Waiter].
func (l LockInfo) Reserved() bool { return strings.HasSuffix(l.Owner, reserved) }

// HeldFor returns for how long the lock has been held, by the database's clock. It counts from the token,
// which may be ahead of that clock after the clock or the server has changed: then the result is 0.
func (l LockInfo) HeldFor() time.Duration {
	return max(0, l.Heartbeat.Add(l.Age).Sub(l.Token.Time()))
}

// ID names the lock.
func (l LockInfo) ID() LockID { return LockID{l.Project, l.Ref, l.Owner, l.Token} }

// Site returns the name of the site whose process has the lock: the owner's name up to a slash.
func (l LockInfo) Site() string {
	site, _, _ := strings.Cut(l.Owner, "/")
	return site
}

// Stale reports whether the lock may be reclaimed.
func (l LockInfo) Stale() bool { return l.Age > l.StaleAfter }

// Intended reports whether the lock stands for an [Intent].
func (l LockInfo) Intended() bool { return l.StaleAfter >= NeverStale }

// An AcquireRequest asks for the locks on several refs of one project.
type AcquireRequest struct {
	Project string
	Refs    []string // sorted
	Owner   string
	// Nonce names this acquisition. Rows that carry it, and Owner, belong to it
	// already, from a request whose reply was lost. If all rows do, the answer is
	// that acquisition's; if only some do, those are deleted and the request starts
	// over. A row of another owner never belongs to it: Gerrit's plugin does not
	// know nonces, and leaves them in the locks that it takes over. After the ctx of
	// a request has ended, its nonce is used only to abandon it.
	Nonce string
	// StaleAfter is recorded with the lock: the age above which others may
	// reclaim it. It is at least a millisecond.
	StaleAfter time.Duration
	// Waiter enters the queues if the locks are refused. The zero Waiter does not.
	Waiter Waiter
}

// Acquired is the answer to an AcquireRequest.
type Acquired struct {
	// Token is larger than that of any earlier acquisition of any of the refs.
	Token Token
	// Refs are the rows of those refs that have one, as of the acquisition.
	Refs []Ref
	// Reclaimed are the stale locks that were taken over, as they were before.
	// Reservations do not count.
	Reclaimed []LockInfo
	// Place is the place of the request's waiter. If the locks were refused, it is the
	// only field that is set.
	Place Place
}

// A BeatResult says what became of a lock that was to be renewed.
type BeatResult int

const (
	BeatUnknown BeatResult = iota // neither renewed nor known to be lost
	BeatRenewed
	BeatLost // gone, or another's
)

// A ReleaseRequest ends the lock on refs of one project.
type ReleaseRequest struct {
	Project string
	Refs    []string // sorted
	Owner   string
	Token   Token
	// Next, unless zero, is a waiter of the same owner. It comes before the waiters in the
	// queue. But if one of those was passed MaxPassed times, Next enters the queue.
	Next Waiter
}

// Released is the answer to a ReleaseRequest.
type Released struct {
	Missing []string // those of the refs whose rows did not match, sorted
}

// A StandingLock is a lock as it was listed.
type StandingLock struct {
	LockID
	// Heartbeat, unless zero, must be the row's too, so that a lock which was
	// renewed since does not match.
	Heartbeat time.Time
}

// An AbandonRequest names an acquisition by what it requested.
type AbandonRequest struct {
	Project string
	Refs    []string // sorted
	Owner   string
	Nonce   string
	Waiter  string // the ID of the waiter that gives up, or ""
}

// A LockFilter selects locks. Zero fields select everything.
type LockFilter struct {
	Project string
	Ref     string // exactly this one
	Prefix  string // of the ref, compared as bytes
	// Owner selects the locks of one owner and, given a site's name, those of
	// all its processes: those whose owner is Owner, or starts with Owner and "/".
	Owner     string
	Stale     bool          // only stale ones
	OlderThan time.Duration // only those with an age above this
}

// A LockQuery selects a page of locks.
type LockQuery struct {
	LockFilter
	// Markers selects the rows whose project starts with ReclaimPrefix instead of
	// locks.
	Markers bool
	After   LockCursor // only what comes after this; zero to start
	Limit   int        // at most this many
}

// A LockCursor is the key of a row in a listing of locks.
type LockCursor struct{ Project, Ref string }

// A LockPage is a part of a listing. It may be short, or empty, and not be the last.
type LockPage struct {
	Locks []LockInfo
	Next  LockCursor // LockQuery.After of the next page; zero if there is none
}

// A PrepareRequest locks the refs of updates of one project, and records the
// updates as intents.
type PrepareRequest struct {
	Project string
	// Updates are as in an UpdateRequest. One whose Old is absent and whose New is not creates
	// its ref. No ref is created beside another, not among Updates, whose name [Excludes] its own:
	// if an intent on that one is pending, the error is a *LockedError, if it holds a value, a
	// *NameConflictError. No two of Updates whose New is not absent exclude each other.
	Updates []Update
	Owner   string
	// Nonce names this preparation. If all rows carry it and their intents are
	// pending, the answer is that preparation's, as for an Acquire. Otherwise rows
	// that carry it count as another owner's locks.
	Nonce string
	Agent string   // recorded with each intent
	By    string   // who asked for it, recorded too, as is Nonce: see [Intent]
	Packs []string // that hold the objects of the new values: see [PackStore]
	// Parts are the only parts of some of Packs, which may not be there yet, sorted by pack. RequiredValues are what refs must hold for that, sorted: the
	// packs build on it.
	Parts          []PackPart
	RequiredValues []RefValue
}

// Prepared is the answer to a PrepareRequest.
type Prepared struct {
	// Token is larger than that of any earlier acquisition of any of the refs.
	Token Token
	// Time is when the intents were recorded, by the database's clock. If an earlier request of the same nonce
	// recorded them, it may be the time of the answer. The token may be ahead of that clock.
	Time time.Time
	// Reclaimed are the stale locks that were taken over, as they were before.
	Reclaimed []LockInfo
}

// A FinishRequest ends intents that were prepared together. A ref is in Done, in
// Dropped or in neither.
type FinishRequest struct {
	Project string
	Origin  // of the update of Done's refs: see UpdateRequest; its Owner is that of the intents
	Token   Token
	Done    []Update // of the intents, sorted by ref
	Dropped []string // sorted
}

// A ResolveRequest ends intents in their owners' place.
type ResolveRequest struct {
	Origin
	Intents  []LockID // in any order
	Decision Decision // KeepOld or TakeNew
	Reason   string   // recorded, as By is
}

// An IntentQuery selects a page of intents.
type IntentQuery struct {
	IntentFilter
	After IntentCursor // only what comes after this; zero to start
	Limit int          // at most this many
}

// An IntentCursor is the key of a record in a listing of intents.
type IntentCursor struct {
	Project, Ref string
	Token        Token
}

// An IntentPage is a part of a listing. It may be short, or empty, and not be the last.
type IntentPage struct {
	Intents []Intent
	Next    IntentCursor // IntentQuery.After of the next page; zero if there is none
}
