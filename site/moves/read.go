package moves

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Place is behind an entry of the list, for whoever has dealt with all up to there. It is one word.
type Place string

// A Page is what follows a place.
type Page struct {
	Entries []Entry // in order; the same one only once
	Next    Place   // behind the last of them
}

// Bounds of a page, and of what is read for one.
const (
	pageEntries = 1000
	pageBytes   = 1<<20 - 64<<10 // of what a reader is sent
	pageScan    = 4 << 20
)

func placeIn(epoch string, segment uint64, offset int64) Place {
	return Place(fmt.Sprintf("%s-%d-%d", epoch, segment, offset))
}

// end returns where the list ends. l.mu is held.
func (l *Log) end() Place {
	last := l.segments[len(l.segments)-1]
	return placeIn(l.epoch, last.number, last.size)
}

// End returns the present place: all that is on the list is before it. An error wraps [ErrUnwritable].
func (l *Log) End() (Place, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return "", err
	}
	return l.end(), nil
}

// Wait waits until the list has something after a place, at most until ctx ends. It also returns if that can't be told.
func (l *Log) Wait(ctx context.Context, after Place) {
	for {
		l.mu.Lock()
		if l.out == nil || l.end() != after {
			l.mu.Unlock()
			return
		}
		changed := l.changed.Wait()
		l.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// Read returns what follows a place. The page may have no entries.
//
// An error wraps [ErrReset] if that is not known, and [ErrUnwritable] while it can't be told.
func (l *Log) Read(after Place) (Page, error) {
	epoch, segments, err := l.snapshot()
	if err != nil {
		return Page{}, err
	}
	i, offset, ok := find(epoch, segments, after)
	if !ok {
		return Page{}, ErrReset
	}
	p := page{seen: map[Entry]bool{}}
	for ; i < len(segments); i, offset = i+1, 0 {
		s := segments[i]
		offset, err = l.scan(s, offset, p.add)
		if err != nil {
			return Page{}, err
		}
		p.Next = placeIn(epoch, s.number, offset)
		if p.full {
			break
		}
	}
	// The files may have been those of the next one.
	if now, _, err := l.snapshot(); err != nil || now != epoch {
		return Page{}, errors.Join(err, ErrReset)
	}
	return p.Page, nil
}

// A page is a [Page] that grows.
type page struct {
	Page
	seen           map[Entry]bool
	bytes, scanned int
	full           bool
}

// add takes a record of so many bytes, unless the page is full.
func (p *page) add(r record, size int) bool {
	add := r.what == moved && !p.seen[r.entry]
	line := len(r.entry.Who) + len(r.entry.Ref) + len(r.entry.Dir) + 5
	if p.scanned+size > pageScan && p.scanned > 0 || add && len(p.Entries) > 0 && (len(p.Entries) == pageEntries || p.bytes+line > pageBytes) {
		p.full = true
		return false
	}
	p.scanned += size
	if add {
		p.Entries, p.seen[r.entry], p.bytes = append(p.Entries, r.entry), true, p.bytes+line
	}
	return true
}

// snapshot returns the epoch and what the segments have now.
func (l *Log) snapshot() (epoch string, segments []segment, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epoch, slices.Clone(l.segments), l.writable()
}

// find returns the segment that a place is in, and how far.
func find(epoch string, segments []segment, at Place) (i int, offset int64, ok bool) {
	fields := strings.Split(string(at), "-")
	if len(fields) != 3 || fields[0] != epoch {
		return 0, 0, false
	}
	number, err1 := strconv.ParseUint(fields[1], 10, 64)
	offset, err2 := strconv.ParseInt(fields[2], 10, 64)
	i = slices.IndexFunc(segments, func(s segment) bool { return s.number == number })
	if errors.Join(err1, err2) != nil || i < 0 || offset < 0 || offset > segments[i].size {
		return 0, 0, false
	}
	return i, offset, true
}

// scan calls each with the records of a segment after an offset, until it wants no more, and returns the offset behind what it took.
func (l *Log) scan(s segment, offset int64, each func(r record, size int) bool) (int64, error) {
	f, err := os.Open(l.path(s.number))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, ErrReset // it has just been dropped
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	// A place is behind a line.
	from := max(offset-1, 0)
	lines := bufio.NewReaderSize(io.NewSectionReader(f, from, s.size-from), 64<<10)
	if offset > 0 {
		if b, err := lines.ReadByte(); err != nil || b != '\n' {
			return 0, fmt.Errorf("%w: it does not begin with a line", ErrReset)
		}
	}
	for offset < s.size {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return 0, fmt.Errorf("%w: %w", ErrReset, err)
		}
		text := bytes.TrimSuffix(line, []byte{'\n'})
		if offset > 0 || !bytes.HasPrefix(text, []byte(head)) {
			r, ok := parseRecord(string(text))
			if !ok {
				return 0, fmt.Errorf("%w: %w", ErrReset, errUnreadable)
			}
			if !each(r, len(line)) {
				return offset, nil
			}
		}
		offset += int64(len(line))
	}
	return offset, nil
}

// Unread returns how many bytes of the list a reader at a place has not dealt with, and when the first entry among them came. If what follows the
// place is not known, known is false.
func (l *Log) Unread(after Place) (size int64, oldest time.Time, known bool) {
	epoch, segments, err := l.snapshot()
	if err != nil {
		return 0, time.Time{}, false
	}
	i, offset, ok := find(epoch, segments, after)
	if !ok {
		return 0, time.Time{}, false
	}
	for ; i < len(segments); i, offset = i+1, 0 {
		found := false
		at, err := l.scan(segments[i], offset, func(r record, _ int) bool {
			if found = r.what == moved; found {
				oldest = r.at
			}
			return !found
		})
		if err != nil {
			return 0, time.Time{}, false
		}
		if found {
			for _, s := range segments[i:] {
				size += s.size
			}
			size -= at
			break
		}
	}
	now, _, err := l.snapshot()
	return size, oldest, err == nil && now == epoch
}
