package driver

import (
	"strings"
	"time"
)

// DefaultStaleAfter is the stale-after of a lock that was recorded without one. It is the
// stale-after of Gerrit's spanner-refdb plugin.
const DefaultStaleAfter = 30 * time.Second

// A Token identifies one acquisition of a lock. It is the database's timestamp of the acquisition,
// in microseconds since the Unix epoch; on PostgreSQL it is usually a timestamp up to two seconds
// before the acquisition. Of two tokens of the same ref, the larger one is the later one, however
// the clock was changed; no two acquisitions of a ref have the same token.
//
// A token also makes a lock safe outside this package: if a resource remembers the largest token
// that it has seen, and refuses smaller ones, a holder that was frozen while it lost its lock can't
// write to the resource.
type Token int64

// TokenOf returns the token for the database's timestamp t, truncated to microseconds.
func TokenOf(t time.Time) Token { return Token(t.UnixMicro()) }

// Time returns the timestamp of t, in UTC.
func (t Token) Time() time.Time { return time.UnixMicro(int64(t)).UTC() }

// A LockID identifies one acquisition of the lock on one ref. It also identifies the intent that
// was recorded with the lock.
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
	StaleAfter time.Duration // the age above which the lock is stale; its holder relies on this
	// Waiters is the number of waiters in the row's queue, including those whose processes have died.
	// A waiter that the row is reserved for is not in the queue. Only [LockStore.Locks] sets it.
	Waiters int
}

// Idle reports whether the row is a reservation whose turn is over, so that it refuses no request.
func (l LockInfo) Idle() bool { return l.Reserved() && l.Stale() }

// Reserved reports whether the row is not a lock but a reservation for a waiter: see [Waiter].
func (l LockInfo) Reserved() bool { return strings.HasSuffix(l.Owner, reserved) }

// HeldFor returns how long the lock has been held, by the database's clock. It counts from the
// token, which may be ahead of the database's clock after the clock or the server has changed; the
// result is then 0.
func (l LockInfo) HeldFor() time.Duration {
	return max(0, l.Heartbeat.Add(l.Age).Sub(l.Token.Time()))
}

// ID returns the ID of the lock.
func (l LockInfo) ID() LockID { return LockID{l.Project, l.Ref, l.Owner, l.Token} }

// Site returns the name of the site whose process holds the lock: the owner's name up to the first
// slash.
func (l LockInfo) Site() string {
	site, _, _ := strings.Cut(l.Owner, "/")
	return site
}

// Stale reports whether the lock may be reclaimed.
func (l LockInfo) Stale() bool { return l.Age > l.StaleAfter }

// Intended reports whether the lock belongs to an [Intent].
func (l LockInfo) Intended() bool { return l.StaleAfter >= NeverStale }

// An AcquireRequest asks for the locks on several refs of one project.
type AcquireRequest struct {
	Project string
	Refs    []string // sorted
	Owner   string
	// Nonce identifies this acquisition. Rows that carry it, and Owner, already belong to this
	// acquisition, from a request whose reply was lost. If all rows do, the result is that of the
	// earlier request; if only some do, their locks end and the request starts over. A row of
	// another owner never belongs to the acquisition: Gerrit's plugin does not know nonces, and
	// leaves them in the locks that it takes over. After the ctx of a request has ended, its nonce
	// is used only to abandon the acquisition.
	Nonce string
	// StaleAfter is recorded with the lock: the age above which others may reclaim the lock. It is
	// at least one millisecond.
	StaleAfter time.Duration
	// Waiter enters the queues if the locks are refused. The zero Waiter enters no queue.
	Waiter Waiter
}

// Acquired is the answer to an AcquireRequest.
type Acquired struct {
	// Token is larger than that of any earlier acquisition of any of the refs.
	Token Token
	// Refs are the rows that exist for the requested refs, as of the acquisition.
	Refs []Ref
	// Reclaimed are the stale locks that were taken over, in their state before. Reservations are
	// not included.
	Reclaimed []LockInfo
	// Place is the place of the request's waiter. If the locks were refused, it is the
	// only field that is set.
	Place Place
}

// A BeatResult is the result of [LockStore].Beat for one lock.
type BeatResult int

const (
	BeatUnknown BeatResult = iota // neither renewed nor known to be lost
	BeatRenewed
	BeatLost // deleted, or taken over by another owner
)

// A ReleaseRequest ends the lock on refs of one project.
type ReleaseRequest struct {
	Project string
	Refs    []string // sorted
	Owner   string
	Token   Token
	// Next, unless zero, is a waiter of the same owner. It precedes the waiters in the queue,
	// unless one of them has been passed MaxPassed times: then Next enters the queue.
	Next Waiter
}

// Released is the answer to a ReleaseRequest.
type Released struct {
	Missing []string // the refs whose rows did not match, sorted
}

// A StandingLock is a lock in the state in which it was listed.
type StandingLock struct {
	LockID
	// Heartbeat, unless zero, must equal the row's heartbeat, so that a lock that was renewed in
	// the meantime does not match.
	Heartbeat time.Time
}

// An AbandonRequest identifies an acquisition by its request.
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
	// Owner selects the locks of one owner or, if it is the name of a site, of all processes of the
	// site: the locks whose owner is Owner, or starts with Owner and "/".
	Owner     string
	Stale     bool          // only stale locks
	OlderThan time.Duration // only locks with an age above this
}

// A LockQuery selects a page of locks.
type LockQuery struct {
	LockFilter
	// Markers selects the rows whose project starts with ReclaimPrefix instead of
	// locks.
	Markers bool
	After   LockCursor // only rows after this key; zero to start
	Limit   int        // at most this many
}

// A LockCursor is the key of a row in a listing of locks.
type LockCursor struct{ Project, Ref string }

// A LockPage is a part of a listing. A page that is short or empty need not be the last one.
type LockPage struct {
	Locks []LockInfo
	Next  LockCursor // LockQuery.After of the next page; zero if there is none
}
