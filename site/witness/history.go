package witness

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

const (
	// noteReadEvery is how often the journal notes how far the changes were read.
	noteReadEvery = 10 * time.Second
	// firstRead is how far back a journal begins if it is new, or if the database has another history
	// now. If there are at most fewChanges since then, the journal begins where the history does.
	firstRead  = 30 * 24 * time.Hour
	fewChanges = 10_000
)

// KeepJournal notes all changes of the database, from the point at which an earlier process stopped
// noting them.
func (w *Witness) KeepJournal(ctx context.Context) {
	var noted refdb.Cursor
	for again := false; ctx.Err() == nil; {
		w.read.begin()
		var err error
		if !again {
			noted, err = w.firstUnread(ctx)
		}
		if err == nil {
			noted, err = w.noteChanges(ctx, noted)
			// Changes made in the meantime are noted, too, unless the database has another history now.
			again = !errors.Is(err, refdb.ErrRewound) && !errors.Is(err, refdb.ErrPruned)
			if !again {
				err = errors.Join(err, w.Journal.NoteRead(""))
			}
		}
		if ctx.Err() == nil && !errors.Is(err, refdb.ErrUnavailable) {
			w.Logger.WarnContext(ctx, "the database's further changes could not be read", "class", refdb.ClassOf(err).String())
		}
		select {
		case <-time.After(compareAgain):
		case <-ctx.Done():
		}
	}
}

// firstUnread returns the cursor after which the journal may lack changes.
func (w *Witness) firstUnread(ctx context.Context) (refdb.Cursor, error) {
	text, err := w.Journal.Read()
	if err != nil {
		return refdb.Cursor{}, err
	}
	if c, err := refdb.ParseCursor(text); err == nil && text != "" {
		return c, nil
	}
	state, err := w.DB.HistoryState(ctx)
	if err != nil {
		return refdb.Cursor{}, err
	}
	all := refdb.Cursor{Mark: driver.ChangeKey{Position: state.Pruned}, Durable: true}
	now, err := w.DB.Now(ctx)
	if err != nil {
		return refdb.Cursor{}, err
	}
	at, err := w.DB.PositionAt(ctx, now.Add(-firstRead))
	switch {
	case errors.Is(err, refdb.ErrPruned):
		return all, nil
	case err != nil:
		return refdb.Cursor{}, err
	}
	some := refdb.Cursor{Mark: driver.ChangeKey{Position: at + 1}, Durable: true}
	few, err := w.atMost(ctx, some, state.Upto, fewChanges)
	if few {
		return all, err
	}
	return some, err
}

// atMost reports whether there are at most n changes after a cursor, up to a position.
func (w *Witness) atMost(ctx context.Context, after refdb.Cursor, upto driver.Position, n int) (bool, error) {
	found := 0
	for page, err := range w.DB.Changes(ctx, refdb.ChangeQuery{After: after}) {
		if err != nil {
			return false, err
		}
		if found += len(page.Changes); found > n {
			return false, nil
		}
		if page.Cursor.Position() >= upto {
			break
		}
	}
	return true, ctx.Err()
}

// noteChanges notes changes until an error. It returns the cursor up to which it has noted all.
func (w *Witness) noteChanges(ctx context.Context, after refdb.Cursor) (noted refdb.Cursor, err error) {
	end, err := w.DB.HistoryEnd(ctx)
	if err != nil {
		return after, err
	}
	told := time.Now()
	for page, err := range w.DB.Changes(ctx, refdb.ChangeQuery{After: after}) {
		if err != nil {
			return after, err
		}
		var earlier, known []driver.Known
		for _, c := range page.Changes {
			k := driver.Known{Project: c.Project, Ref: c.Ref, Old: c.Old, New: c.New, Op: c.Op, Owner: c.Owner, By: c.By, At: c.Time}
			switch {
			case c.Op == "":
			case c.Position <= end.Position():
				earlier = append(earlier, k)
			default:
				known = append(known, k)
			}
		}
		err := errors.Join(w.Journal.NoteEarlier(earlier), w.Journal.Note(known))
		if err == nil && len(page.Changes) > 0 && time.Since(told) >= noteReadEvery {
			err, told = w.Journal.NoteRead(page.Cursor.String()), time.Now()
		}
		if err != nil {
			return after, err
		}
		after = page.Cursor
		w.read.reach(after.Position(), end.Position())
	}
	return after, nil
}

// A progress is how far a reader of the changes has read.
type progress struct {
	mu      sync.Mutex
	at      driver.Position
	caught  bool          // it has read all changes that existed when it began
	changed chan struct{} // closed when any of this changes; nil while nobody waits
}

// begin records that the reader begins, perhaps in another history.
func (p *progress) begin() { p.set(0, false) }

// reach records that the reader has reached the position at. When it began, the changes ended at end.
func (p *progress) reach(at, end driver.Position) { p.set(at, at >= end) }

func (p *progress) set(at driver.Position, caught bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at, p.caught = at, caught
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// caughtUp reports whether the reader has read all changes that existed when it began.
func (p *progress) caughtUp() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.caught
}

// wait waits until the reader records, after the call, that it has reached a position, at most until
// ctx ends. A position that it recorded before the call may be of another history.
func (p *progress) wait(ctx context.Context, position driver.Position) error {
	for {
		p.mu.Lock()
		if p.changed == nil {
			p.changed = make(chan struct{})
		}
		changed := p.changed
		p.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("reading the changes: %w", ctx.Err())
		}
		p.mu.Lock()
		at := p.at
		p.mu.Unlock()
		if at >= position {
			return nil
		}
	}
}
