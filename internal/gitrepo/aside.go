package gitrepo

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// damagedDir is where files are kept that were taken out of a repository because they are damaged. Git does not look there.
const damagedDir = "refdb/damaged"

// keepDamaged moves files of the repository to where damaged ones are kept, in their order. Those that are not there are left out.
func (r *Repo) keepDamaged(paths ...string) error {
	dir := filepath.Join(r.common, damagedDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	to, err := os.MkdirTemp(dir, "") // earlier ones stay
	if err != nil {
		return err
	}
	for _, path := range paths {
		below, err := filepath.Rel(r.common, path)
		if err == nil {
			err = os.Rename(path, filepath.Join(to, strings.ReplaceAll(below, "/", "-")))
		}
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = syncDir(filepath.Dir(path))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// SetAsideBroken takes the file of a ref away that holds no value, as after a power cut, and keeps it. The ref then has the value in packed-refs, or
// none: git itself neither reads nor changes a broken ref. It reports false if the ref is not broken any more, or a git has locked it.
func (r *Repo) SetAsideBroken(name string) (bool, error) {
	if err := checkName(name); err != nil || r.format != "files" {
		return false, err
	}
	path := filepath.Join(r.common, name)
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, os.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer os.Remove(path + ".lock")
	defer lock.Close()
	if _, err := r.loose(name); !errors.As(err, new(*BrokenError)) {
		return false, err
	}
	if err := r.keepDamaged(path); err != nil {
		return false, fmt.Errorf("taking the broken ref %s of %q away: %w", name, r.path, err)
	}
	return true, nil
}
