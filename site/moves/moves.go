// Package moves keeps the list of moves of a site: which refs have moved in which repositories, in
// order. Readers that keep indexes consume the list at their own pace, and resume at the place that
// they have reached.
//
// The list outlives its process, but not a crash of the machine: nothing is synced to the disk.
// When moves may be missing from the list, because the machine has crashed or the list could not be
// written or read, a new epoch begins, and all places of earlier epochs become invalid.
package moves

import (
	"errors"
	"path/filepath"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/site/internal/broadcast"
	"github.com/globalrefdb/globalrefdb/site/internal/segments"
)

var (
	// ErrReset means that the moves after a place are no longer on the list, or never were.
	ErrReset = errors.New("the list of moves no longer has all moves since then")
	// ErrUnwritable means that the list can't be written. [Log.Restore] tries to begin a new epoch.
	ErrUnwritable = errors.New("the list of moves can't be written")
)

// segmentSize is the maximum size of a segment, in bytes. The list consists of the last two
// segments.
const segmentSize = 32 << 20

// An Entry says that a ref may have moved.
type Entry struct {
	// Who is the guard that moved the ref and reported that, or "" if another or an unknown process
	// moved it.
	Who string
	Ref string // "" if the repository is new, has been removed, or has replaced another one
	Dir string // the repository's real path
}

// A Log is the list's files. Only one process at a time may have them open.
type Log struct {
	layout segments.Numbered
	boot   string
	note   string // the path of a file: see [Open]
	limit  int64  // segmentSize, except in tests
	fresh  bool   // a new epoch began when the list was opened

	mu       sync.Mutex
	epoch    string
	out      *segments.Log // nil if the list can't be written
	why      error         // the reason for that
	leftover bool          // files of an ended epoch may still exist
	begun    map[uint64]*Begun
	lastID   uint64              // of a Begun
	changed  broadcast.Broadcast // when the list has grown or can't be written
	count    uint64
}

// Begun holds moves that were announced by [Log.Begin] and have not ended.
type Begun struct {
	log     *Log
	id      uint64
	entries []Entry
	since   time.Time
}

// Refs returns the refs of the moves, by the paths of their repositories.
func (b *Begun) Refs() map[string][]string {
	refs := map[string][]string{}
	for _, e := range b.entries {
		refs[e.Dir] = append(refs[e.Dir], e.Ref)
	}
	return refs
}

// Dir returns the directory of the list in a daemon's state directory.
func Dir(state string) string { return filepath.Join(state, "moves") }

// Open opens the list in a directory, which it creates if necessary. It also returns the moves that
// earlier processes have begun and not ended.
//
// Note is the path of a file, preferably on another file system, which need not outlive a boot. The
// file records that an epoch has ended whose own files could be neither written nor removed at that
// time.
//
// If the list can't be read, or is of another boot of the machine, a new epoch begins. If the list
// can't be written, the error says so; the Log can still be used, as after a failed append.
func Open(dir, boot, note string) (log *Log, inherited []*Begun, err error) {
	return open(dir, boot, note, segmentSize)
}

func open(dir, boot, note string, limit int64) (*Log, []*Begun, error) {
	l := &Log{layout: segments.Numbered{Dir: dir}, boot: boot, note: note, limit: limit, begun: map[uint64]*Begun{}}
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.load()
	if err != nil {
		l.fail(err)
		l.fresh, err = true, l.restore()
	}
	var inherited []*Begun
	for _, b := range l.begun {
		inherited = append(inherited, b)
	}
	return l, inherited, err
}

// IsNew reports whether an epoch began when the list was opened: there was no list, or it could not
// be read.
func (l *Log) IsNew() bool { return l.fresh }

// Close closes the files. Moves that have not ended stay begun.
func (l *Log) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out != nil {
		l.close(errors.New("it was closed"))
		l.wake()
	}
}

// Append puts entries on the list, with one write to the file. No process may be able to make these
// moves any more.
//
// After an error the epoch has ended, so that no reader goes on as if nothing had moved.
func (l *Log) Append(entries ...Entry) error {
	if len(entries) == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.write(appendMoved(nil, time.Now(), entries)); err != nil {
		return err
	}
	l.added(len(entries))
	return nil
}

// Begin records moves that are about to be made. Readers get them once they have ended.
//
// Errors are those of [Log.Append]. After an error the moves may still be made: the next epoch
// records them.
func (l *Log) Begin(entries ...Entry) (*Begun, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastID++
	b := &Begun{log: l, id: l.lastID, entries: entries, since: time.Now()}
	err := l.write(b.append(nil))
	l.begun[b.id] = b
	return b, err
}

// End puts the moves on the list: no process can make them any more. Errors are those of
// [Log.Append].
func (b *Begun) End() error { return b.end(b.entries) }

// Drop ends the moves without putting them on the list: none was made. Errors are those of
// [Log.Append].
func (b *Begun) Drop() error { return b.end(nil) }

func (b *Begun) end(made []Entry) error {
	l := b.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begun[b.id] != b {
		return nil
	}
	delete(l.begun, b.id)
	// The end comes last: if only a part is written, the moves have not ended.
	if err := l.write(appendEnded(appendMoved(nil, time.Now(), made), b.id)); err != nil {
		return err
	}
	if len(made) > 0 {
		l.added(len(made))
	}
	return nil
}

// added counts new entries and wakes the readers that wait for them. l.mu is held.
func (l *Log) added(n int) {
	l.count += uint64(n)
	l.wake()
}

func (l *Log) wake() {
	l.changed.Send()
}

// Count returns how many entries this process has put on the list.
func (l *Log) Count() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

// Writable returns nil, or an error that wraps [ErrUnwritable] and says why.
func (l *Log) Writable() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.writable()
}

// Restore begins a new epoch if the list can't be written. The error wraps [ErrUnwritable].
func (l *Log) Restore() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out != nil {
		return nil
	}
	if err := l.room(); err != nil {
		l.why = err
		return l.writable()
	}
	return l.restore()
}
