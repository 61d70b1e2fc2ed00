package check

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
)

// owners finds files that belong to another user than the repository, for example after a push by
// root: git can't write to such directories and logs. It ignores objects, which git only reads.
func (k *repositoryCheck) owners() error {
	top := k.repo.Dir()
	var uid uint32
	var first string
	others := 0
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // gone meanwhile
		}
		if err != nil {
			return err
		}
		below, _ := filepath.Rel(top, path)
		if strings.Count(below, "/") == 2 && strings.HasPrefix(below, "objects/") {
			return skip(d)
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		switch {
		case !ok:
		case path == top:
			uid = stat.Uid
		case stat.Uid != uid:
			if others++; first == "" {
				first = path
			}
		}
		switch below {
		case "hooks", "refdb": // written only by the site, not by git
			return skip(d)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("checking the owners of files: %w", err)
	}
	if others > 0 {
		k.find(ForeignOwner, first, fmt.Sprintf("it belongs to another user than the repository, as do %d more files: pushes may fail; as root, run chown -R %d %s, "+
			"and make sure that nobody pushes as another user", others-1, uid, top), nil)
	}
	return nil
}

func skip(d fs.DirEntry) error {
	if d.IsDir() {
		return fs.SkipDir
	}
	return nil
}
