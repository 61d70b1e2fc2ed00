package clone

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/install"
)

// unguardedFile is in a repository from before it appears at its path until it is guarded.
func unguardedFile(dir string) string { return filepath.Join(dir, "refdb", "unguarded") }

// CloneAndGuard clones a project for the site o.Site to where its configuration looks for it, and puts it under guard. Hook is the path of the
// hook's program. The daemon must run.
func CloneAndGuard(ctx context.Context, c *config.Config, db *refdb.DB, o Options, hook string) (rep Report, err error) {
	if o.Path, err = c.NewPath(o.Project); err != nil {
		return rep, err
	}
	if rep, err = Clone(ctx, c, db, o); err != nil {
		return rep, err
	}
	r, err := c.Repository(o.Project)
	if err == nil {
		err = Guard(ctx, c, r, hook)
	}
	if err != nil {
		return rep, fmt.Errorf("%s was cloned, but is not guarded: run refdbctl site enable %s: %w", o.Path, o.Project, err)
	}
	return rep, nil
}

// Unguarded reports whether a repository was cloned by [CloneAndGuard], which then did not come to its end.
func Unguarded(r config.Repository) bool {
	_, err := os.Lstat(unguardedFile(r.Path))
	return err == nil
}

// Guard puts a repository under guard that was cloned.
func Guard(ctx context.Context, c *config.Config, r config.Repository, hook string) error {
	if err := install.Enable(ctx, c, r, hook, func(install.Step) {}); err != nil {
		return err
	}
	if err := os.Remove(unguardedFile(r.Path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
