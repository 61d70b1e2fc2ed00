package config

import (
	"path/filepath"
	"strings"
)

// Unfinished begins the names of directories that hold repositories which are not at their paths. None of the site's repositories is in one.
const Unfinished = ".refdb-unfinished-"

// UnfinishedDir is the directory of a root in which its repositories are made. Programs of earlier versions ignore it, too.
const UnfinishedDir = Unfinished + "repositories"

// IsBelowRoot reports whether an absolute path is below site.root. Not all that it leads through needs to be there.
func (c *Config) IsBelowRoot(path string) bool {
	if c.root == "" {
		return false
	}
	for dir := filepath.Dir(filepath.Clean(path)); ; dir = filepath.Dir(dir) {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			return isWithin(real, c.root)
		}
		if dir == "/" {
			return false
		}
	}
}

// isUnfinished reports whether a path, relative to a root, is in a directory of repositories that are not at their paths.
func isUnfinished(path string) bool { return strings.Contains("/"+path, "/"+Unfinished) }
