package driver

import (
	"cmp"
	"context"
	"strings"
	"time"
)

// A Position is a point in the order of all changes that the database has recorded. A change's
// position is larger than that of every earlier change of the same ref, and of every change whose
// call had returned before this one's began. Changes of one transaction share a position. Positions
// carry no time, and most numbers are never used.
type Position int64

// A Change is a row of the history: the change of one ref's value.
type Change struct {
	Project, Ref string
	Old          Value // the row's previous value; [Unknown] if there was no row
	New          Value // [Unknown] if the row was removed with its project
	Position     Position
	Time         time.Time // the database's
	Op           string    // the ID of the operation, if the change was made through this package
	Owner        string    // the process that made the change, as returned by refdb.DB.Owner; "" if unknown
	By           string    // the requester; "" if unknown
}

// Key returns the change's place in the order of all changes. No two changes have the same key.
func (c Change) Key() ChangeKey { return ChangeKey{c.Position, c.Project, c.Ref} }

// A ChangeKey is a place in the order of all changes: by position, then project, then ref, compared
// as bytes. A key without a project precedes all changes of its position.
type ChangeKey struct {
	Position     Position
	Project, Ref string
}

// Compare returns -1, 0 or 1 if k precedes other, equals other, or follows other.
func (k ChangeKey) Compare(other ChangeKey) int {
	return cmp.Or(cmp.Compare(k.Position, other.Position), strings.Compare(k.Project, other.Project), strings.Compare(k.Ref, other.Ref))
}

// An Epoch is an unbroken range of positions. A new epoch begins when the database was restored to
// an earlier state: the positions after that state are then used a second time.
type Epoch struct {
	ID     string   // random
	First  Position // its first position, where the previous epoch ends
	Began  time.Time
	By     string // the operator who began it
	Reason string
}

// A HistoryState describes the extent of the history at one moment.
type HistoryState struct {
	// Upto is the last complete position: no further change will appear at or below it, not even
	// after a crash of the database. Cursors and marks never contain a position above it.
	Upto Position
	// Ended is the last position below which no transaction is running. It is at least Upto. A
	// crash may give the positions between Upto and Ended to other changes, so Ended is only for
	// waiting, and must not be stored.
	Ended Position
	// Begun is at or above the positions of all changes that were committed before this state was
	// read. It is an upper bound for waiting: once Ended of a later state has reached it, so has
	// Upto.
	Begun Position
	// Pruned is the first position from which no change was pruned. It is never below the position
	// at which the history began.
	Pruned Position
	// PrunedTime is the latest time of a pruned change; zero if none was pruned.
	PrunedTime time.Time
	Epochs     []Epoch // in order; the last one is the current epoch
	// Admitted says that the server is admitted. The contents of a server that is not admitted may
	// differ from what the database contained.
	Admitted bool
}

// A ChangesRequest selects a page of changes.
type ChangesRequest struct {
	Project string    // "" for all projects
	Prefix  string    // of the ref, compared as bytes; only with a project
	After   ChangeKey // only changes after this key
	Limit   int       // at most this many
	// Last, unless its Ref is "", is the key of a change to look up in the same snapshot.
	Last ChangeKey
}

// A ChangesPage is a part of the changes up to State.Upto.
type ChangesPage struct {
	Changes []Change // in the order of their keys
	// Next is the After of the next page: this page contains all selected changes up to Next. It is
	// ChangeKey{Position: State.Upto + 1} if the page is the last one.
	Next  ChangeKey
	State HistoryState
	// LastOp is the operation of the row at ChangesRequest.Last; LastFound is false if there is no
	// row.
	LastOp    string
	LastFound bool
}

// A LogRequest selects a page of a project's changes, newest first.
type LogRequest struct {
	Project string
	Ref     string    // "" for all
	Before  ChangeKey // only changes before this key; zero to start
	Limit   int       // at most this many
}

// A LogPage is a part of a log.
type LogPage struct {
	Changes []Change  // in descending order of their keys
	Next    ChangeKey // LogRequest.Before of the next page; zero if there is none
	State   HistoryState
}

// A PastRequest selects a page of a project's refs as they were right after a position.
type PastRequest struct {
	RefQuery
	At Position
}

// A PastPage is a part of a listing of the past. The Time and Op of a ref are those of the change
// that gave the ref its value, or zero if that change is not in the history.
type PastPage struct {
	RefPage
	State HistoryState
}

// A Follower is a registered reader of the history, whose unread changes are not pruned.
type Follower struct {
	Name   string
	Cursor string   // as returned by [Cursor.String]
	Read   Position // all changes up to this position were read
	Seen   time.Time
	Age    time.Duration // the database's now − Seen
}

// A PruneRequest selects changes to delete for good.
type PruneRequest struct {
	// Upto is the last position to prune. Changes that a follower has not read are kept, unless
	// they are at or below EvenUnread.
	Upto, EvenUnread Position
	Keep             int       // the number of newest changes to keep for each ref
	After            ChangeKey // only changes after this key; zero to start
	Limit            int       // examine at most this many changes
}

// Pruned is the answer to a PruneRequest.
type Pruned struct {
	Deleted int
	Next    ChangeKey // PruneRequest.After of the next request; zero if no change is left to examine
}

// A Tip identifies the end of a project's history, together with the other state on which the
// values of the project's refs depend.
type Tip struct {
	// Newest is the position of the project's last change that was not pruned, even if it is above
	// State.Ended; 0 if there is none.
	Newest Position
	// Pending says that an intent of the project is pending.
	Pending bool
	// Revision is the revision of the project's row; 0 if there is no row.
	Revision int64
	// Server is the identity of the server that answered, as in [Admission].
	Server string
	State  HistoryState
}

// A HistoryStore holds a record of every change of a ref's value, written in the transaction that
// makes the change: by Update, Finish, Resolve and Remove and, where the database can do that, by
// any other program that writes the table of refs. PurgeTombstones and writes that add no value are
// not recorded.
//
// All changes of one transaction of a driver have the same position. The State in a result is from
// the same snapshot as its rows.
type HistoryStore interface {
	// HistoryState returns the state of the history.
	HistoryState(ctx context.Context) (HistoryState, error)

	// Newest returns the last change that Changes would return; its Ref is "" if there is none.
	Newest(ctx context.Context) (Change, HistoryState, error)

	// Tip returns the end of a project's history. It takes one request to the database, independent
	// of the length of the history, and reads at most the newest change of other projects.
	Tip(ctx context.Context, project string) (Tip, error)

	// Changes returns a page of changes, none below State.Pruned and none above State.Upto.
	Changes(ctx context.Context, r ChangesRequest) (ChangesPage, error)

	// Log returns a page of a project's changes up to the newest, including changes above
	// State.Upto.
	Log(ctx context.Context, r LogRequest) (LogPage, error)

	// Past returns a page of refs as of r.At, which has to be at least State.Pruned - 1 and at most
	// State.Upto: the caller checks that against the returned State. Refs that had been deleted by
	// then are listed if r.Deleted; refs that had no row are never listed.
	Past(ctx context.Context, r PastRequest) (PastPage, error)

	// PositionAt returns the last position up to which no change that was not pruned has a time
	// after t. It is at most State.Upto. The caller checks against the returned state that no
	// change with such a time was pruned.
	PositionAt(ctx context.Context, t time.Time) (Position, HistoryState, error)

	// Prune deletes changes and, in the same transaction, raises State.Pruned and State.PrunedTime
	// to cover them.
	Prune(ctx context.Context, r PruneRequest) (Pruned, error)

	// Followers returns all registered followers, in the order of their names.
	Followers(ctx context.Context) ([]Follower, error)

	// PutFollower writes the row of f.Name, with the database's time for f.Seen.
	PutFollower(ctx context.Context, f Follower) error

	// RemoveFollower deletes a row, and reports whether there was one.
	RemoveFollower(ctx context.Context, name string) (bool, error)
}
