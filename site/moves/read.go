package moves

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/site/internal/segments"
)

// A Place is a position between entries of the list: a reader at a place has processed all entries
// before it. A Place is one word.
type Place string

// A Page is a part of the list that follows a place.
type Page struct {
	Entries []Entry // in order, without duplicates
	Next    Place   // after the last of them
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

// end returns the place at the end of the list. l.mu is held.
func (l *Log) end() Place {
	last := l.out.Last()
	return placeIn(l.epoch, l.layout.Number(last.Path), last.Size)
}

// End returns the place at the end of the list. The error wraps [ErrUnwritable].
func (l *Log) End() (Place, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return "", err
	}
	return l.end(), nil
}

// Wait waits until the list has entries after a place or can't be written, at most until ctx ends.
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

// Read returns a page that follows a place. The page may have no entries.
//
// The error wraps [ErrReset] if the place is invalid, and [ErrUnwritable] while the list can't be
// written.
func (l *Log) Read(after Place) (Page, error) {
	epoch, all, err := l.snapshot()
	if err != nil {
		return Page{}, err
	}
	i, offset, ok := l.find(epoch, all, after)
	if !ok {
		return Page{}, ErrReset
	}
	p := page{seen: map[Entry]bool{}}
	for ; i < len(all); i, offset = i+1, 0 {
		s := all[i]
		offset, err = scan(s, offset, p.add)
		if err != nil {
			return Page{}, err
		}
		p.Next = placeIn(epoch, l.layout.Number(s.Path), offset)
		if p.full {
			break
		}
	}
	// The files may have been those of the next epoch.
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

// add adds a record of size bytes, unless the page is full.
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

// snapshot returns the epoch and its segments as they are now.
func (l *Log) snapshot() (epoch string, all []segments.Segment, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return "", nil, err
	}
	return l.epoch, l.out.Segments(), nil
}

// find returns the segment that contains a place, and the offset in it.
func (l *Log) find(epoch string, all []segments.Segment, at Place) (i int, offset int64, ok bool) {
	fields := strings.Split(string(at), "-")
	if len(fields) != 3 || fields[0] != epoch {
		return 0, 0, false
	}
	number, err1 := strconv.ParseUint(fields[1], 10, 64)
	offset, err2 := strconv.ParseInt(fields[2], 10, 64)
	i = slices.IndexFunc(all, func(s segments.Segment) bool { return l.layout.Number(s.Path) == number })
	if errors.Join(err1, err2) != nil || i < 0 || offset < 0 || offset > all[i].Size {
		return 0, 0, false
	}
	return i, offset, true
}

// scan calls each with the records of a segment after an offset, until each returns false, and
// returns the offset behind the last record that each has accepted.
func scan(s segments.Segment, offset int64, each func(r record, size int) bool) (int64, error) {
	readable, isHead := true, offset == 0
	offset, err := s.Scan(offset, func(line []byte) bool {
		if isHead && bytes.HasPrefix(line, []byte(head)) {
			isHead = false
			return true
		}
		isHead = false
		var r record
		r, readable = parseRecord(string(line))
		return readable && each(r, len(line)+1)
	})
	switch {
	case errors.Is(err, fs.ErrNotExist): // the segment has just been removed
		return 0, ErrReset
	case errors.Is(err, segments.ErrDamaged):
		return 0, fmt.Errorf("%w: %w", ErrReset, err)
	case err == nil && !readable:
		return 0, fmt.Errorf("%w: %w", ErrReset, errUnreadable)
	}
	return offset, err
}

// Unread returns how many bytes of the list a reader at a place has not processed, and the time of
// the first entry among them. Known is false if the place is invalid.
func (l *Log) Unread(after Place) (size int64, oldest time.Time, known bool) {
	epoch, all, err := l.snapshot()
	if err != nil {
		return 0, time.Time{}, false
	}
	i, offset, ok := l.find(epoch, all, after)
	if !ok {
		return 0, time.Time{}, false
	}
	for ; i < len(all); i, offset = i+1, 0 {
		found := false
		at, err := scan(all[i], offset, func(r record, _ int) bool {
			if found = r.what == moved; found {
				oldest = r.at
			}
			return !found
		})
		if err != nil {
			return 0, time.Time{}, false
		}
		if found {
			for _, s := range all[i:] {
				size += s.Size
			}
			size -= at
			break
		}
	}
	now, _, err := l.snapshot()
	return size, oldest, err == nil && now == epoch
}
