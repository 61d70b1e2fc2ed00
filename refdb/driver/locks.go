package driver

import (
	"strings"
	"time"
)

// DefaultStaleAfter is the stale-after of a lock that was recorded without one. It is that of
// Gerrit's spanner-refdb plugin.
const DefaultStaleAfter = 30 * time.Second

// A Token names one version of a lock: the database's timestamp of the
// acquisition, in microseconds since the Unix epoch; on PostgreSQL usually a
// timestamp up to two seconds before it. Of two tokens of the same ref the larger
// is the later, whatever the clock did; no two acquisitions of a ref have the
// same token.
//
// A token makes a lock safe outside this package too: a resource that remembers
// the largest token it has seen, and refuses smaller ones, can't be written by a
// holder that was frozen while it lost its lock.
type Token int64

// TokenOf returns the token that stands for the database's timestamp t, cut to
// microseconds.
func TokenOf(t time.Time) Token { return Token(t.UnixMicro()) }

// Time returns the timestamp that t stands for, in UTC.
func (t Token) Time() time.Time { return time.UnixMicro(int64(t)).UTC() }

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
	// Waiters is the number of waiters in the row's queue, including those whose processes have died.
	// A waiter that the row is reserved for is not in the queue. Only [LockStore.Locks] sets it.
	Waiters int
}

// Idle reports whether the row is a reservation whose turn is over: it stands in nobody's way.
func (l LockInfo) Idle() bool { return l.Reserved() && l.Stale() }

// Reserved reports whether the row is not a lock but a reservation for a waiter: see [Waiter].
func (l LockInfo) Reserved() bool { return strings.HasSuffix(l.Owner, reserved) }

// HeldFor returns for how long the lock has been held, by the database's clock. It counts from the
// token, which may be ahead of that clock after the clock or the server has changed: then the
// result is 0.
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
