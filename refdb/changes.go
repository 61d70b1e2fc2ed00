package refdb

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"
)

const (
	// changesPage is how many changes a reader asks for at a time.
	changesPage = 1000
	// The feed looks for more changes after changesPauseMin and changesPausePerReader for each reader,
	// and more and more rarely while there are none: up to changesPauseMax, and after changesIdle without any of other processes up to
	// changesPauseIdle.
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
}

// Changes are some changes, in the order of their keys. Without any they tell how far the reader
// has come.
type Changes struct {
	Changes []Change
	Cursor  Cursor // behind them
	epochs  []Epoch
}

// CursorAfter returns the cursor behind Changes[i], for a reader that stops among them.
func (c Changes) CursorAfter(i int) Cursor {
	if i == len(c.Changes)-1 {
		return c.Cursor
	}
	last := c.Changes[i]
	epoch := HistoryState{Epochs: c.epochs}.epochOf(last.Position)
	return Cursor{mark: last.Key(), durable: true, epoch: epoch, last: last.Key(), lastOp: last.Op}
}

// HistoryEnd returns a cursor behind all changes that are complete now: reading from it yields what comes
// later, as long as the database still has the newest of them.
func (db *DB) HistoryEnd(ctx context.Context) (Cursor, error) {
	type end struct {
		newest Change
		state  HistoryState
	}
	e, err := retry(ctx, db, func(d Driver) (e end, err error) {
		e.newest, e.state, err = d.Newest(ctx)
		return e, err
	})
	if err != nil {
		return Cursor{}, fmt.Errorf("finding the end of the history: %w", err)
	}
	mark := ChangeKey{Position: e.state.Upto + 1}
	return Cursor{mark: mark, durable: true, epoch: e.state.epochOf(mark.Position), last: e.newest.Key(), lastOp: e.newest.Op}, nil
}

// Changes iterates over changes in the order of their keys, for ever: at the end it waits for more.
// Each is yielded once, some milliseconds after its transaction and all that began before that
// have ended. At least once a second it yields how far it has come, even without changes; to go on
// later, keep the last Cursor.
//
// Once it has caught up, it shares one reader of the database with all others of this DB. None waits
// for another one whose loop is slow.
//
// It waits out a database that is down, and one whose server is not admitted. An error ends it: ctx's; [ErrPruned] if changes after the
// cursor were pruned; [ErrRewound] if the database lost what was read.
func (db *DB) Changes(ctx context.Context, q ChangeQuery) iter.Seq2[Changes, error] {
	err := checkPrefix(q.Prefix)
	if q.Project != "" {
		err = errors.Join(err, CheckProject(q.Project))
	} else if q.Prefix != "" {
		err = fmt.Errorf("%w prefix %q: give the project, too", ErrInvalid, q.Prefix)
	}
	if err != nil {
		return failedListing[Changes]("changes", err)
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
	state       HistoryState // as of the last page
	atEnd       bool         // that page had all there was
	interrupted bool         // the database was down before that page
	yielded     time.Time    // when next returned last
	feed        *feed        // nil: it reads by itself
	told        int          // feed.told, when that told this reader last
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
	pause := newBackOff(20*time.Millisecond, progressEvery)
	for r.interrupted = false; ; {
		changes, err := r.page(ctx)
		if err == nil {
			if r.interrupted {
				r.db.opts.Logger.InfoContext(ctx, "changes can be read again")
			}
			return changes, nil
		}
		if ctx.Err() != nil || ClassOf(err) != Retryable && !errors.Is(err, ErrLostChanges) {
			return nil, err
		}
		if !r.interrupted {
			r.interrupted = true
			r.db.opts.Logger.WarnContext(ctx, "changes can't be read; trying again", "class", ClassOf(err).String())
		}
		sleep(ctx, pause.NextBackOff())
	}
}

// page asks the database for a page.
func (r *changeReader) page(ctx context.Context) ([]Change, error) {
	request := ChangesRequest{Project: r.query.Project, Prefix: r.query.Prefix, After: r.cursor.begin(), Last: r.cursor.last, Limit: changesPage}
	start := time.Now()
	page, err := retry(ctx, r.db, func(d Driver) (page ChangesPage, err error) {
		page, err = d.Changes(ctx, request)
		if err == nil && !page.State.Admitted {
			err = ErrNotAdmitted
		}
		return page, err
	})
	r.db.observe(Event{Op: OpList, Refs: len(page.Changes)}, start, err)
	if err != nil {
		return nil, err
	}
	return r.accept(page)
}

// accept moves the cursor behind a page, and returns its changes.
func (r *changeReader) accept(page ChangesPage) ([]Change, error) {
	if r.cursor.epoch != "" {
		if err := r.cursor.check(page); err != nil {
			return nil, err
		}
	}
	r.cursor, r.state = r.cursor.after(page), page.State
	r.atEnd = page.Next.Position > page.State.Upto
	return page.Changes, nil
}

// A Cursor says how far a reader of changes has come. It is good on one database, and only as long as that
// database still has what the reader has seen. The zero Cursor stands before the oldest
// change that the history still has.
type Cursor struct {
	// mark: all changes up to it were read.
	mark ChangeKey
	// durable: no change appears at or below mark any more, not even after a crash of the database. Marks of programs up to
	// version 10 of the schema were the last position that had ended ([HistoryState].Ended), which other changes may have got since.
	durable bool
	// epoch is the one that mark is in.
	epoch string
	// last is the last change that was read, which the database must still have; its Ref is "" if
	// there is none.
	last   ChangeKey
	lastOp string
}

// begin returns where reading goes on. What a cursor that is not durable selects had no change between its last one and
// its mark.
func (c Cursor) begin() ChangeKey {
	if c.durable {
		return c.mark
	}
	return c.last
}

// Position returns the last position up to which all changes were read.
func (c Cursor) Position() Position { return c.mark.Position - 1 }

// cursorText is what the text of a Cursor encodes.
type cursorText struct {
	Epoch   string
	Mark    ChangeKey
	Last    ChangeKey
	Op      string
	Durable bool
	Version int
}

const (
	cursorPrefix  = "refdb-"
	cursorVersion = 1
)

// String returns a text for [ParseCursor]: letters, digits, "-" and "_"; "" for the zero Cursor.
func (c Cursor) String() string {
	if c.epoch == "" {
		return ""
	}
	// Names are UTF-8: they can be encoded.
	text, _ := json.Marshal(cursorText{c.epoch, c.mark, c.last, c.lastOp, c.durable, cursorVersion})
	return cursorPrefix + base64.RawURLEncoding.EncodeToString(text)
}

// ParseCursor is the reverse of [Cursor.String]. The error wraps [ErrInvalid].
func ParseCursor(text string) (Cursor, error) {
	if text == "" {
		return Cursor{}, nil
	}
	encoded, ok := strings.CutPrefix(text, cursorPrefix)
	decoded, err := base64.RawURLEncoding.DecodeString(encoded)
	var t cursorText
	if !ok || err != nil || json.Unmarshal(decoded, &t) != nil || t.Epoch == "" {
		return Cursor{}, fmt.Errorf("%w cursor %.100q: it was not printed by this program, or is incomplete", ErrInvalid, text)
	}
	if t.Version != cursorVersion {
		return Cursor{}, fmt.Errorf("%w cursor of version %d: this program knows version %d", ErrInvalid, t.Version, cursorVersion)
	}
	return Cursor{mark: t.Mark, durable: t.Durable, epoch: t.Epoch, last: t.Last, lastOp: t.Op}, nil
}

// check returns an error unless p, which was asked for with c, goes on where c ends.
func (c Cursor) check(p ChangesPage) error {
	s := p.State
	i := slices.IndexFunc(s.Epochs, func(e Epoch) bool { return e.ID == c.epoch })
	switch {
	case i < 0:
		return fmt.Errorf("%w: it has no epoch %s: the cursor belongs to another database", ErrRewound, c.epoch)
	case i+1 < len(s.Epochs) && c.begin().Position > s.Epochs[i+1].First:
		return fmt.Errorf("%w: position %d was read, but the database went back to %d", ErrRewound, c.Position(), s.Epochs[i+1].First-1)
	case c.durable && c.Position() > s.Upto:
		return fmt.Errorf("%w: position %d was read, but the database has reached only %d", ErrRewound, c.Position(), s.Upto)
	case c.mark.Position < s.Pruned:
		return fmt.Errorf("%w: position %d was read last, but the changes before %d are gone", ErrPruned, c.Position(), s.Pruned)
	case c.last.Ref != "" && c.last.Position >= s.Pruned && (!p.LastFound || p.LastOp != c.lastOp):
		return fmt.Errorf("%w: the change of %s %s at position %d is gone", ErrRewound, c.last.Project, c.last.Ref, c.last.Position)
	}
	return nil
}

// knowing returns c with the last change of another reader, if that was before c's mark and is later.
func (c Cursor) knowing(other Cursor) Cursor {
	if other.last.Compare(c.last) > 0 && other.last.Compare(c.mark) <= 0 {
		c.last, c.lastOp = other.last, other.lastOp
	}
	return c
}

// after returns the cursor behind p, which was asked for with c.
func (c Cursor) after(p ChangesPage) Cursor {
	c.mark, c.durable, c.epoch = p.Next, true, p.State.epochOf(p.Next.Position)
	if n := len(p.Changes); n > 0 {
		c.last, c.lastOp = p.Changes[n-1].Key(), p.Changes[n-1].Op
	}
	return c
}

// epochOf returns the ID of the epoch that a position is in.
func (s HistoryState) epochOf(p Position) (id string) {
	for _, e := range s.Epochs {
		if e.First <= p || id == "" {
			id = e.ID
		}
	}
	return id
}
