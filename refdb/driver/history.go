package driver

import (
	"cmp"
	"context"
	"strings"
	"time"
)

// A Position is a point in the order of all changes that the database has recorded. A
// change's position is larger than that of every earlier change of the same ref, and of
// every change whose call had returned before this one's began. Changes of one transaction
// share a position. Positions say nothing about time, and most numbers are never used.
type Position int64

// A Change is a row of the history: one ref took another value.
type Change struct {
	Project, Ref string
	Old          Value // what the row held; [Unknown] if there was none
	New          Value // [Unknown] if the row was removed with its project
	Position     Position
	Time         time.Time // the database's
	Op           string    // the ID of the operation, if it was made through this package
	Owner        string    // the process that made it, as refdb.DB.Owner has it; "" if it did not say
	By           string    // who asked for it; "" if nobody said
}

// Key is the change's place in the order of all changes. No two changes have the same.
func (c Change) Key() ChangeKey { return ChangeKey{c.Position, c.Project, c.Ref} }

// A ChangeKey is a place in the order of all changes: by position, then project, then ref, as
// bytes. Without a project it stands before all changes of its position.
type ChangeKey struct {
	Position     Position
	Project, Ref string
}

// Compare returns -1, 0 or 1 if k stands before other, is the same, or stands after it.
func (k ChangeKey) Compare(other ChangeKey) int {
	return cmp.Or(cmp.Compare(k.Position, other.Position), strings.Compare(k.Project, other.Project), strings.Compare(k.Ref, other.Ref))
}

// An Epoch is a span of positions without a break. A new one begins when the database was put
// back to an earlier state: the positions after that state are then used a second time.
type Epoch struct {
	ID     string   // random
	First  Position // of this epoch; the one before ends there
	Began  time.Time
	By     string // who began it
	Reason string
}

// A HistoryState says what the history holds at one moment.
type HistoryState struct {
	// Upto is the last position that is complete: no change at or below it will appear any more,
	// not even after a crash of the database. Cursors and marks name no position above it.
	Upto Position
	// Ended is the last position below which no transaction is running. It is at least Upto. A
	// crash may give the positions between the two to other changes: Ended is for waiting, and is
	// stored nowhere.
	Ended Position
	// Begun is at or above the positions of all changes that were committed before this state was
	// read. Once Ended has reached it, so is Upto.
	Begun Position
	// Pruned is the first position from which on no change was pruned. It is never below the
	// position at which the history began.
	Pruned Position
	// PrunedTime is the latest time of a change that was pruned; zero if none was.
	PrunedTime time.Time
	Epochs     []Epoch // in order; the last one is the present one
	// Admitted: the server is. What another one has may not be what the database had.
	Admitted bool
}

// A ChangesRequest selects a page of changes.
type ChangesRequest struct {
	Project string    // "" for all
	Prefix  string    // of the ref, compared as bytes; only with a project
	After   ChangeKey // only what comes after this
	Limit   int       // at most this many
	// Last, unless its Ref is "", is looked up in the same snapshot.
	Last ChangeKey
}

// A ChangesPage is a part of the changes up to State.Upto.
type ChangesPage struct {
	Changes []Change // in the order of their keys
	// Next is the After of the next page: all that the request selects up to Next is in
	// this page. It is ChangeKey{Position: State.Upto + 1} if the page has all there is.
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
	Before  ChangeKey // only what comes before this; zero to start
	Limit   int       // at most this many
}

// A LogPage is a part of a log.
type LogPage struct {
	Changes []Change  // by descending keys
	Next    ChangeKey // LogRequest.Before of the next page; zero if there is none
	State   HistoryState
}

// A PastRequest selects a page of a project's refs as they were right after a position.
type PastRequest struct {
	RefQuery
	At Position
}

// A PastPage is a part of a listing of the past. Time and Op of its refs are those of the change
// that gave them their value, or zero if that change is not in the history.
type PastPage struct {
	RefPage
	State HistoryState
}

// A Follower is a registered reader of the history, whose unread changes are not pruned.
type Follower struct {
	Name   string
	Cursor string   // as [Cursor.String] has it
	Read   Position // all changes up to it were read
	Seen   time.Time
	Age    time.Duration // the database's now − Seen
}

// A PruneRequest selects changes to delete for good.
type PruneRequest struct {
	// Upto is the last position to prune. What a follower has not read stays, unless it is at
	// or below EvenUnread.
	Upto, EvenUnread Position
	Keep             int       // of each ref this many of its newest changes stay
	After            ChangeKey // only what comes after this; zero to start
	Limit            int       // look at no more changes than this
}

// Pruned is the answer to a PruneRequest.
type Pruned struct {
	Deleted int
	Next    ChangeKey // PruneRequest.After of the next request; zero if nothing is left to look at
}

// A Tip says where a project's history ends, and whatever else its refs' values depend on.
type Tip struct {
	// Newest is the position of the last of the project's changes that were not pruned, also if it
	// is above State.Ended; 0 if there is none.
	Newest Position
	// Pending: an intent of the project is pending.
	Pending bool
	// Revision is that of the project's row; 0 if there is none.
	Revision int64
	// Server is the identity of the server that answered, as in [Admission].
	Server string
	State  HistoryState
}

// A HistoryStore keeps a record of every change of a ref's value, written in the transaction
// that makes it: by Update, Finish, Resolve and Remove, and by whatever else writes the table
// of refs where the database can do that. PurgeTombstones and writes that add no value make none.
//
// All changes that one transaction of a driver makes have one position. An answer's State is of
// the same snapshot as its rows.
type HistoryStore interface {
	// HistoryState returns the state of the history.
	HistoryState(ctx context.Context) (HistoryState, error)

	// Newest returns the last of the changes that Changes would return; its Ref is "" if there is
	// none.
	Newest(ctx context.Context) (Change, HistoryState, error)

	// Tip returns where a project's history ends. It is one request to the database, however long
	// the history is. Of the other projects it reads at most the newest change.
	Tip(ctx context.Context, project string) (Tip, error)

	// Changes returns a page of changes, none below State.Pruned and none above State.Upto.
	Changes(ctx context.Context, r ChangesRequest) (ChangesPage, error)

	// Log returns a page of a project's changes up to the newest, also those above the
	// state's Upto.
	Log(ctx context.Context, r LogRequest) (LogPage, error)

	// Past returns a page of refs as of r.At, which is at least State.Pruned - 1 and at most
	// State.Upto: the caller checks that by the answer. Those that were deleted by then are
	// listed if r.Deleted; those that had no row never are.
	Past(ctx context.Context, r PastRequest) (PastPage, error)

	// PositionAt returns the last position for which no change up to it, of those that were not
	// pruned, has a time after t. It is at most State.Upto. The caller checks by the state that
	// none such was pruned.
	PositionAt(ctx context.Context, t time.Time) (Position, HistoryState, error)

	// Prune deletes changes, and raises State.Pruned and State.PrunedTime above them in the same
	// transaction.
	Prune(ctx context.Context, r PruneRequest) (Pruned, error)

	// Followers returns all registered followers, in the order of their names.
	Followers(ctx context.Context) ([]Follower, error)

	// PutFollower writes the row of f.Name, with the database's time for f.Seen.
	PutFollower(ctx context.Context, f Follower) error

	// RemoveFollower deletes a row, and reports whether there was one.
	RemoveFollower(ctx context.Context, name string) (bool, error)
}
