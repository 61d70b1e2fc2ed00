// Package journal keeps on the site's disk what its daemon knows the database to hold: the changes
// that it made or saw, and its pending intents. The daemon uses it to notice and repair a database
// that went back in time.
//
// Appends are not synced: changes that a crash of the machine removes from the journal are lost as
// evidence. Testimonies are synced, with everything that was noted before. The journal is bounded: its
// older half is removed.
package journal

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/internal/segments"
)

const (
	// segmentBytes bounds each of the two files. They hold some 300,000 changes.
	segmentBytes = 32 << 20
	// recentChanges are kept in memory, too.
	recentChanges = 4096
)

// An Error says that the journal could not be read or written. While it can't be, the site's pushes
// are refused.
type Error struct{ Err error }

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// A Journal implements [driver.Journal] in a directory of the daemon's state. It reads that when it
// is first used. One process uses the directory at a time: see presence.LockState.
type Journal struct {
	dir string

	failed atomic.Pointer[Error] // of the last access to the files; nil if it succeeded

	mu      sync.Mutex
	log     *segments.Log // nil until it is loaded
	segment int64         // segmentBytes
	recent  []recent      // the newest changes, oldest first
	newest  int64         // the largest order of a change that this process has noted; 0 before the first
	earlier int64         // the largest order of a change that earlier processes noted
	trimmed bool          // the files have changes before those of recent
	noted   map[name]bool // of recent
	pending map[name]driver.Known
	read    string // the cursor that was noted last by NoteRead; "" if none was
	settle  func(context.Context, []driver.Known) ([]driver.Known, bool, error)
}

// A recent is a change in memory. Changes are in the order in which they were noted, whatever their
// times. The exception are changes that were made before this process began to note them: they are
// ordered by their times, after the changes that earlier processes noted and before those that this
// process notes.
type recent struct {
	driver.Known
	order int64 // microseconds
}

// A name is that of a change or an intent. The op of an intent is the one that recorded it.
type name struct{ project, ref, op string }

func nameOf(k driver.Known) name { return name{k.Project, k.Ref, k.Op} }

// New returns the journal of a state directory.
func New(state string) *Journal {
	return &Journal{dir: filepath.Join(state, "journal"), segment: segmentBytes}
}

// SettleWith sets how [Journal.Settle] finds out what became of moves.
func (j *Journal) SettleWith(settle func(context.Context, []driver.Known) ([]driver.Known, bool, error)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.settle = settle
}

// A line is one entry of a file.
type line struct {
	Kind    kind        `json:"k"`
	Project string      `json:"p"`
	Ref     string      `json:"r"`
	Op      string      `json:"op"`
	Old     refdb.Value `json:"o,omitempty"`
	New     refdb.Value `json:"n,omitempty"`
	Owner   string      `json:"w,omitempty"`
	By      string      `json:"by,omitempty"`
	Token   refdb.Token `json:"t,omitempty"`
	Agent   string      `json:"a,omitempty"`
	At      int64       `json:"at,omitempty"` // microseconds
	Move    driver.Move `json:"m,omitempty"`
	Order   int64       `json:"s,omitempty"` // of a change, as in recent; 0 if it equals At
}

type kind string

const (
	change kind = "c"
	intent kind = "i"
	end    kind = "e" // of an intent, without a change
	upto   kind = "u" // NoteRead: all changes up to the cursor Op were noted
)

func lineOf(k driver.Known) line {
	l := line{change, k.Project, k.Ref, k.Op, k.Old, k.New, k.Owner, k.By, k.Token, k.Agent, k.At.UnixMicro(), k.Move, 0}
	if k.Token != 0 {
		l.Kind = intent
	}
	return l
}

func (l line) known() driver.Known {
	return driver.Known{
		Project: l.Project, Ref: l.Ref, Old: l.Old, New: l.New, Op: l.Op, Owner: l.Owner, By: l.By, Token: l.Token,
		Agent: l.Agent, At: time.UnixMicro(l.At).UTC(), Move: l.Move,
	}
}

// Note implements [driver.Journal].
func (j *Journal) Note(known []driver.Known) error { return j.note(known, false) }

// NoteEarlier is Note for changes that were made before the process began to note them.
func (j *Journal) NoteEarlier(known []driver.Known) error { return j.note(known, true) }

func (j *Journal) note(known []driver.Known, earlier bool) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.load(); err != nil {
		return err
	}
	var lines []line
	here := make(map[name]bool, len(known))
	for _, k := range known {
		if k.Token == 0 && (j.noted[nameOf(k)] || here[nameOf(k)]) {
			continue // made here, and seen in the feed
		}
		here[nameOf(k)] = true
		l := lineOf(k)
		if l.Kind == change {
			l = j.place(l, earlier)
		}
		lines = append(lines, l)
	}
	return j.append(lines)
}

// place gives a change its order.
func (j *Journal) place(l line, earlier bool) line {
	order := max(l.At, j.earlier)
	if !earlier {
		j.newest = max(j.newest, l.At, j.earlier+1)
		order = j.newest
	}
	if order != l.At {
		l.Order = order
	}
	return l
}

// recent returns the change of a line.
func (l line) recent() recent { return recent{l.known(), cmp.Or(l.Order, l.At)} }

// NoteRead notes that all changes which the database has shown up to a cursor were noted.
func (j *Journal) NoteRead(cursor string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.load(); err != nil {
		return err
	}
	return j.append([]line{{Kind: upto, Op: cursor}})
}

// Read returns what was last given to NoteRead, also by earlier processes; "" if nothing was.
func (j *Journal) Read() (cursor string, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	err = j.load()
	return j.read, err
}

// End implements [driver.Journal].
func (j *Journal) End(project string, refs []string, op string) (ended []driver.Known, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.load(); err != nil {
		return nil, err
	}
	var lines []line
	for _, ref := range refs {
		if k, pending := j.pending[name{project, ref, op}]; pending {
			ended = append(ended, k)
			lines = append(lines, line{Kind: end, Project: project, Ref: ref, Op: op})
		}
	}
	return ended, j.append(lines)
}

// Pending implements [driver.Journal].
func (j *Journal) Pending() ([]driver.Known, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	err := j.load()
	return slices.Collect(maps.Values(j.pending)), err
}

// Newest implements [driver.Journal]. It reads the files for what is not in memory.
func (j *Journal) Newest(skip, limit int) ([]driver.Known, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.load(); err != nil {
		return nil, err
	}
	all := j.recent
	if skip+limit > len(all) {
		all = nil
		for _, s := range j.log.Segments() {
			_, err := s.Scan(0, func(text []byte) bool {
				if l, ok := parse(text); ok && l.Kind == change {
					all = append(all, l.recent())
				}
				return true
			})
			if err != nil {
				return nil, j.ended(fmt.Errorf("reading the daemon's state: %w", err))
			}
		}
		slices.SortStableFunc(all, func(a, b recent) int { return cmp.Compare(a.order, b.order) })
	}
	last := max(0, len(all)-skip)
	var found []driver.Known
	for _, r := range slices.Backward(all[max(0, last-limit):last]) {
		found = append(found, r.Known)
	}
	return found, nil
}

// Settle implements [driver.Journal].
func (j *Journal) Settle(ctx context.Context, lost []driver.Known) ([]driver.Known, bool, error) {
	j.mu.Lock()
	settle := j.settle
	j.mu.Unlock()
	if settle == nil {
		return lost, true, nil
	}
	settled, open, err := settle(ctx, lost)
	if err == nil {
		err = j.noteMade(settled)
	}
	return settled, open, err
}

// noteMade notes the moves that were found to have been made. Later the repository has moved on,
// and can't tell: the database may go back twice.
func (j *Journal) noteMade(settled []driver.Known) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.load(); err != nil {
		return err
	}
	var lines []line
	for _, k := range settled {
		if was, pending := j.pending[nameOf(k)]; pending && k.Move == driver.MoveMade && was.Move != driver.MoveMade {
			lines = append(lines, lineOf(k))
		}
	}
	return j.append(lines)
}

// Failed returns the error of the last access to the journal's files; nil if it succeeded. It waits
// for no access under way.
func (j *Journal) Failed() *Error { return j.failed.Load() }

// ended records how an access to the files has ended, and returns its error.
func (j *Journal) ended(err error) error {
	if err == nil {
		j.failed.Store(nil)
		return nil
	}
	e := &Error{err}
	j.failed.Store(e)
	return e
}

// Close closes the file.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.close()
}

func (j *Journal) close() error {
	if j.log == nil {
		return nil
	}
	err := j.log.Close()
	j.log = nil
	return err
}

func (j *Journal) path(file string) string { return filepath.Join(j.dir, file) }

// The files, the older one first.
const (
	older = "changes.old"
	newer = "changes"
)

// load reads the files, unless that was done. The caller holds the lock, as for all that follows.
func (j *Journal) load() error {
	if j.log != nil {
		return nil
	}
	if err := os.MkdirAll(j.dir, 0o700); err != nil {
		return j.ended(err)
	}
	j.recent, j.trimmed, j.noted, j.pending, j.read = nil, false, map[name]bool{}, map[name]driver.Known{}, ""
	log, err := segments.Open(segments.Pair{Older: j.path(older), Newer: j.path(newer)}, j.segment, j.replay)
	if err != nil {
		return j.ended(fmt.Errorf("reading the daemon's state: %w", err))
	}
	j.log = log
	if n := len(j.recent); n > 0 && j.newest == 0 {
		j.earlier = j.recent[n-1].order
	}
	return nil
}

// replay takes the lines of a segment into memory. It returns the size of the intents at its start
// that the segment before has, too.
func (j *Journal) replay(s segments.Segment) (repeated int64, err error) {
	start := true
	_, err = s.Scan(0, func(text []byte) bool {
		l, ok := parse(text)
		was, pending := j.pending[nameOf(l.known())]
		if start = start && ok && l.Kind == intent && pending && was == l.known(); start {
			repeated += int64(len(text) + 1)
		}
		if ok {
			j.remember(l)
		}
		return true
	})
	return repeated, err
}

// parse returns the line that a text is. A crash may have left a part of one.
func parse(text []byte) (l line, ok bool) {
	err := json.Unmarshal(text, &l)
	return l, err == nil && l.Kind != ""
}

// remember takes what a line says into memory.
func (j *Journal) remember(l line) {
	k := l.known()
	switch l.Kind {
	case intent:
		j.pending[nameOf(k)] = k
	case end:
		delete(j.pending, nameOf(k))
	case upto:
		j.read = l.Op
	case change:
		delete(j.pending, name{k.Project, k.Ref, driver.IntentOp(k.Op)})
		if j.noted[nameOf(k)] {
			return
		}
		r := l.recent()
		if j.trimmed && r.order < j.recent[0].order {
			return // its neighbours are only in the files
		}
		at, _ := slices.BinarySearchFunc(j.recent, r.order+1, func(r recent, order int64) int { return cmp.Compare(r.order, order) })
		j.recent = slices.Insert(j.recent, at, r)
		j.noted[nameOf(k)] = true
		if len(j.recent) >= 2*recentChanges {
			gone := j.recent[:len(j.recent)-recentChanges]
			for _, r := range gone {
				delete(j.noted, nameOf(r.Known))
			}
			j.recent, j.trimmed = slices.Clone(j.recent[len(gone):]), true
		}
	}
}

// append writes lines: all of them, or none. Otherwise an intent would be pending after the next
// start although its push was refused.
func (j *Journal) append(lines []line) error {
	if len(lines) == 0 {
		return nil
	}
	text, err := encode(lines)
	if err == nil {
		err = j.log.Append(text, j.repeated)
	}
	if errors.Is(err, segments.ErrReopen) {
		// An intent that could not be cut off is pending from now on, so that its end is noted.
		err = errors.Join(err, j.close())
	}
	if err != nil {
		err = fmt.Errorf("writing the daemon's state: %w", err)
	}
	if err = j.ended(err); err != nil {
		return err
	}
	for _, l := range lines {
		j.remember(l)
	}
	return nil
}

// repeated returns the lines that a segment repeats from earlier ones. The intents come first: see
// replay.
func (j *Journal) repeated() []byte {
	var lines []line
	for _, k := range j.pending {
		lines = append(lines, lineOf(k))
	}
	if j.read != "" {
		lines = append(lines, line{Kind: upto, Op: j.read})
	}
	text, _ := encode(lines) // they were encoded before
	return text
}

func encode(lines []line) (text []byte, err error) {
	for _, l := range lines {
		row, err := json.Marshal(l)
		if err != nil {
			return nil, err
		}
		text = append(append(text, row...), '\n')
	}
	return text, nil
}
