package gitrepo

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// OpenDir is [Open] without running git. It is cheap enough to be called each time: so a repository
// that was replaced or converted is never mistaken for the old one. Path is the Git directory, that
// of an additional work tree, or a work tree's top.
func OpenDir(path string) (*Repo, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("repository %q: %w", path, err)
	}
	dir, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return nil, fmt.Errorf("repository %q: %w", path, pathReason(err))
	}
	common, err := commonOf(dir)
	if errors.Is(err, errNoGitDir) {
		dir, common, err = dotGit(dir)
	}
	if errors.Is(err, errNoGitDir) {
		return nil, fmt.Errorf("%q is not a Git repository that can be read: %w", path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("repository %q can't be read: %w", path, pathReason(err))
	}
	return load(path, dir, common)
}

// load reads the repository's formats.
func load(path, gitDir, common string) (*Repo, error) {
	text, err := os.ReadFile(filepath.Join(common, "config"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("repository %q: its config: %w", path, pathReason(err))
	}
	c := parseConfig(string(text))
	r := &Repo{path: path, gitDir: gitDir, common: common, format: "files", idBytes: 40}
	if f, ok := c["extensions.refstorage"]; ok {
		r.format = f
	}
	r.precious = isTrue(c, "extensions.preciousobjects")
	if _, ok := c["core.bare"]; ok {
		r.bare = isTrue(c, "core.bare")
	} else {
		r.bare = filepath.Base(common) != ".git"
	}
	switch f := c["extensions.objectformat"]; f {
	case "", "sha1":
	case "sha256":
		r.idBytes = 64
	default:
		return nil, fmt.Errorf("repository %q: objects of format %q are not supported", path, f)
	}
	return r, nil
}

// isTrue reports whether a variable is set to a value that git takes for true.
func isTrue(c map[string]string, key string) bool {
	value, ok := c[key]
	switch strings.ToLower(value) {
	case "", "0", "false", "no", "off":
		return false
	}
	return ok
}

// errNoGitDir says that a directory is no Git directory. One that can't be read has another error.
var errNoGitDir = errors.New("it is neither a Git directory nor the top of a work tree")

// commonOf returns the common Git directory of dir. The error is errNoGitDir unless dir
// has what git itself looks for in a Git directory. Dir has no symbolic links.
func commonOf(dir string) (common string, err error) {
	if _, err := os.Lstat(filepath.Join(dir, "HEAD")); err != nil {
		return "", notGit(err)
	}
	if common, err = commonDir(dir); err != nil {
		return "", notGit(err)
	}
	for _, part := range []string{"objects", "refs"} {
		info, err := os.Stat(filepath.Join(common, part))
		if err != nil {
			return "", notGit(err)
		}
		if !info.IsDir() {
			return "", errNoGitDir
		}
	}
	return common, nil
}

// notGit returns errNoGitDir if err says that a path does not exist, and otherwise err.
func notGit(err error) error {
	if unlessAbsent(err) == nil {
		return errNoGitDir
	}
	return err
}

// dotGit finds the Git directory of the work tree whose top is dir, and its common one.
func dotGit(dir string) (gitDir, common string, err error) {
	found := filepath.Join(dir, ".git")
	if info, err := os.Stat(found); err == nil && !info.IsDir() {
		text, err := os.ReadFile(found)
		if err != nil {
			return "", "", err
		}
		target, ok := strings.CutPrefix(string(text), "gitdir: ")
		if !ok {
			return "", "", errors.New("its .git is neither a directory nor a pointer to one")
		}
		found = rooted(dir, strings.TrimRight(target, "\r\n"))
	}
	if gitDir, err = filepath.EvalSymlinks(found); err != nil {
		return "", "", notGit(err)
	}
	common, err = commonOf(gitDir)
	return gitDir, common, err
}

// commonDir returns the real path of what gitDir, a real path, shares with other work trees.
func commonDir(gitDir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(gitDir, "commondir"))
	if errors.Is(err, fs.ErrNotExist) {
		return gitDir, nil
	}
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(rooted(gitDir, strings.TrimRight(string(text), "\r\n")))
}

// rooted returns path relative to dir, unless it is absolute.
func rooted(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}
