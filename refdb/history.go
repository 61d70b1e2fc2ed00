package refdb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
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
	Owner        string    // the process that made it, as [DB.Owner] has it; "" if it did not say
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
	// Upto is the last position that is complete: no change at or below it will appear any more, not even after a crash of the
	// database. Cursors and marks name no position above it.
	Upto Position
	// Ended is the last position below which no transaction is running. It is at least Upto. A crash may give the positions
	// between the two to other changes: Ended is for waiting, and is stored nowhere.
	Ended Position
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
	// LastOp is the operation of the row at ChangesRequest.Last; LastFound is false if there is no row.
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
	// Newest is the position of the last of the project's changes that were not pruned, also if it is above
	// State.Ended; 0 if there is none.
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

	// Newest returns the last of the changes that Changes would return; its Ref is "" if there is none.
	Newest(ctx context.Context) (Change, HistoryState, error)

	// Tip returns where a project's history ends. It is one request to the database, however long the history is.
	// Of the other projects it reads at most the newest change.
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
	// pruned, has a time after t. It is at most State.Upto. The caller checks by the state that none
	// such was pruned.
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

var (
	// ErrPruned: the history does not go back that far: it was pruned, or began later.
	ErrPruned = errors.New("the history does not go back that far")
	// ErrRewound: what was read before is not part of the database's history any more. The
	// database was put back to an earlier state, or it is another one.
	ErrRewound = errors.New("the database's history is not the one that was read")
)

// HistoryState returns what the history holds now.
func (db *DB) HistoryState(ctx context.Context) (HistoryState, error) {
	s, err := retry(ctx, db, func(d Driver) (HistoryState, error) { return d.HistoryState(ctx) })
	if err != nil {
		return HistoryState{}, fmt.Errorf("reading the history: %w", err)
	}
	return s, nil
}

// History iterates over the changes of a ref or, given ref "", of all refs of a project, newest
// first. It reads page by page, and ends where the history was pruned or began. An error
// ends it.
func (db *DB) History(ctx context.Context, project, ref string) iter.Seq2[Change, error] {
	err := CheckProject(project)
	if ref != "" {
		err = CheckKey(project, ref)
	}
	if err != nil {
		return failedListing[Change]("changes", err)
	}
	return pages(ctx, db, "changes of "+project, func(d Driver, before ChangeKey) ([]Change, ChangeKey, error) {
		page, err := d.Log(ctx, LogRequest{Project: project, Ref: ref, Before: before, Limit: pageSize})
		return page.Changes, page.Next, err
	})
}

// RefsAt iterates over the refs of a project whose names start with prefix, in byte order, as they
// were right after a position: one consistent state of the past. The position must be complete
// ([HistoryState]), and not be pruned: else the error wraps [ErrInvalid] or [ErrPruned]. An error
// ends it.
func (db *DB) RefsAt(ctx context.Context, project, prefix string, at Position, opts ...ListOption) iter.Seq2[Ref, error] {
	q := RefQuery{Project: project, Prefix: prefix, Limit: pageSize}
	for _, o := range opts {
		o(&q)
	}
	err := errors.Join(CheckProject(project), checkPrefix(prefix))
	if err != nil {
		return failedListing[Ref]("refs of the past", err)
	}
	return pages(ctx, db, "refs of "+project+" in the past", func(d Driver, after string) ([]Ref, string, error) {
		q := q
		q.After = after
		page, err := d.Past(ctx, PastRequest{RefQuery: q, At: at})
		if err == nil {
			err = page.State.checkPast(at)
		}
		return page.Refs, page.Next, err
	})
}

// checkPast returns an error unless s knows the state right after a position.
func (s HistoryState) checkPast(at Position) error {
	switch {
	case at < s.Pruned-1:
		return fmt.Errorf("%w: position %d, it begins with %d", ErrPruned, at, s.Pruned)
	case at > s.Upto:
		return fmt.Errorf("%w position %d: it is in the future, the last complete one now is %d", ErrInvalid, at, s.Upto)
	}
	return nil
}

// PositionAt returns the last position for which no change up to it is later than t, by the
// database's clock. What is not complete is not looked at: a transaction that has not ended may still
// bring changes up to t, behind that position. The error wraps [ErrPruned] if the history begins later.
func (db *DB) PositionAt(ctx context.Context, t time.Time) (Position, error) {
	type answer struct {
		at    Position
		state HistoryState
	}
	a, err := retry(ctx, db, func(d Driver) (a answer, err error) {
		a.at, a.state, err = d.PositionAt(ctx, t)
		return a, err
	})
	if err != nil {
		return 0, fmt.Errorf("finding the position at %s: %w", t.UTC().Format(time.RFC3339), err)
	}
	return a.at, a.state.checkTime(t, a.at)
}

// checkTime returns an error if the history does not reach back to t.
func (s HistoryState) checkTime(t time.Time, at Position) error {
	begins := s.Epochs[0].Began
	if begins.Before(s.PrunedTime) {
		begins = s.PrunedTime
	}
	if t.Before(begins) {
		return fmt.Errorf("%w: %s, it begins at %s", ErrPruned, t.UTC().Format(time.RFC3339Nano), begins.UTC().Format(time.RFC3339Nano))
	}
	return s.checkPast(at)
}

// A PruneOptions says what [DB.PruneHistory] deletes.
type PruneOptions struct {
	OlderThan time.Duration // only changes at least that old
	Keep      int           // of each ref this many of its newest changes stay, however old
	// EvenUnread, unless 0, deletes changes at least that old although a registered follower has
	// not read them, or a witness has not compared since. That follower then fails with [ErrPruned], and the witness
	// takes them for lost.
	EvenUnread time.Duration
}

// PruneHistory deletes old changes and returns how many. It works in chunks, while the database
// is in use: after an error some may be gone, and calling it again removes the rest.
func (db *DB) PruneHistory(ctx context.Context, o PruneOptions) (total int, err error) {
	if o.OlderThan < 0 || o.EvenUnread < 0 || o.Keep < 0 {
		return 0, fmt.Errorf("pruning the history: %w: ages and numbers can't be negative", ErrInvalid)
	}
	start := time.Now()
	defer func() { db.observe(Event{Op: OpRemove, Refs: total}, start, err) }()
	now, err := db.Now(ctx)
	if err != nil {
		return 0, fmt.Errorf("pruning the history: %w", err)
	}
	bound := func(age time.Duration) (Position, error) {
		return retry(ctx, db, func(d Driver) (Position, error) {
			at, _, err := d.PositionAt(ctx, now.Add(-age))
			return at, err
		})
	}
	r := PruneRequest{Keep: o.Keep, Limit: pageSize, EvenUnread: math.MinInt64}
	age, err := db.uncomparedAge(ctx, now)
	if err == nil {
		r.Upto, err = bound(max(o.OlderThan, age))
	}
	if err == nil && o.EvenUnread > 0 {
		r.EvenUnread, err = bound(max(o.EvenUnread, o.OlderThan))
		r.Upto = max(r.Upto, r.EvenUnread)
	}
	for err == nil {
		var p Pruned
		p, err = retry(ctx, db, func(d Driver) (Pruned, error) { return d.Prune(ctx, r) })
		total += p.Deleted
		if err == nil && p.Next == (ChangeKey{}) {
			return total, nil
		}
		r.After = p.Next
	}
	return total, fmt.Errorf("pruning the history, after %d changes: %w", total, err)
}

const maxFollowerBytes = 200

// CheckFollower returns an error wrapping [ErrInvalid] if name can't be a follower's: empty, over 200
// bytes, not UTF-8, or with control characters.
func CheckFollower(name string) error {
	if name == "" || len(name) > maxFollowerBytes || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return fmt.Errorf("%w follower %.100q: give 1 to %d bytes of UTF-8 without control characters", ErrInvalid, name, maxFollowerBytes)
	}
	return nil
}

// Followers returns all registered followers, in byte order of their names.
func (db *DB) Followers(ctx context.Context) ([]Follower, error) {
	all, err := retry(ctx, db, func(d Driver) ([]Follower, error) { return d.Followers(ctx) })
	if err != nil {
		return nil, fmt.Errorf("listing followers: %w", err)
	}
	return all, nil
}

// PutFollower registers a reader of the history, or records how far it has come: all changes up to the
// cursor were read. What comes after that is not pruned, unless [PruneOptions].EvenUnread says so.
func (db *DB) PutFollower(ctx context.Context, name string, read Cursor) error {
	if err := CheckFollower(name); err != nil {
		return fmt.Errorf("recording a follower: %w", err)
	}
	f := Follower{Name: name, Cursor: read.String(), Read: read.Position()}
	if _, err := retry(ctx, db, func(d Driver) (struct{}, error) { return struct{}{}, d.PutFollower(ctx, f) }); err != nil {
		return fmt.Errorf("recording follower %q: %w", name, err)
	}
	return nil
}

// RemoveFollower ends the registration of a follower, and reports whether there was one. What it has not
// read may be pruned from then on.
func (db *DB) RemoveFollower(ctx context.Context, name string) (bool, error) {
	if err := CheckFollower(name); err != nil {
		return false, fmt.Errorf("removing a follower: %w", err)
	}
	found, err := retry(ctx, db, func(d Driver) (bool, error) { return d.RemoveFollower(ctx, name) })
	if err != nil {
		return false, fmt.Errorf("removing follower %q: %w", name, err)
	}
	return found, nil
}
