package refdb

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/engine"
)

const (
	// changesPage is how many changes a reader asks for at a time.
	changesPage = 1000
	// readingAtOnce is how many readers of a DB read by themselves at a time. More wait: when the feed
	// ends, all of its readers do.
	readingAtOnce = 4
	// pageLimit is how long a reader waits for a page until it asks again: the answer may never come. If the database
	// takes longer, the reader has to wait longer the next time.
	pageLimit = 10 * time.Second
	// The feed looks for more changes after changesPauseMin and changesPausePerReader for each
	// reader, and more and more rarely while there are none: up to changesPauseMax, and after
	// changesIdle without any of other processes up to changesPauseIdle.
	changesPauseMin       = 3 * time.Millisecond
	changesPausePerReader = 100 * time.Microsecond
	changesPauseMax       = 100 * time.Millisecond
	changesIdle           = 10 * time.Second
	changesPauseIdle      = 400 * time.Millisecond
	// progressEvery is how often a reader is told how far it has come though nothing changed.
	progressEvery = time.Second
)

// A ChangeQuery selects changes.
type ChangeQuery struct {
	Project string // "" for all
	Prefix  string // of the ref; only with a project
	After   Cursor // where to begin
	Limit   int    // of the changes that are yielded at a time; 0 stands for 1,000
	// Group names on whose behalf it is read. Of the readers of a group one at a time reads by itself, so that
	// the others of the DB wait for one of them at most. Readers without a group don't wait for each other.
	Group string
}

// Changes are some changes, in the order of their keys. Without any they tell how far the reader
// has come.
type Changes struct {
	Changes []Change
	Cursor  Cursor // behind them
	epochs  []driver.Epoch
}

// CursorAfter returns the cursor behind Changes[i], for a reader that stops among them.
func (c Changes) CursorAfter(i int) Cursor {
	if i == len(c.Changes)-1 {
		return c.Cursor
	}
	last := c.Changes[i]
	epoch := epochOf(HistoryState{Epochs: c.epochs}, last.Position)
	return Cursor{Mark: last.Key(), Durable: true, Epoch: epoch, Last: last.Key(), LastOp: last.Op}
}

// HistoryEnd returns a cursor behind all changes that are complete now: reading from it yields what
// comes later, as long as the database still has the newest of them.
func (db *DB) HistoryEnd(ctx context.Context) (Cursor, error) {
	type end struct {
		newest Change
		state  HistoryState
	}
	e, err := engine.Retry(ctx, db.engine, func(d Driver) (e end, err error) {
		e.newest, e.state, err = d.Newest(ctx)
		return e, err
	})
	if err != nil {
		return Cursor{}, fmt.Errorf("finding the end of the history: %w", err)
	}
	mark := driver.ChangeKey{Position: e.state.Upto + 1}
	return Cursor{Mark: mark, Durable: true, Epoch: epochOf(e.state, mark.Position), Last: e.newest.Key(), LastOp: e.newest.Op}, nil
}

// Changes iterates over changes in the order of their keys, for ever: at the end it waits for more.
// Each is yielded once, some milliseconds after its transaction and all that began before that
// have ended. At least once a second it yields how far it has come, even without changes; to go on
// later, keep the last Cursor.
//
// Once it has caught up, it shares one reader of the database with all others of this DB. None
// waits for another one whose loop is slow.
//
// It waits out a database that is down, and one whose server is not admitted. An error ends it:
// ctx's; [ErrPruned] if changes after the cursor were pruned; [ErrRewound] if the database lost
// what was read.
func (db *DB) Changes(ctx context.Context, q ChangeQuery) iter.Seq2[Changes, error] {
	err := engine.CheckPrefix(q.Prefix)
	if q.Limit < 0 || q.Limit > changesPage {
		err = errors.Join(err, fmt.Errorf("%w limit %d: give at most %d", ErrInvalid, q.Limit, changesPage))
	}
	if q.Project != "" {
		err = errors.Join(err, driver.CheckProject(q.Project))
	} else if q.Prefix != "" {
		err = fmt.Errorf("%w prefix %q: give the project, too", ErrInvalid, q.Prefix)
	}
	if err != nil {
		return engine.FailedListing[Changes]("changes", err)
	}
	return func(yield func(Changes, error) bool) {
		r := changeReader{db: db, query: q, cursor: q.After}
		defer r.leave()
		for {
			next, err := r.next(ctx)
			if err != nil {
				yield(Changes{}, fmt.Errorf("reading changes: %w", err))
				return
			}
			if !yield(next, nil) {
				return
			}
		}
	}
}

// A changeReader reads what a query selects, in order: by itself, or once it has all there is,
// from the feed of its DB.
type changeReader struct {
	db          *DB
	query       ChangeQuery
	cursor      Cursor
	limit       time.Duration // for a page, if more than pageLimit
	state       HistoryState  // as of the last page
	atEnd       bool          // that page had all there was
	interrupted bool          // the database was down before that page
	yielded     time.Time     // when next returned last
	feed        *feed         // nil: it reads by itself
	told        int           // feed.told, when that told this reader last
	isSource    bool          // it reads for a feed
}

// next waits for changes, or until it is time to tell how far the reader is.
func (r *changeReader) next(ctx context.Context) (Changes, error) {
	for {
		changes, tell, err := r.more(ctx)
		if err != nil {
			return Changes{}, err
		}
		if len(changes) > 0 || tell {
			r.yielded = time.Now()
			return Changes{changes, r.cursor, r.state.Epochs}, nil
		}
	}
}

// more reads more changes, and reports whether it is time to tell how far the reader is.
func (r *changeReader) more(ctx context.Context) (changes []Change, tell bool, err error) {
	if r.atEnd && r.feed == nil {
		if r.feed, err = r.db.joinFeed(r); err != nil {
			return nil, false, err
		}
	}
	if r.feed != nil {
		changes, err = r.feed.next(ctx, r)
		if !errors.Is(err, errBehind) {
			return changes, true, err
		}
		r.leave()
	}
	changes, err = r.read(ctx)
	return changes, time.Since(r.yielded) >= progressEvery, err
}

// leave leaves the feed.
func (r *changeReader) leave() {
	if r.feed != nil {
		r.feed.leave()
		r.feed = nil
	}
}

// read reads a page. It waits while the database is down.
func (r *changeReader) read(ctx context.Context) ([]Change, error) {
	pause := engine.NewBackOff(20*time.Millisecond, progressEvery)
	for r.interrupted = false; ; {
		changes, err := r.page(ctx)
		if err == nil {
			if r.interrupted {
				r.db.engine.Logger.InfoContext(ctx, "changes can be read again")
			}
			return changes, nil
		}
		if ctx.Err() != nil || ClassOf(err) != Retryable && !errors.Is(err, ErrLostChanges) {
			return nil, err
		}
		if !r.interrupted {
			r.interrupted = true
			r.db.engine.Logger.WarnContext(ctx, "changes can't be read; trying again", "class", ClassOf(err).String())
		}
		engine.Sleep(ctx, pause.NextBackOff())
	}
}

// limit returns how many changes a page has.
func (q ChangeQuery) limit() int {
	if q.Limit == 0 {
		return changesPage
	}
	return q.Limit
}

// page asks the database for a page, when the reader is one of those that may.
func (r *changeReader) page(ctx context.Context) ([]Change, error) {
	request := driver.ChangesRequest{Project: r.query.Project, Prefix: r.query.Prefix, After: begin(r.cursor), Last: r.cursor.Last, Limit: r.query.limit()}
	if !r.isSource {
		end, err := r.db.feeds.turns.begin(ctx, r.query.Group)
		if err != nil {
			return nil, err
		}
		defer end()
	}
	asked := ctx
	limit := max(r.limit, pageLimit)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	start := time.Now()
	page, err := engine.Retry(ctx, r.db.engine, func(d Driver) (page driver.ChangesPage, err error) {
		page, err = d.Changes(ctx, request)
		if err == nil && !page.State.Admitted {
			err = ErrNotAdmitted
		}
		return page, err
	})
	switch {
	case err == nil:
		r.limit = 2 * time.Since(start)
	case ctx.Err() != nil && asked.Err() == nil:
		r.limit = 2 * limit
		err = fmt.Errorf("%w: no answer within %s", ErrUnavailable, limit)
	}
	r.db.engine.Observed(Event{Op: driver.OpList, Refs: len(page.Changes)}, start, err)
	if err != nil {
		return nil, err
	}
	return r.accept(page)
}

// accept moves the cursor behind a page, and returns its changes.
func (r *changeReader) accept(page driver.ChangesPage) ([]Change, error) {
	if r.cursor.Epoch != "" {
		if err := checkCursor(r.cursor, page); err != nil {
			return nil, err
		}
	}
	r.cursor, r.state = behind(r.cursor, page), page.State
	r.atEnd = page.Next.Position > page.State.Upto
	return page.Changes, nil
}

// begin returns where reading goes on. What a cursor that is not durable selects had no change
// between its last one and its mark.
func begin(c Cursor) driver.ChangeKey {
	if c.Durable {
		return c.Mark
	}
	return c.Last
}

// checkCursor returns an error unless p, which was asked for with c, goes on where c ends.
func checkCursor(c Cursor, p driver.ChangesPage) error {
	s := p.State
	i := slices.IndexFunc(s.Epochs, func(e driver.Epoch) bool { return e.ID == c.Epoch })
	switch {
	case i < 0:
		return fmt.Errorf("%w: it has no epoch %s: the cursor belongs to another database", ErrRewound, c.Epoch)
	case i+1 < len(s.Epochs) && begin(c).Position > s.Epochs[i+1].First:
		return fmt.Errorf("%w: position %d was read, but the database went back to %d", ErrRewound, c.Position(), s.Epochs[i+1].First-1)
	case c.Durable && c.Position() > s.Upto:
		return fmt.Errorf("%w: position %d was read, but the database has reached only %d", ErrRewound, c.Position(), s.Upto)
	case c.Mark.Position < s.Pruned:
		return fmt.Errorf("%w: position %d was read last, but the changes before %d are gone", ErrPruned, c.Position(), s.Pruned)
	case c.Last.Ref != "" && c.Last.Position >= s.Pruned && (!p.LastFound || p.LastOp != c.LastOp):
		return fmt.Errorf("%w: the change of %s %s at position %d is gone", ErrRewound, c.Last.Project, c.Last.Ref, c.Last.Position)
	}
	return nil
}

// knowing returns c with the last change of another reader, if that was before c's mark and is
// later.
func knowing(c, other Cursor) Cursor {
	if other.Last.Compare(c.Last) > 0 && other.Last.Compare(c.Mark) <= 0 {
		c.Last, c.LastOp = other.Last, other.LastOp
	}
	return c
}

// behind returns the cursor behind p, which was asked for with c.
func behind(c Cursor, p driver.ChangesPage) Cursor {
	c.Mark, c.Durable, c.Epoch = p.Next, true, epochOf(p.State, p.Next.Position)
	if n := len(p.Changes); n > 0 {
		c.Last, c.LastOp = p.Changes[n-1].Key(), p.Changes[n-1].Op
	}
	return c
}

// epochOf returns the ID of the epoch that a position is in.
func epochOf(s HistoryState, p Position) (id string) {
	for _, e := range s.Epochs {
		if e.First <= p || id == "" {
			id = e.ID
		}
	}
	return id
}
