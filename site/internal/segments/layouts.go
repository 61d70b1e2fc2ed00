package segments

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/globalrefdb/globalrefdb/site/internal/durable"
)

// Numbered names segments by ascending numbers, in a directory of their own. A segment keeps its name.
type Numbered struct{ Dir string }

func (n Numbered) path(number uint64) string {
	return filepath.Join(n.Dir, fmt.Sprintf("%016d", number))
}

// Number returns the number of a segment.
func (Numbered) Number(s Segment) uint64 {
	number, _ := strconv.ParseUint(filepath.Base(s.Path), 10, 64)
	return number
}

func (n Numbered) numbers() (all []uint64, err error) {
	entries, err := os.ReadDir(n.Dir)
	for _, e := range entries {
		if number, err := strconv.ParseUint(e.Name(), 10, 64); err == nil && n.path(number) == filepath.Join(n.Dir, e.Name()) {
			all = append(all, number)
		}
	}
	slices.Sort(all)
	return all, err
}

// Paths implements [Layout].
func (n Numbered) Paths() (paths []string, err error) {
	numbers, err := n.numbers()
	for _, number := range numbers[max(0, len(numbers)-kept):] {
		paths = append(paths, n.path(number))
	}
	return paths, err
}

// Unfinished implements [Layout].
func (n Numbered) Unfinished() string { return filepath.Join(n.Dir, "new") }

// Add implements [Layout].
func (n Numbered) Add() error {
	numbers, err := n.numbers()
	if err != nil {
		return err
	}
	next := uint64(1)
	if len(numbers) > 0 {
		next = numbers[len(numbers)-1] + 1
	}
	if err := os.Rename(n.Unfinished(), n.path(next)); err != nil {
		return err
	}
	for _, number := range numbers[:max(0, len(numbers)+1-kept)] {
		if err := os.Remove(n.path(number)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return errors.Join(ErrReopen, err)
		}
	}
	return nil
}

// A Pair is two names: a segment gets the other one when a new segment takes its place. A segment outlives
// a crash of the machine from the moment at which it replaces one that may have been on the disk for long.
type Pair struct{ Older, Newer string }

// Paths implements [Layout].
func (p Pair) Paths() (paths []string, err error) {
	for _, path := range []string{p.Older, p.Newer} {
		_, err := os.Lstat(path)
		if path == p.Newer && errors.Is(err, fs.ErrNotExist) && len(paths) > 0 {
			err = p.complete()
		}
		if err == nil {
			paths = append(paths, path)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return paths, nil
}

// complete provides the newer segment, which a killed process has not.
func (p Pair) complete() error {
	err := os.Rename(p.Unfinished(), p.Newer) // Add had synced it before it renamed the other one
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(p.Newer, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// Unfinished implements [Layout].
func (p Pair) Unfinished() string { return p.Newer + ".new" }

// Add implements [Layout].
func (p Pair) Add() error {
	err := durable.SyncFile(p.Newer)
	first := errors.Is(err, fs.ErrNotExist)
	if err == nil || first {
		err = durable.SyncFile(p.Unfinished())
	}
	if err == nil && !first {
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
