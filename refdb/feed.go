package refdb

import (
	"context"
	"errors"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/engine"
)

// feedWindow is how many of the last changes a feed keeps for readers that fall behind it.
const feedWindow = 4 * changesPage

// feeds is the feed of a DB, nil while no reader has caught up.
type feeds struct {
	mu      sync.Mutex
	current *feed
	turns   readTurns // of the readers that read by themselves
}

// A feed reads changes once for all readers of a DB that have caught up. So the database has one
// reader, however many there are.
//
// It is over when it fails, when the last reader leaves, when all are busy for a second, and when
// one comes that selects more than it reads. Its readers then read by themselves, each with its own
// cursor, and meet in the next feed. So does a reader that has fallen behind the window.
type feed struct {
	db      *DB
	source  changeReader // of run alone; what it selects does not change
	ctx     context.Context
	end     context.CancelFunc
	changed chan struct{} // buffered: a ref was changed by this process
	wanted  chan struct{} // buffered: a reader waits
	readers int           // guarded by feeds.mu

	mu      sync.Mutex
	window  window
	known   Cursor        // the last change that a reader brought, for source to look up
	waiting int           // readers that have all that was read
	told    int           // how often readers were told how far they are
	news    chan struct{} // closed when there is something for readers
}

// joinFeed returns the feed for a reader that has caught up. The reader leaves it in the end.
func (db *DB) joinFeed(r *changeReader) (*feed, error) {
	db.feeds.mu.Lock()
	defer db.feeds.mu.Unlock()
	f := db.feeds.current
	if f == nil || f.ctx.Err() != nil || !f.source.query.covers(r.query) {
		source := changeReader{db: db, query: r.query, cursor: r.cursor, limit: r.limit, isSource: true}
		if f != nil && f.ctx.Err() == nil {
			source.query = f.source.query.union(r.query)
			f.end()
		}
		source.query.Limit = 0
		f = &feed{db: db, source: source, changed: make(chan struct{}, 1), wanted: make(chan struct{}, 1), news: make(chan struct{})}
		f.window = window{start: r.cursor.Mark, page: driver.ChangesPage{Next: r.cursor.Mark}}
		f.ctx, f.end = context.WithCancel(db.engine.Closing)
		if !db.engine.InBackground(f.run) {
			f.end()
			return nil, ErrClosed
		}
		db.feeds.current = f
	}
	f.readers++
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.cursor.Last.Compare(f.known.Last) > 0 {
		f.known = r.cursor
	}
	r.told = f.told
	return f, nil
}

// leave ends the part of a reader. The last one ends the feed.
func (f *feed) leave() {
	f.db.feeds.mu.Lock()
	defer f.db.feeds.mu.Unlock()
	if f.readers--; f.readers > 0 {
		return
	}
	f.end()
	if f.db.feeds.current == f {
		f.db.feeds.current = nil
	}
}

// hint says that this process has changed a ref.
func (fs *feeds) hint() {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.current != nil {
		signal(fs.current.changed)
	}
}

// signal makes a channel with a buffer of one ready to be received from.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run reads until the feed is over.
func (f *feed) run() {
	defer f.end()
	pause := engine.NewBackOff(changesPauseMin, changesPauseMax)
	came := time.Now() // the last change of another process
	for said := time.Now(); ; {
		start := time.Now()
		f.mu.Lock()
		f.source.cursor = knowing(f.source.cursor, f.known)
		f.mu.Unlock()
		changes, err := f.source.read(f.ctx)
		if err != nil || f.source.interrupted {
			// The database may be another one now: each reader makes sure of its own cursor.
			return
		}
		tell := time.Since(said) >= progressEvery
		if tell {
			said = time.Now()
		}
		switch f.publish(changes, tell); {
		case slices.ContainsFunc(changes, f.ofAnother):
			came, pause.MaxInterval = time.Now(), changesPauseMax
			pause.Reset()
		case time.Since(came) > changesIdle:
			pause.MaxInterval = changesPauseIdle
		}
		if !f.source.atEnd {
			continue
		}
		// A database that takes long for an answer is asked less often.
		least := max(f.shortestPause(), 2*time.Since(start))
		if !f.pause(least, max(least, pause.NextBackOff()), pause.Reset) {
			return
		}
	}
}

// ofAnother reports whether another process has made a change. This one's are announced: they say
// nothing about when the next comes.
func (f *feed) ofAnother(c Change) bool { return c.Owner != f.db.Owner() }

// pause returns after most, or when a ref was changed, but not before least, nor before a reader
// waits. It returns false if the feed is over: a feed that did not go on would hold up new readers.
func (f *feed) pause(least, most time.Duration, changed func()) bool {
	begin := time.Now()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-f.changed:
		changed()
		engine.Sleep(f.ctx, least-time.Since(begin))
	case <-f.ctx.Done():
	}
	idle := time.After(progressEvery)
	for !f.isWanted() {
		select {
		case <-f.wanted:
		case <-idle:
			return false
		case <-f.ctx.Done():
			return false
		}
	}
	return f.ctx.Err() == nil
}

// shortestPause returns the least time between two looks. It grows with the readers, because
// each look that finds something wakes them all.
func (f *feed) shortestPause() time.Duration {
	f.db.feeds.mu.Lock()
	defer f.db.feeds.mu.Unlock()
	return min(changesPauseMin+time.Duration(f.readers)*changesPausePerReader, changesPauseIdle)
}

func (f *feed) isWanted() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.waiting > 0
}

// publish adds what was read to the window.
func (f *feed) publish(changes []Change, tell bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.window.add(changes, f.source.cursor.Mark, f.source.state)
	if tell {
		f.told++
	}
	if tell || len(changes) > 0 {
		close(f.news)
		f.news = make(chan struct{})
	}
}

// errBehind: a reader has to read by itself.
var errBehind = errors.New("the feed does not have the changes after the cursor")

// next waits until there are changes for r, or until it is time to tell how far r is.
func (f *feed) next(ctx context.Context, r *changeReader) ([]Change, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		if f.ctx.Err() != nil || r.cursor.Mark.Compare(f.window.start) < 0 {
			return nil, errBehind
		}
		tell := r.told != f.told
		r.told = f.told
		if r.cursor.Mark.Compare(f.window.page.Next) < 0 {
			changes, err := r.accept(f.window.after(r.cursor, r.query))
			if err != nil || len(changes) > 0 {
				return changes, err
			}
		}
		if tell && r.cursor.Mark.Compare(f.window.page.Next) > 0 {
			return nil, errBehind // or is it the database that went back?
		}
		if tell {
			return nil, nil
		}
		if err := f.wait(ctx); err != nil {
			return nil, err
		}
	}
}

// wait waits for news, without the lock.
func (f *feed) wait(ctx context.Context) error {
	news := f.news
	f.waiting++
	f.mu.Unlock()
	signal(f.wanted)
	select {
	case <-news:
	case <-f.ctx.Done():
	case <-ctx.Done():
	}
	f.mu.Lock()
	f.waiting--
	return ctx.Err()
}

// A window is the last changes that were read, as one page.
type window struct {
	start driver.ChangeKey // all that was selected after start is in page
	page  driver.ChangesPage
}

// add adds what comes after the window.
func (w *window) add(changes []Change, next driver.ChangeKey, s HistoryState) {
	w.page.Changes = append(w.page.Changes, changes...)
	w.page.Next, w.page.State = next, s
	if extra := len(w.page.Changes) - feedWindow; extra > 0 {
		w.start = w.page.Changes[extra-1].Key()
		clear(w.page.Changes[:extra])
		w.page.Changes = w.page.Changes[extra:]
	}
}

// after returns the page that the database would have returned to a reader in the window. A change
// before the window was looked up with what was read later.
func (w *window) after(c Cursor, q ChangeQuery) driver.ChangesPage {
	p := driver.ChangesPage{Next: w.page.Next, State: w.page.State, LastOp: c.LastOp, LastFound: true}
	if c.Last.Compare(w.start) > 0 {
		i, found := slices.BinarySearchFunc(w.page.Changes, c.Last, func(o Change, k driver.ChangeKey) int { return o.Key().Compare(k) })
		if p.LastFound = found; found {
			p.LastOp = w.page.Changes[i].Op
		}
	}
	first := sort.Search(len(w.page.Changes), func(i int) bool { return w.page.Changes[i].Key().Compare(c.Mark) > 0 })
	for _, change := range w.page.Changes[first:] {
		if !q.selects(change) {
			continue
		}
		if p.Changes = append(p.Changes, change); len(p.Changes) == q.limit() {
			p.Next = change.Key()
			break
		}
	}
	return p
}

func (q ChangeQuery) selects(c Change) bool {
	return (q.Project == "" || q.Project == c.Project) && strings.HasPrefix(c.Ref, q.Prefix)
}

// covers reports whether q selects all that other does.
func (q ChangeQuery) covers(other ChangeQuery) bool {
	return q.Project == "" || q.Project == other.Project && strings.HasPrefix(other.Prefix, q.Prefix)
}

// union returns a query that covers both.
func (q ChangeQuery) union(other ChangeQuery) ChangeQuery {
	if q.Project == other.Project {
		return ChangeQuery{Project: q.Project}
	}
	return ChangeQuery{}
}
