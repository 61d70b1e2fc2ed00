package moves

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/site/internal/segments"
)

// A segment begins with a head, which names the epoch and the boot. Records follow, one a line:
// first the moves that were begun in earlier segments and have not ended.

// The first words of lines.
const (
	head  = "refdb-moves 1"
	moved = "moved" // moved TIME WHO REF DIR
	begun = "begun" // begun TIME ID REF DIR
	ended = "ended" // ended ID
)

var errUnreadable = errors.New("the list of moves can't be read")

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

// appendLine omits an entry that no line can hold. Such an entry could not be sent to readers
// either.
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
	id    uint64 // unless what is moved
	entry Entry  // unless what is ended
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

// load reads the list that an earlier process left. l.mu is held, as for all that follows.
func (l *Log) load() error {
	l.epoch = ""
	log, err := segments.Open(l.layout, l.limit, l.replay)
	if err != nil {
		return err
	}
	l.out = log
	return nil
}

// replay reads from a segment which moves were begun and have not ended. It returns the size of the
// head and of the records that repeat those of the segment before.
func (l *Log) replay(s segments.Segment) (repeated int64, err error) {
	before := l.begun
	l.begun = make(map[uint64]*Begun, len(before)) // the segment begins with all that was begun before
	first, readable := true, false
	_, err = s.Scan(0, func(line []byte) bool {
		if first {
			first, readable = false, l.continues(string(line))
			repeated += int64(len(line) + 1)
			return readable
		}
		var r record
		if r, readable = parseRecord(string(line)); !readable {
			return false
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
				repeated += int64(len(line) + 1)
			}
		case ended:
			delete(l.begun, r.id)
		}
		return true
	})
	if err == nil && !readable {
		err = errUnreadable
	}
	return repeated, err
}

// continues reports whether a segment with that head belongs to the list: it is of this boot, and
// of the same epoch as the segment before, which has not ended.
func (l *Log) continues(first string) bool {
	fields := strings.Split(strings.TrimPrefix(first, head+" "), " ")
	if len(fields) != 2 || l.epoch != "" && fields[0] != l.epoch {
		return false
	}
	l.epoch = fields[0]
	return first+"\n" == l.head() && !l.hasEnded()
}

// write appends text to the list. After an error the epoch has ended.
func (l *Log) write(text []byte) error {
	if err := l.writable(); err != nil {
		return err
	}
	if err := l.out.Append(text, l.preamble); err != nil {
		return l.fail(err)
	}
	return nil
}

// preamble returns what a segment begins with.
func (l *Log) preamble() []byte {
	b := []byte(l.head())
	ids := make([]uint64, 0, len(l.begun))
	for id := range l.begun {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, cmp.Compare)
	for _, id := range ids {
		b = l.begun[id].append(b)
	}
	return b
}

func (l *Log) writable() error {
	if l.out == nil {
		return fmt.Errorf("%w: %w", ErrUnwritable, l.why)
	}
	return nil
}

// fail ends the epoch, because moves may be missing from it, and returns why. A later process must
// not find the epoch either.
func (l *Log) fail(why error) error {
	l.close(why)
	l.leftover = true
	if l.dropEpoch() != nil {
		// If this fails, too, nothing more can be done.
		os.WriteFile(l.note, []byte(cmp.Or(l.epoch, anyEpoch)), 0o600)
	}
	l.wake()
	return l.writable()
}

// close closes the files.
func (l *Log) close(why error) {
	if l.out != nil {
		l.out.Close()
	}
	l.out, l.why = nil, why
}

// dropEpoch removes the files of the epoch, all at once.
func (l *Log) dropEpoch() error {
	if !l.leftover {
		return nil
	}
	dir := l.layout.Dir
	aside := dir + ".ended"
	err := os.RemoveAll(aside)
	if err == nil {
		err = os.Rename(dir, aside)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l.leftover = false
	return errors.Join(os.RemoveAll(aside), os.RemoveAll(l.note))
}

// anyEpoch stands for the epoch of files whose heads could not be read.
const anyEpoch = "*"

// hasEnded reports whether the note's file records that the epoch has ended.
func (l *Log) hasEnded() bool {
	noted, err := os.ReadFile(l.note)
	return err == nil && (string(noted) == l.epoch || string(noted) == anyEpoch)
}

// room returns an error if the disk is nearly full: an epoch that ended at once would only make
// readers compare everything again and again.
func (l *Log) room() error {
	path := l.layout.Dir + ".room"
	return errors.Join(os.WriteFile(path, make([]byte, 1<<20), 0o600), os.Remove(path))
}

// restore begins an epoch.
func (l *Log) restore() error {
	err := l.dropEpoch()
	if err == nil {
		err = os.MkdirAll(l.layout.Dir, 0o700)
	}
	if err == nil {
		l.epoch = rand.Text()
		if l.out, err = segments.Create(l.layout, l.limit, l.preamble()); err != nil {
			l.leftover = true
		}
	}
	l.why = err
	if err != nil {
		return l.writable()
	}
	l.wake()
	return nil
}
