package clone

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/install"
	"github.com/globalrefdb/globalrefdb/site/internal/durable"
	"github.com/globalrefdb/globalrefdb/site/internal/filelock"
)

// CloneAndGuard clones a project for the site o.Site to where its configuration looks for it. The repository is under guard when it appears
// there: no push gets in before. Hook is the path of the hook's program. The daemon must run.
//
// One process at a time makes the repository of a project; a second process waits for the first, and then returns an error
// that wraps [config.ErrExists]. The next clone removes the leftovers of a process that was killed.
func CloneAndGuard(ctx context.Context, c *config.Config, db *refdb.DB, o Options, hook string) (rep Report, err error) {
	if o.Path, err = c.NewPath(o.Project); err != nil {
		return rep, err
	}
	if err := install.DaemonRuns(ctx, c); err != nil {
		return rep, err
	}
	release, err := only(ctx, o)
	if err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, release()) }()
	if o.Path, err = c.NewPath(o.Project); err != nil {
		return rep, err
	}
	prefix := maker(o.Project) + "-"
	if err := removeUnfinished(filepath.Dir(o.Path), prefix); err != nil {
		return rep, fmt.Errorf("removing what an earlier clone has left: %w", err)
	}
	rep, err = build(ctx, c, db, o, prefix, func(dir string) error { return install.Guard(ctx, c, dir, hook) })
	if err != nil {
		return rep, err
	}
	if err := install.IsServed(ctx, c, o.Path); err != nil {
		return rep, fmt.Errorf("%s was cloned, and is under guard, but %w", o.Path, err)
	}
	install.Announce(ctx, c, o.Path)
	return rep, nil
}

// maker returns the prefix of the lock file and the temporary directory of a project's clone.
func maker(project string) string {
	sum := sha256.Sum256([]byte(project))
	return config.Unfinished + config.CloneMaker + hex.EncodeToString(sum[:])
}

// only takes the lock of a project's clone, which keeps other processes from cloning the project until release is called.
func only(ctx context.Context, o Options) (release func() error, err error) {
	path := filepath.Join(filepath.Dir(o.Path), maker(o.Project)+".lock")
	if err := durable.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	for {
		f, err := filelock.Exclusive(ctx, path)
		if err != nil {
			return nil, err
		}
		// The process that had it before us has removed the file.
		locked, err1 := f.Stat()
		there, err2 := os.Lstat(path)
		if err1 == nil && err2 == nil && os.SameFile(locked, there) {
			return func() error { return errors.Join(os.Remove(path), f.Close()) }, nil
		}
		if err := errors.Join(err1, f.Close()); err != nil {
			return nil, err
		}
	}
}

// removeUnfinished removes what begins with prefix in a directory.
func removeUnfinished(dir, prefix string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return err
}
