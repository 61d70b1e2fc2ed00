package refdb

import "github.com/globalrefdb/globalrefdb/refdb/driver"

// A Driver is a database that stores refs and locks, such as one that package postgres opens. Only
// this module's databases implement it: see package driver.
type Driver = driver.Driver

// A Value is what a ref holds: an object ID (40 or 64 hex digits), a symbolic ref ("ref:
// refs/heads/main") or, as Gerrit stores in refs/multi-site/version, any other string. Two values
// stand for a ref that does not exist: [Unknown], and a zero ID, which says that the ref was
// deleted.
type Value = driver.Value

const (
	// Unknown is the value of a ref that the database has no row for.
	Unknown = driver.Unknown
	// Deleted is the zero ID that a deleted ref holds in a SHA-1 repository. As [Update].New it
	// deletes a ref of any repository.
	Deleted = driver.Deleted
	// Deleted256 is the zero ID that a deleted ref holds in a SHA-256 repository.
	Deleted256 = driver.Deleted256
)

// A Ref is a ref with its value, and when and by which operation it was last changed.
type Ref = driver.Ref

// An Update moves one ref from Old to New.
type Update = driver.Update

// A Token names one version of a lock. Of two tokens of the same ref the larger is the later. A
// resource that remembers the largest token it has seen, and refuses smaller ones, can't be written
// by a holder that was frozen while it lost its lock.
type Token = driver.Token

// LockInfo is a lock as the database has it: on which ref, whose, and how old its last beat is.
type LockInfo = driver.LockInfo

// A LockFilter selects locks for [DB.Locks]. Zero fields select everything.
type LockFilter = driver.LockFilter

// A Change is an entry of the history: one ref took another value.
type Change = driver.Change

// A Position is a point in the order of all changes that the database has recorded.
type Position = driver.Position

// A HistoryState says what the history holds at one moment.
type HistoryState = driver.HistoryState

// A Cursor says how far a reader of changes has come. The zero Cursor stands before the oldest
// change that the history still has. Its fields are not for applications: they keep its text,
// [Cursor.String].
type Cursor = driver.Cursor

// ParseCursor is the reverse of [Cursor.String]. The error wraps [ErrInvalid].
func ParseCursor(text string) (Cursor, error) { return driver.ParseCursor(text) }

// An Event is one finished operation, for [Options].Observe. It holds no names, so that its fields
// can be a metric's labels.
type Event = driver.Event

// Limits of one request: [ErrTooMany] says that it exceeds one.
const (
	MaxUpdateRefs = driver.MaxUpdateRefs
	MaxLockRefs   = driver.MaxLockRefs
)
