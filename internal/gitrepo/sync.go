package gitrepo

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"syscall"
)

// Sync makes the values of the named refs survive a crash of the machine. Git syncs the files
// (core.fsync), but not their directories.
func (r *Repo) Sync(names []string) error {
	if len(names) == 0 {
		return nil
	}
	for _, dir := range r.dirsOf(names) {
		if err := syncDir(dir); err != nil {
			return fmt.Errorf("writing refs of %q to disk: %w", r.path, err)
		}
	}
	return nil
}

// dirsOf returns the directories in which git creates, renames or removes files when it moves the
// named refs. A directory stands before its parent.
func (r *Repo) dirsOf(names []string) []string {
	if r.format != "files" {
		return []string{filepath.Join(r.common, r.format), r.common}
	}
	var dirs []string
	for _, name := range names {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			dirs = append(dirs, filepath.Join(r.common, dir))
		}
	}
	slices.Sort(dirs)
	dirs = slices.Compact(dirs)
	slices.Reverse(dirs)
	if real, err := filepath.EvalSymlinks(r.packedPath()); err == nil && filepath.Dir(real) != r.common {
		dirs = append(dirs, filepath.Dir(real))
	}
	return append(dirs, r.common)
}

// syncDir syncs a directory, unless git has removed it with the last ref in it.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
