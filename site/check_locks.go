package site

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// leftoverAge is how old a lock file must be before it may be left over: a
// process that is just about to make one is not seen yet.
const leftoverAge = 10 * time.Second

// leftoverPatience is how long the processes of git are waited for that may
// have made a lock file.
const leftoverPatience = 5 * time.Second

// leftovers finds git's lock files that no git has any more. Git waits for
// them for ever, and so pushes to their refs fail. Whoever made one runs by now, or has
// ended: processes that come later don't count, so that a busy repository is
// looked after as well.
func (k *check) leftovers(ctx context.Context) error {
	files, err := lockFiles(k.repo.Dir())
	if err != nil {
		return err
	}
	files = slices.DeleteFunc(files, func(f lockFile) bool { return f.age() < leftoverAge })
	if len(files) == 0 {
		return nil
	}
	files, unsure, err := unowned(ctx, k.repo.Dir(), files, time.Now().Add(leftoverPatience))
	if err != nil {
		return err
	}
	for _, f := range files {
		switch {
		case unsure:
			k.find(LeftoverLock, f.path, fmt.Sprintf("it is %s old; whether a git still works on this repository can't be told, as some processes are another user's: look at them as root", f.age()), nil)
		default:
			k.find(LeftoverLock, f.path, fmt.Sprintf("it is %s old, and no git has it any more: pushes to what it locks fail; remove it", f.age()), f.remove)
		}
	}
	return nil
}

// unowned returns those of files that no running git can have made: it waits for those
// that run, at most until a time, and returns none if some still do then. It is unsure if
// there are processes that it can't look at.
func unowned(ctx context.Context, dir string, files []lockFile, until time.Time) (left []lockFile, unsure bool, err error) {
	owners, unsure := gitAt(dir)
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for patience := time.After(time.Until(until)); len(owners) > 0; {
		select {
		case <-poll.C:
			owners = slices.DeleteFunc(owners, gitProcess.ended)
			continue
		case <-patience:
		case <-ctx.Done():
			return nil, unsure, ctx.Err()
		}
		return nil, unsure, nil
	}
	return slices.DeleteFunc(files, func(f lockFile) bool { return !f.same() }), unsure, nil
}

// A lockFile is one of git's.
type lockFile struct {
	path string
	info fs.FileInfo
}

func (f lockFile) age() time.Duration { return time.Since(f.info.ModTime()).Round(time.Second) }

// same reports whether it is still there, and not another.
func (f lockFile) same() bool {
	now, err := os.Lstat(f.path)
	return err == nil && os.SameFile(now, f.info) && now.ModTime().Equal(f.info.ModTime())
}

// remove removes it unless it is another by now.
func (f lockFile) remove() (string, error) {
	if !f.same() {
		return "", errors.New("it has changed just now")
	}
	return "removed", os.Remove(f.path)
}

// lockFiles finds what git leaves in a repository when it is killed while it
// moves refs, packs them, or writes its configuration. No ref's name ends like that.
func lockFiles(dir string) (files []lockFile, err error) {
	add := func(path string, d fs.DirEntry) error {
		name := d.Name()
		if d.IsDir() || !strings.HasSuffix(name, ".lock") && name != "packed-refs.new" {
			return nil
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		files = append(files, lockFile{path, info})
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, d := range entries {
		path := filepath.Join(dir, d.Name())
		if err := add(path, d); err != nil {
			return nil, err
		}
		switch d.Name() {
		case "refs", "reftable", "worktrees":
		default:
			continue
		}
		err := filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // gone meanwhile
			}
			if err != nil {
				return err
			}
			return add(path, d)
		})
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}

// A gitProcess is a git that works on a repository.
type gitProcess struct {
	pid   int
	start string // tells it from others that get its ID
}
