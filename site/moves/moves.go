// Package moves keeps the list of moves of a site: which refs have moved, and in which repositories, in order. Readers that keep indexes
// go through it, each at its own pace, and come back with their place.
//
// The list outlives its process, not the machine's crash: nothing is synced to the disk. It has an epoch. When moves may be missing from the
// list (the machine has crashed, the list could not be written or read) a new epoch begins, and no place of an earlier one is good any more.
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
	// ErrReset: what has moved after a place is not on the list any more, or was never on it.
	ErrReset = errors.New("what has moved since is not on the list of moves any more")
	// ErrUnwritable: the list can't be written. [Log.Restore] tries again.
	ErrUnwritable = errors.New("the list of moves can't be written")
)

// segmentSize bounds a segment. The list has the last two.
const segmentSize = 32 << 20

// An Entry says that a ref may have moved.
type Entry struct {
	Who string // the guard that moved it itself and reported that; "" if it was somebody else, or nobody knows
	Ref string // "" if the repository is new there, has gone, or took the place of another
	Dir string // the repository's real path
}

// A Log is the list's files. One process has it open at a time.
type Log struct {
	layout segments.Numbered
	boot   string
	note   string // a file
	limit  int64  // segmentSize
	fresh  bool

	mu       sync.Mutex
	epoch    string
	out      *segments.Log // nil if the list can't be written
	why      error         // why that is so
	leftover bool          // files of the epoch that has ended may still be there
	begun    map[uint64]*Begun
	lastID   uint64              // of a Begun
	changed  broadcast.Broadcast // when the list has something new
	count    uint64
}

// Begun are moves that were announced by [Log.Begin] and have not ended.
type Begun struct {
	log     *Log
	id      uint64
	entries []Entry
	since   time.Time
}

// Dirs returns the repositories of the moves.
func (b *Begun) Dirs() (dirs []string) {
	for _, e := range b.entries {
		dirs = append(dirs, e.Dir)
	}
	return dirs
}

// Dir returns the directory of the list in a daemon's state directory.
func Dir(state string) string { return filepath.Join(state, "moves") }

// Open opens the list in a directory, which it makes. What an earlier process has begun and not ended is in left.
//
// Note is a file, best on another file system, which need not outlive a boot. There it says that an epoch has ended, if its own files can
// neither be written nor taken away then.
//
// If the list can't be read, or is of another boot of the machine, a new epoch begins. If it can't be written, the error says so; the
// Log can be used nevertheless, as after an append that has failed.
func Open(dir, boot, note string) (log *Log, left []*Begun, err error) {
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
	var left []*Begun
	for _, b := range l.begun {
		left = append(left, b)
	}
	return l, left, err
}

// IsNew reports whether an epoch began when the list was opened: there was none, or it could not be read.
func (l *Log) IsNew() bool { return l.fresh }

// Close ends the use of the list. What is begun stays.
func (l *Log) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out != nil {
		l.close(errors.New("it was closed"))
		l.wake()
	}
}

// Append puts entries on the list, with one write to the file. Nobody can make the moves any more that they stand for.
//
// After an error the list has ended its epoch: no reader goes on as if nothing had moved.
func (l *Log) Append(entries ...Entry) error {
	if len(entries) == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.write(appendMoved(nil, time.Now(), entries)); err != nil {
		return err
	}
	l.tell(len(entries))
	return nil
}

// Begin records moves that are about to be made. They are given out when they have ended.
//
// An error is that of [Log.Append]. The moves may be made nevertheless: they are recorded in the next epoch.
func (l *Log) Begin(entries ...Entry) (*Begun, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastID++
	b := &Begun{log: l, id: l.lastID, entries: entries, since: time.Now()}
	err := l.write(b.append(nil))
	l.begun[b.id] = b
	return b, err
}

// End gives out moves that were begun: nobody can make them any more. An error is that of [Log.Append].
func (b *Begun) End() error {
	l := b.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begun[b.id] != b {
		return nil
	}
	delete(l.begun, b.id)
	// If only a part is written, it is not the end.
	if err := l.write(appendEnded(appendMoved(nil, time.Now(), b.entries), b.id)); err != nil {
		return err
	}
	l.tell(len(b.entries))
	return nil
}

// tell lets those look again who wait for something new. l.mu is held.
func (l *Log) tell(n int) {
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

// Restore lets a new epoch begin if the list can't be written. An error wraps [ErrUnwritable].
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
