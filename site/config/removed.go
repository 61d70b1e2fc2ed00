package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// checkRemovedTo checks that the directory for repositories of removed projects is not one where they would be taken for repositories of
// the site. Whether it is there is looked at when it is needed: see [Config.RemovedDir].
func (c *Config) checkRemovedTo() error {
	const key = "site.followRemoval"
	switch {
	case c.RemovedTo == "":
		return nil
	case c.root == "":
		return errors.New(key + " is for the repositories below site.root: set that, too")
	}
	for _, root := range []string{c.Root, c.root} {
		if isWithin(c.RemovedTo, root) || isWithin(root, c.RemovedTo) {
			return fmt.Errorf("%s: %s and site.root are within one another: name a directory beside it", key, c.RemovedTo)
		}
	}
	return nil
}

// isWithin reports whether a path is a directory or below it.
func isWithin(path, dir string) bool {
	return strings.HasPrefix(path+"/", strings.TrimSuffix(dir, "/")+"/")
}

// RemovedDir returns the directory for repositories of removed projects, without symbolic links, and makes it if only that is missing. The
// error says why repositories can't be renamed into it.
func (c *Config) RemovedDir() (string, error) {
	if err := os.Mkdir(c.RemovedTo, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("site.followRemoval: make the directory: %w", err)
	}
	dir, err := filepath.EvalSymlinks(c.RemovedTo)
	if err != nil {
		return "", fmt.Errorf("site.followRemoval: make the directory: %w", err)
	}
	var devices [2]uint64
	for i, path := range []string{dir, c.root} {
		info, err := os.Stat(path)
		if err == nil && !info.IsDir() {
			err = fmt.Errorf("%s is not a directory", path)
		}
		if err != nil {
			return "", fmt.Errorf("site.followRemoval: %w", err)
		}
		if s, ok := info.Sys().(*syscall.Stat_t); ok {
			devices[i] = uint64(s.Dev)
		}
	}
	switch {
	case isWithin(dir, c.root) || isWithin(c.root, dir):
		return "", fmt.Errorf("site.followRemoval: %s leads into site.root: name a directory beside it", c.RemovedTo)
	case devices[0] != devices[1]:
		return "", fmt.Errorf("site.followRemoval: %s is on another file system than site.root: name a directory beside that", c.RemovedTo)
	}
	return dir, nil
}

// RemovedPath returns where, below a directory, the repository of a removed project is moved, and what is moved: the work tree, if it
// has one. Nothing is moved that has other repositories in it, or whose path is in the configuration.
func (c *Config) RemovedPath(r Repository, below string) (from, to string, err error) {
	if c.Names(r.Project) {
		return "", "", fmt.Errorf("its path is in the configuration: move %s away by hand, and take the [repository] out", r.Path)
	}
	from = strings.TrimSuffix(r.Path, "/.git")
	for project, path := range c.paths {
		if isWithin(path, from) {
			return "", "", fmt.Errorf("the repository of %s is within it: move that out first", project)
		}
	}
	err = filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || !d.IsDir():
			return err
		case path == filepath.Join(r.Path, "objects"):
			return fs.SkipDir
		case path != from && path != r.Path && isRepository(path):
			return fmt.Errorf("there is a repository within it, %s: move that out first", path)
		}
		return nil
	})
	if err != nil {
		return "", "", err
	}
	name, err := filepath.Rel(c.root, from)
	if err == nil && !filepath.IsLocal(name) {
		err = fmt.Errorf("%s is not below %s", from, c.root)
	}
	return from, filepath.Join(below, name), err
}
