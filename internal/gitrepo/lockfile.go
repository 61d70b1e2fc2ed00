package gitrepo

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// LockPatience is how long to wait for running git processes to let go of their lock files.
const LockPatience = 5 * time.Second

// A LockFile is a file by which git locks something in a repository.
type LockFile struct {
	Path string
	info fs.FileInfo
}

// Age is the time since git made the file.
func (f LockFile) Age() time.Duration { return time.Since(f.info.ModTime()).Round(time.Second) }

// Exists reports whether the very file that was found is still there.
func (f LockFile) Exists() bool {
	now, err := os.Lstat(f.Path)
	return err == nil && os.SameFile(now, f.info) && now.ModTime().Equal(f.info.ModTime())
}

// Remove removes the file, unless another one has taken its place.
func (f LockFile) Remove() error {
	if !f.Exists() {
		return errors.New("it has changed just now")
	}
	return os.Remove(f.Path)
}

// LockFiles returns the lock files in the Git directory dir: git leaves them behind when it
// is killed while it moves refs, packs them, expires reflogs, or writes its configuration. No ref's name ends like theirs.
func LockFiles(dir string) (files []LockFile, err error) {
	add := func(path string, d fs.DirEntry) error {
		name := d.Name()
		if d.IsDir() || !strings.HasSuffix(name, ".lock") && name != "packed-refs.new" {
			return nil
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		files = append(files, LockFile{path, info})
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
		case "refs", "logs", "reftable", "worktrees":
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

// LocksOf returns the lock files of refs in the Git directory dir, and those of the
// files that hold all refs. Deletes says that some of the refs are deleted, which locks packed-refs.
func LocksOf(dir string, refs []string, deletes bool) (found []LockFile) {
	names := append([]string{"reftable/tables.list"}, refs...)
	if deletes {
		names = append(names, "packed-refs")
	}
	for _, name := range names {
		path := filepath.Join(dir, name+".lock")
		if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() {
			found = append(found, LockFile{path, info})
		}
	}
	return found
}
