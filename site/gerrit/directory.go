// Package gerrit knows the site directory of a Gerrit (its SITE_PATH): what its configuration must say for the guard to work, the guard's
// jar, and which process has it open. It asks neither the daemon nor the database.
package gerrit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// The files in which a [Setting] may be, below the site directory.
const (
	GerritConfig = "etc/gerrit.config"
	JGitConfig   = "etc/jgit.config"
)

// ErrNotGerrit says that a directory is not the site directory of a Gerrit.
var ErrNotGerrit = errors.New("not the site directory of a Gerrit")

// A Directory is the site directory of a Gerrit.
type Directory struct {
	Path   string // real: without symbolic links
	gerrit values // what gerrit.config said when it was opened
}

// Open reads the configuration in a site directory. The error wraps [ErrNotGerrit] if it has none.
func Open(ctx context.Context, path string) (*Directory, error) {
	real, err := realPath(path)
	if err == nil {
		_, err = os.Stat(filepath.Join(real, GerritConfig))
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s is %w: it has no %s", path, ErrNotGerrit, GerritConfig)
	case err != nil:
		return nil, fmt.Errorf("opening Gerrit's site directory: %w", err)
	}
	d := &Directory{Path: real}
	d.gerrit, err = readConfig(ctx, d.file(GerritConfig))
	return d, err
}

// realPath returns the absolute path without symbolic links.
func realPath(path string) (string, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(absolute)
}

// file returns the path of a file in the directory.
func (d *Directory) file(name string) string { return filepath.Join(d.Path, name) }

// resolve returns a path of the configuration as Gerrit understands it: relative ones are below the site directory.
func (d *Directory) resolve(path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(d.Path, path)
}

// BasePath returns the directory of the repositories (gerrit.basePath), which need not be there.
func (d *Directory) BasePath() string { return d.resolve(d.gerrit.last("gerrit.basePath")) }

// CheckRoot returns an error unless the directory of the repositories is the site's root, as the daemon compares them.
func (d *Directory) CheckRoot(root string) error {
	if d.gerrit.last("gerrit.basePath") == "" {
		return fmt.Errorf("%s: gerrit.basePath is not set, without which no Gerrit starts: run its init", d.file(GerritConfig))
	}
	if root == "" {
		return fmt.Errorf("the site has no root: set site.root = %s in its configuration", d.BasePath())
	}
	base, err := filepath.EvalSymlinks(d.BasePath())
	if err != nil {
		return fmt.Errorf("gerrit.basePath: %w", err)
	}
	real, err := filepath.EvalSymlinks(root)
	if err != nil {
		return fmt.Errorf("site.root: %w", err)
	}
	if base != real {
		return fmt.Errorf("the repositories of Gerrit are in %s (gerrit.basePath), those of the site in %s: set site.root = %s in its configuration, and restart the daemon",
			base, real, base)
	}
	return nil
}

// ServerID returns gerrit.serverId, which is the same at all sites; "" if it is not set.
func (d *Directory) ServerID() string { return d.gerrit.last("gerrit.serverId") }

// InstanceID returns gerrit.instanceId, which each site has for itself; "" if it is not set.
func (d *Directory) InstanceID() string { return d.gerrit.last("gerrit.instanceId") }

// AllProjects returns the name of the project that has the sequence of changes.
func (d *Directory) AllProjects() string { return d.gerrit.or("gerrit.allProjects", "All-Projects") }

// AllUsers returns the name of the project that has accounts, groups and drafts.
func (d *Directory) AllUsers() string { return d.gerrit.or("gerrit.allUsers", "All-Users") }

// WAR returns the path of the program that the site is started with.
func (d *Directory) WAR() string { return d.resolve(d.gerrit.or("container.war", "bin/gerrit.war")) }
