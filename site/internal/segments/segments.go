// Package segments keeps an append-only log of lines in two files, its segments, so that the log
// stays bounded.
//
// A log outlives its process: a segment appears as a whole, an append is one write, and the part of
// a line that a killed process has left at the end is cut off when the log is opened. It need not
// outlive a crash of the machine: appends are not synced, but by Sync. The caller defines the lines, and what a
// damaged one means.
package segments

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/globalrefdb/globalrefdb/site/internal/durable"
)

var (
	// ErrReopen: a failed call may have left lines that are not part of the log. The log has to be
	// closed and opened again before it is used.
	ErrReopen = errors.New("the log has to be opened again")
	// ErrDamaged: a segment does not have a line at an offset, or no longer has all its lines.
	ErrDamaged = errors.New("the segment is damaged")
)

// kept is the number of segments that a log has: the one that grows, and the one before.
const kept = 2

// A Layout says in which files the segments are.
type Layout interface {
	// Paths returns the paths of the last segments, oldest first. It completes an Add that was
	// interrupted.
	Paths() ([]string, error)
	// Unfinished returns the path at which a segment is written before Add.
	Unfinished() string
	// Add makes the file at Unfinished the newest segment, and removes all others but the one
	// before. An error wraps [ErrReopen] if the segments are not what they were.
	Add() error
}

// A Segment is a file of a log, as far as it was complete when the Segment was obtained.
type Segment struct {
	Path string
	Size int64 // of the complete lines

	repeated int64 // bytes at the start that repeat earlier segments
}

// A Log is an append-only log. It is not safe for concurrent use; a [Segment] is.
type Log struct {
	layout   Layout
	limit    int64
	segments []Segment // oldest first; the last one grows
	out      *os.File  // the last one
}

// Open opens the log that an earlier process has left. The error wraps [fs.ErrNotExist] if there is
// none.
//
// Replay is called with each segment, oldest first, before anything is changed. It returns the
// number of bytes at the segment's start that repeat earlier segments: they don't count toward the
// limit.
func Open(layout Layout, limit int64, replay func(Segment) (repeated int64, err error)) (*Log, error) {
	paths, err := layout.Paths()
	if err == nil && len(paths) == 0 {
		err = fmt.Errorf("there is no segment: %w", fs.ErrNotExist)
	}
	if err != nil {
		return nil, err
	}
	l := &Log{layout: layout, limit: limit}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		s := Segment{Path: path, Size: int64(bytes.LastIndexByte(text, '\n') + 1)}
		if s.repeated, err = replay(s); err != nil {
			return nil, err
		}
		l.segments = append(l.segments, s)
	}
	last := l.last()
	if l.out, err = os.OpenFile(last.Path, os.O_WRONLY|os.O_APPEND, 0); err != nil {
		return nil, err
	}
	if err := l.out.Truncate(last.Size); err != nil {
		return nil, errors.Join(err, l.out.Close())
	}
	return l, nil
}

// Create begins a log with some lines, which don't count toward the limit. A new segment begins
// before the present one exceeds the limit, in bytes.
func Create(layout Layout, limit int64, lines []byte) (*Log, error) {
	l := &Log{layout: layout, limit: limit}
	if err := l.add(lines, nil); err != nil {
		return nil, err
	}
	return l, nil
}

// Close closes the log's file.
func (l *Log) Close() error { return l.out.Close() }

// Sync makes the log outlive a crash of the machine, up to here.
func (l *Log) Sync() error {
	return errors.Join(l.out.Sync(), durable.SyncDir(filepath.Dir(l.last().Path)))
}

// Segments returns the segments, oldest first. There is at least one.
func (l *Log) Segments() []Segment { return slices.Clone(l.segments) }

// Last returns the newest segment.
func (l *Log) Last() Segment { return *l.last() }

func (l *Log) last() *Segment { return &l.segments[len(l.segments)-1] }

// Append adds lines, all or none, with one write. If a new segment begins with them, repeat is
// called for what has to be repeated from earlier segments, because these will be removed.
//
// Any number of bytes may be repeated: they don't count toward the limit, or each append would
// begin a segment once there are many.
func (l *Log) Append(lines []byte, repeat func() []byte) error {
	last := l.last()
	if last.Size > last.repeated && last.Size-last.repeated+int64(len(lines)) > l.limit {
		return l.add(repeat(), lines)
	}
	if _, err := l.out.Write(lines); err != nil {
		if cut := l.out.Truncate(last.Size); cut != nil {
			err = errors.Join(ErrReopen, err, cut)
		}
		return err
	}
	last.Size += int64(len(lines))
	return nil
}

// add begins a segment.
func (l *Log) add(repeated, lines []byte) error {
	text := slices.Concat(repeated, lines)
	f, err := os.OpenFile(l.layout.Unfinished(), os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if _, err = f.Write(text); err == nil {
		err = l.layout.Add()
	}
	var paths []string
	if err == nil {
		if paths, err = l.layout.Paths(); err != nil {
			err = errors.Join(ErrReopen, err)
		}
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	if l.out != nil {
		l.out.Close()
	}
	l.out = f
	l.segments = append(l.segments, Segment{Size: int64(len(text)), repeated: int64(len(repeated))})
	l.segments = slices.Delete(l.segments, 0, max(0, len(l.segments)-kept))
	for i := range l.segments { // a layout may rename older ones
		l.segments[i].Path = paths[len(paths)-len(l.segments)+i]
	}
	return nil
}

// Scan calls each with the complete lines of s that begin at or after an offset, without their
// ends, until each returns false. It returns the offset behind the last line that each has
// accepted.
//
// The error wraps [fs.ErrNotExist] if the segment was removed, and [ErrDamaged] if no line begins
// at the offset or a line can't be read.
func (s Segment) Scan(offset int64, each func(line []byte) bool) (int64, error) {
	f, err := os.Open(s.Path)
	if err != nil {
		return offset, err
	}
	defer f.Close()
	from := max(offset-1, 0)
	lines := bufio.NewReaderSize(io.NewSectionReader(f, from, s.Size-from), 64<<10)
	if offset > 0 {
		if b, err := lines.ReadByte(); err != nil || b != '\n' {
			return offset, fmt.Errorf("%w: no line begins at byte %d", ErrDamaged, offset)
		}
	}
	for offset < s.Size {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return offset, fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		if !each(line[:len(line)-1]) {
			break
		}
		offset += int64(len(line))
	}
	return offset, nil
}
