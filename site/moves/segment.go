package moves

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A segment is a file of lines: a head, which names the epoch and the boot, and records. It only grows.
type segment struct {
	number uint64
	size   int64 // of what is complete
	begins int64 // how much of that it began with
}

// An appender is the file that is written.
type appender interface {
	io.Writer
	io.Closer
}

// The first words of lines.
const (
	head  = "refdb-moves 1"
	moved = "moved" // moved TIME WHO REF DIR
	begun = "begun" // begun TIME ID REF DIR
	ended = "ended" // ended ID
)

var errUnreadable = errors.New("the list of moves can't be read")

func (l *Log) path(number uint64) string {
	return filepath.Join(l.dir, fmt.Sprintf("%016d", number))
}

func (l *Log) head() string { return head + " " + l.epoch + " " + l.boot + "\n" }

func appendMoved(b []byte, now time.Time, entries []Entry) []byte {
	for _, e := range entries {
		b = appendLine(b, moved, now, orDash(e.Who), e)
	}
	return b
}

func (b *Begun) append(to []byte) []byte {
	for _, e := range b.entries {
		to = appendLine(to, begun, b.since, strconv.FormatUint(b.id, 10), e)
	}
	return to
}

func appendEnded(b []byte, id uint64) []byte { return fmt.Appendf(b, "%s %d\n", ended, id) }

// appendLine leaves out what no line can hold. No reader could be told of it either.
func appendLine(b []byte, what string, at time.Time, which string, e Entry) []byte {
	if strings.ContainsAny(e.Ref, " \n") || strings.Contains(e.Dir, "\n") || !strings.HasPrefix(e.Dir, "/") {
		return b
	}
	return fmt.Appendf(b, "%s %d %s %s %s\n", what, at.Unix(), which, orDash(e.Ref), e.Dir)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func unlessDash(s string) string {
	if s == "-" {
		return ""
	}
	return s
}

// A record is a line after the head.
type record struct {
	what  string
	at    time.Time
	id    uint64 // unless it is moved
	entry Entry  // unless it is ended
}

func parseRecord(line string) (r record, ok bool) {
	var rest string
	r.what, rest, _ = strings.Cut(line, " ")
	var err error
	if r.what == ended {
		r.id, err = strconv.ParseUint(rest, 10, 64)
		return r, err == nil
	}
	at, rest, _ := strings.Cut(rest, " ")
	which, rest, _ := strings.Cut(rest, " ")
	ref, dir, _ := strings.Cut(rest, " ")
	seconds, err := strconv.ParseInt(at, 10, 64)
	r.at, r.entry = time.Unix(seconds, 0), Entry{Ref: unlessDash(ref), Dir: dir}
	if err != nil || which == "" || ref == "" || !strings.HasPrefix(dir, "/") {
		return r, false
	}
	switch r.what {
	case moved:
		r.entry.Who = unlessDash(which)
	case begun:
		r.id, err = strconv.ParseUint(which, 10, 64)
		return r, err == nil
	default:
		return r, false
	}
	return r, true
}

// numbers returns the numbers of the segments in l.dir, in order.
func (l *Log) numbers() (all []uint64, err error) {
	entries, err := os.ReadDir(l.dir)
	for _, e := range entries {
		if n, err := strconv.ParseUint(e.Name(), 10, 64); err == nil && l.path(n) == filepath.Join(l.dir, e.Name()) {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return all, err
}

// load reads what an earlier process has left. l.mu is held, as for all that follows.
func (l *Log) load() error {
	numbers, err := l.numbers()
	if err != nil {
		return err
	}
	for i, n := range numbers {
		text, err := os.ReadFile(l.path(n))
		if err != nil {
			return err
		}
		first, _, whole := bytes.Cut(text, []byte{'\n'})
		fields := strings.Split(strings.TrimPrefix(string(first), head+" "), " ")
		if !whole || len(fields) != 2 || fields[1] != l.boot || i > 0 && fields[0] != l.epoch {
			return errUnreadable // or of another boot
		}
		l.epoch = fields[0]
		if string(first)+"\n" != l.head() || l.hasEnded() {
			return errUnreadable
		}
		// A process that was killed may have left a part of a line.
		text = text[:bytes.LastIndexByte(text, '\n')+1]
		begins, err := l.replay(text[len(first)+1:])
		if err != nil {
			return err
		}
		l.segments = append(l.segments, segment{number: n, size: int64(len(text)), begins: int64(len(first)+1) + begins})
	}
	if len(l.segments) == 0 {
		return fs.ErrNotExist
	}
	last := l.segments[len(l.segments)-1]
	if err := os.Truncate(l.path(last.number), last.size); err != nil {
		return err
	}
	f, err := os.OpenFile(l.path(last.number), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	l.out = f
	return l.dropOld()
}

// replay learns from a segment what was begun and not ended. It returns how many bytes of text repeat what segments before have, too.
func (l *Log) replay(text []byte) (repeated int64, err error) {
	before := l.begun
	l.begun = make(map[uint64]*Begun, len(before)) // the segment begins with all that was begun before
	for line := range bytes.Lines(text) {
		r, ok := parseRecord(string(line[:len(line)-1]))
		if !ok {
			return 0, errUnreadable
		}
		switch r.what {
		case begun:
			b := l.begun[r.id]
			if b == nil {
				b = &Begun{log: l, id: r.id, since: r.at}
				l.begun[r.id], l.lastID = b, max(l.lastID, r.id)
			}
			b.entries = append(b.entries, r.entry)
			if before[r.id] != nil {
				repeated += int64(len(line))
			}
		case ended:
			delete(l.begun, r.id)
		}
	}
	return repeated, nil
}

// write appends text to the last segment.
func (l *Log) write(text []byte) error {
	if err := l.writable(); err != nil {
		return err
	}
	last := &l.segments[len(l.segments)-1]
	// What a segment began with does not count: otherwise many moves that are under way would have each line begin another one.
	if last.size-last.begins+int64(len(text)) > l.limit && last.size > last.begins {
		return l.rotate(text)
	}
	if _, err := l.out.Write(text); err != nil {
		return l.fail(err)
	}
	last.size += int64(len(text))
	return nil
}

// rotate begins a segment with text.
func (l *Log) rotate(text []byte) error {
	err := l.newSegment(l.segments[len(l.segments)-1].number+1, text)
	if err == nil {
		err = l.dropOld()
	}
	if err != nil {
		return l.fail(err)
	}
	return nil
}

// newSegment makes a segment, as a whole, with all that is begun, and text.
func (l *Log) newSegment(number uint64, text []byte) error {
	b := []byte(l.head())
	for _, id := range l.begunIDs() {
		b = l.begun[id].append(b)
	}
	begins := int64(len(b))
	b = append(b, text...)
	unfinished := l.path(number) + ".new"
	f, err := os.OpenFile(unfinished, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = os.Rename(unfinished, l.path(number))
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	if l.out != nil {
		l.out.Close()
	}
	l.out = f
	l.segments = append(l.segments, segment{number: number, size: int64(len(b)), begins: begins})
	return nil
}

func (l *Log) begunIDs() []uint64 {
	ids := make([]uint64, 0, len(l.begun))
	for id := range l.begun {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, cmp.Compare)
	return ids
}

// dropOld removes all segments but the last two.
func (l *Log) dropOld() error {
	for len(l.segments) > 2 {
		if err := os.Remove(l.path(l.segments[0].number)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		l.segments = slices.Delete(l.segments, 0, 1)
	}
	return nil
}

func (l *Log) writable() error {
	if l.out == nil {
		return fmt.Errorf("%w: %w", ErrUnwritable, l.why)
	}
	return nil
}

// fail ends the epoch, because something may be missing from it, and returns why. A process that comes later must not find it either.
func (l *Log) fail(why error) error {
	if l.out != nil {
		l.out.Close()
	}
	l.out, l.why, l.segments, l.leftover = nil, why, nil, true
	if l.dropEpoch() != nil {
		os.WriteFile(l.note, []byte(cmp.Or(l.epoch, anyEpoch)), 0o600) // if that fails, too, there is nothing more to do
	}
	l.wake()
	return l.writable()
}

// dropEpoch takes the files of the epoch away, all at once.
func (l *Log) dropEpoch() error {
	if !l.leftover {
		return nil
	}
	aside := l.dir + ".ended"
	err := os.RemoveAll(aside)
	if err == nil {
		err = os.Rename(l.dir, aside)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l.leftover = false
	return errors.Join(os.RemoveAll(aside), os.RemoveAll(l.note))
}

// anyEpoch stands for the epoch of files whose heads could not be read.
const anyEpoch = "*"

// hasEnded reports whether the epoch was noted as one that has ended.
func (l *Log) hasEnded() bool {
	noted, err := os.ReadFile(l.note)
	return err == nil && (string(noted) == l.epoch || string(noted) == anyEpoch)
}

// room returns an error if the disk is nearly full: an epoch that ended at once would only have readers compare everything again and again.
func (l *Log) room() error {
	path := l.dir + ".room"
	return errors.Join(os.WriteFile(path, make([]byte, 1<<20), 0o600), os.Remove(path))
}

// restore begins an epoch.
func (l *Log) restore() error {
	err := l.dropEpoch()
	if err == nil {
		err = os.MkdirAll(l.dir, 0o700)
	}
	if err == nil {
		l.epoch, l.segments = rand.Text(), nil
		if err = l.newSegment(1, nil); err != nil {
			l.leftover = true
		}
	}
	if err != nil {
		l.why = err
		return l.writable()
	}
	l.why = nil
	l.wake()
	return nil
}
