// Package journal keeps on the site's disk what its daemon knows the database to hold: the changes that
// it made or saw, and its pending intents. With it a database that went back in time is noticed, and recovered.
//
// Lines are appended as they come, and not synced: what a crash of the machine takes along is no witness any
// more. The older half goes when there is too much.
package journal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/internal/durable"
)

const (
	// segmentBytes is the size at which a new file is begun. There are two: some 300,000 changes.
	segmentBytes = 32 << 20
	// recentChanges are kept in memory, too.
	recentChanges = 4096
)

// A Journal implements [refdb.Journal] in a directory of the daemon's state. It reads that when it is first used.
// One process uses the directory at a time: see presence.LockState.
type Journal struct {
	dir string

	mu      sync.Mutex
	loaded  bool
	file    *os.File
	size    int64
	segment int64
	recent  []refdb.Known // the newest changes, oldest first
	noted   map[name]bool // of recent
	pending map[name]refdb.Known
	settle  func(context.Context, []refdb.Known) ([]refdb.Known, bool, error)
}

// A name is that of a change or an intent. The op of an intent is the one that recorded it.
type name struct{ project, ref, op string }

func nameOf(k refdb.Known) name { return name{k.Project, k.Ref, k.Op} }

// New returns the journal of a state directory.
func New(state string) *Journal {
	return &Journal{dir: filepath.Join(state, "journal"), segment: segmentBytes}
}

// SettleWith sets how [Journal.Settle] finds out what became of moves.
func (j *Journal) SettleWith(settle func(context.Context, []refdb.Known) ([]refdb.Known, bool, error)) {
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
	Move    refdb.Move  `json:"m,omitempty"`
}

type kind string

const (
	change kind = "c"
	intent kind = "i"
	end    kind = "e" // of an intent, without a change
)

func lineOf(k refdb.Known) line {
	l := line{change, k.Project, k.Ref, k.Op, k.Old, k.New, k.Owner, k.By, k.Token, k.Agent, k.At.UnixMicro(), k.Move}
	if k.Token != 0 {
		l.Kind = intent
	}
	return l
}

func (l line) known() refdb.Known {
	return refdb.Known{
		Project: l.Project, Ref: l.Ref, Old: l.Old, New: l.New, Op: l.Op, Owner: l.Owner, By: l.By, Token: l.Token, Agent: l.Agent, At: time.UnixMicro(l.At).UTC(), Move: l.Move,
	}
}

// Note implements [refdb.Journal].
func (j *Journal) Note(known []refdb.Known) error {
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
		lines = append(lines, lineOf(k))
	}
	return j.append(lines)
}

// End implements [refdb.Journal].
func (j *Journal) End(project string, refs []string, op string) (ended []refdb.Known, err error) {
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

// Pending implements [refdb.Journal].
func (j *Journal) Pending() ([]refdb.Known, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	err := j.load()
	return slices.Collect(maps.Values(j.pending)), err
}

// Newest implements [refdb.Journal]. It reads the files for what is not in memory.
func (j *Journal) Newest(skip, limit int) ([]refdb.Known, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.load(); err != nil {
		return nil, err
	}
	all := j.recent
	if skip+limit > len(all) {
		all = nil
		err := j.read(func(l line) {
			if l.Kind == change {
				all = append(all, l.known())
			}
		})
		if err != nil {
			return nil, err
		}
	}
	last := max(0, len(all)-skip)
	found := slices.Clone(all[max(0, last-limit):last])
	slices.Reverse(found)
	return found, nil
}

// Settle implements [refdb.Journal].
func (j *Journal) Settle(ctx context.Context, lost []refdb.Known) ([]refdb.Known, bool, error) {
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

// noteMade notes the moves that were found to have been made. Later the repository has moved on, and
// can't tell: the database may go back twice.
func (j *Journal) noteMade(settled []refdb.Known) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.load(); err != nil {
		return err
	}
	var lines []line
	for _, k := range settled {
		if was, pending := j.pending[nameOf(k)]; pending && k.Move == refdb.MoveMade && was.Move != refdb.MoveMade {
			lines = append(lines, lineOf(k))
		}
	}
	return j.append(lines)
}

// Marks implements [refdb.Journal].
func (j *Journal) Marks() (marks []refdb.WitnessMark, err error) {
	text, err := os.ReadFile(j.path("witnesses"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &marks)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the daemon's state: %s: %w", j.path("witnesses"), err)
	}
	return marks, nil
}

// SetMarks implements [refdb.Journal].
func (j *Journal) SetMarks(marks []refdb.WitnessMark) error {
	text, err := json.Marshal(marks)
	if err == nil {
		err = os.MkdirAll(j.dir, 0o700)
	}
	if err != nil {
		return err
	}
	return durable.WriteState(j.path("witnesses"), append(text, '\n'))
}

// Close closes the file.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return nil
	}
	err := j.file.Close()
	j.file, j.loaded = nil, false
	return err
}

func (j *Journal) path(file string) string { return filepath.Join(j.dir, file) }

// The files, the older one first.
const (
	older = "changes.old"
	newer = "changes"
)

// load reads the files. Its callers have the lock, as those of all that follows.
func (j *Journal) load() error {
	if j.loaded {
		return nil
	}
	if err := os.MkdirAll(j.dir, 0o700); err != nil {
		return err
	}
	j.recent, j.noted, j.pending = nil, map[name]bool{}, map[name]refdb.Known{}
	if err := j.read(j.remember); err != nil {
		return err
	}
	if err := j.open(); err != nil {
		return err
	}
	j.loaded = true
	return nil
}

// open opens the newer file, unless it is open.
func (j *Journal) open() error {
	if j.file != nil {
		return nil
	}
	file, err := os.OpenFile(j.path(newer), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	size, err := file.Seek(0, io.SeekEnd)
	if err == nil && size > 0 {
		_, err = file.Write([]byte{'\n'}) // whatever a crash has left of the last line
		size++
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	j.file, j.size = file, size
	return nil
}

// read calls each for all lines that are whole.
func (j *Journal) read(each func(line)) error {
	for _, file := range []string{older, newer} {
		text, err := os.ReadFile(j.path(file))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("reading the daemon's state: %w", err)
		}
		for row := range bytes.Lines(text) {
			var l line
			if json.Unmarshal(row, &l) == nil && l.Kind != "" {
				each(l)
			}
		}
	}
	return nil
}

// remember takes what a line says into memory.
func (j *Journal) remember(l line) {
	k := l.known()
	switch l.Kind {
	case intent:
		j.pending[nameOf(k)] = k
	case end:
		delete(j.pending, nameOf(k))
	case change:
		delete(j.pending, name{k.Project, k.Ref, refdb.IntentOp(k.Op)})
		if j.noted[nameOf(k)] {
			return
		}
		j.recent = append(j.recent, k)
		j.noted[nameOf(k)] = true
		if len(j.recent) >= 2*recentChanges {
			gone := j.recent[:len(j.recent)-recentChanges]
			for _, k := range gone {
				delete(j.noted, nameOf(k))
			}
			j.recent = slices.Clone(j.recent[len(gone):])
		}
	}
}

// append writes lines at once. If a file can't be written, or a new one can't be begun, the next call tries again.
func (j *Journal) append(lines []line) error {
	if len(lines) == 0 {
		return nil
	}
	if err := j.open(); err != nil {
		return err
	}
	if j.size >= j.segment {
		if err := errors.Join(j.rotate(), j.open()); err != nil {
			return err
		}
	}
	return j.write(lines)
}

// rotate closes the newer file, and replaces the older one by it. Pending intents that the older one may hold are written again before
// that, so that no crash loses them.
func (j *Journal) rotate() error {
	var lines []line
	for _, k := range j.pending {
		lines = append(lines, lineOf(k))
	}
	size := j.size
	if err := j.write(lines); err != nil {
		return err
	}
	err := j.file.Sync() // the older file may have been on the disk for long
	if err == nil {
		err = os.Rename(j.path(newer), j.path(older))
	}
	if err != nil {
		return errors.Join(err, j.cut(size)) // else each try would add them
	}
	err = j.file.Close()
	j.file = nil
	return err
}

// cut removes what was written after the first size bytes of the open file.
func (j *Journal) cut(size int64) error {
	err := j.file.Truncate(size)
	if err == nil {
		j.size = size
	}
	return err
}

// write writes lines to the open file: all of them, or none.
func (j *Journal) write(lines []line) error {
	var text bytes.Buffer
	for _, l := range lines {
		row, err := json.Marshal(l)
		if err != nil {
			return err
		}
		text.Write(row)
		text.WriteByte('\n')
	}
	n, err := j.file.Write(text.Bytes())
	if err != nil {
		// An intent that is left would be pending after the next start, though its push was refused. If it can't be cut off, it is pending
		// now, too, so that its end is noted; a part of a line ends when the file is opened again.
		cut := j.cut(j.size)
		j.loaded = cut == nil
		err = errors.Join(err, cut, j.file.Close())
		j.file = nil
		return fmt.Errorf("writing the daemon's state: %w", err)
	}
	j.size += int64(n)
	for _, l := range lines {
		j.remember(l)
	}
	return nil
}
