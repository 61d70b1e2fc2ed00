package segments

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/globalrefdb/globalrefdb/site/internal/durable"
)

// Numbered names segments by ascending numbers, in a directory of their own. A segment keeps its
// name.
type Numbered struct{ Dir string }

// Number returns the number of the segment at a path.
func (Numbered) Number(path string) uint64 {
	number, _ := strconv.ParseUint(filepath.Base(path), 10, 64)
	return number
}

func (n Numbered) all() (paths []string, err error) {
	entries, err := os.ReadDir(n.Dir) // in the order of their names
	for _, e := range entries {
		if len(e.Name()) == 16 && strings.Trim(e.Name(), "0123456789") == "" {
			paths = append(paths, filepath.Join(n.Dir, e.Name()))
		}
	}
	return paths, err
}

// Paths implements [Layout].
func (n Numbered) Paths() ([]string, error) {
	all, err := n.all()
	return all[max(0, len(all)-kept):], err
}

// Unfinished implements [Layout].
func (n Numbered) Unfinished() string { return filepath.Join(n.Dir, "new") }

// Add implements [Layout].
func (n Numbered) Add() error {
	all, err := n.all()
	if err != nil {
		return err
	}
	next := uint64(1)
	if len(all) > 0 {
		next += n.Number(all[len(all)-1])
	}
	if err := os.Rename(n.Unfinished(), filepath.Join(n.Dir, fmt.Sprintf("%016d", next))); err != nil {
		return err
	}
	for _, path := range all[:max(0, len(all)+1-kept)] {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return errors.Join(ErrReopen, err)
		}
	}
	return nil
}

// A Pair is two names: when a segment begins, the one before gets the name Older. Both are synced
// then: they replace lines that may have been on the disk for long. A log in a Pair always exists;
// at first it is empty.
type Pair struct{ Older, Newer string }

// Paths implements [Layout].
func (p Pair) Paths() ([]string, error) {
	_, err := os.Lstat(p.Newer)
	if errors.Is(err, fs.ErrNotExist) {
		// The process was killed during Add, which had synced the file at Unfinished before.
		if err = os.Rename(p.Unfinished(), p.Newer); errors.Is(err, fs.ErrNotExist) {
			err = os.WriteFile(p.Newer, nil, 0o600)
		}
	}
	// While Newer exists, a file at Unfinished is a rest of an Add that did nothing.
	if err == nil {
		err = os.Remove(p.Unfinished())
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if _, err := os.Lstat(p.Older); errors.Is(err, fs.ErrNotExist) {
		return []string{p.Newer}, nil
	}
	return []string{p.Older, p.Newer}, nil
}

// Unfinished implements [Layout].
func (p Pair) Unfinished() string { return p.Newer + ".new" }

// Add implements [Layout].
func (p Pair) Add() error {
	err := errors.Join(durable.SyncFile(p.Newer), durable.SyncFile(p.Unfinished()))
	if err == nil {
		err = os.Rename(p.Newer, p.Older)
	}
	if err != nil {
		return err
	}
	if err := os.Rename(p.Unfinished(), p.Newer); err != nil {
		return errors.Join(ErrReopen, err)
	}
	return nil
}
