package gitrepo

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
)

// Dangling returns the symbolic refs whose targets do not exist, and those targets. Git does not list them with the others. It finds them only where refs are
// files.
func (r *Repo) Dangling(ctx context.Context) (map[string]string, error) {
	all := map[string]string{}
	if r.format != "files" {
		return all, nil
	}
	err := filepath.WalkDir(filepath.Join(r.common, "refs"), func(path string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // it was removed meanwhile
			return nil
		case err != nil:
			return err
		case e.IsDir():
			return context.Cause(ctx)
		}
		name, err := filepath.Rel(r.common, path)
		if err != nil || strings.HasSuffix(name, ".lock") || !wellFormed(name) {
			return err
		}
		value, err := r.loose(name)
		if broken := (*BrokenError)(nil); err != nil && !errors.As(err, &broken) {
			return err
		}
		target, isSymbolic := strings.CutPrefix(value, symbolic)
		if !isSymbolic {
			return nil
		}
		if checkName(target) != nil {
			return nil
		}
		values, err := r.Values(ctx, []string{target})
		if broken := (*BrokenError)(nil); errors.As(err, &broken) {
			return nil // that is found by itself
		}
		if _, there := values[target]; err == nil && !there {
			all[name] = target
		}
		return err
	})
	return all, err
}
