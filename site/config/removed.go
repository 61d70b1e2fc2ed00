package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// checkRemovedTo checks that repositories below site.root can be renamed into the directory for those of removed projects,
// where nobody takes them for repositories of the site.
func (c *Config) checkRemovedTo() error {
	const key = "site.followRemoval"
	if c.RemovedTo == "" {
		return nil
	}
	if c.root == "" {
		return errors.New(key + " is for the repositories below site.root: set that, too")
	}
	dir, err := filepath.EvalSymlinks(c.RemovedTo)
	if err != nil {
		return fmt.Errorf("%s: make the directory first: %w", key, err)
	}
	if strings.HasPrefix(dir+"/", strings.TrimSuffix(c.root, "/")+"/") {
		return fmt.Errorf("%s: %s is within site.root: name a directory beside it", key, c.RemovedTo)
	}
	var devices [2]uint64
	for i, path := range []string{dir, c.root} {
		info, err := os.Stat(path)
		if err == nil && !info.IsDir() {
			err = fmt.Errorf("%s is not a directory", path)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		if s, ok := info.Sys().(*syscall.Stat_t); ok {
			devices[i] = uint64(s.Dev)
		}
	}
	if devices[0] != devices[1] {
		return fmt.Errorf("%s: %s is on another file system than site.root: name a directory beside that", key, c.RemovedTo)
	}
	c.RemovedTo = dir
	return nil
}

// RemovedPath returns where, below a directory, the repository of a removed project is moved, and what is moved: the work tree, if it
// has one.
func (c *Config) RemovedPath(r Repository, below string) (from, to string, err error) {
	if c.Names(r.Project) {
		return "", "", fmt.Errorf("its path is in the configuration: move %s away by hand, and take the [repository] out", r.Path)
	}
	from = strings.TrimSuffix(r.Path, "/.git")
	name, err := filepath.Rel(c.root, from)
	if err == nil && !filepath.IsLocal(name) {
		err = fmt.Errorf("%s is not below %s", from, c.root)
	}
	return from, filepath.Join(below, name), err
}
