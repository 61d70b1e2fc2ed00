package main

import (
	"errors"
	"os"
	"strings"
	"syscall"

	"github.com/globalrefdb/globalrefdb/site/wire"
)

// enterRepository makes the repository's common Git directory the current one,
// and returns its absolute real path. From there the path of the socket is
// short, as the address of a socket has to be.
func enterRepository() (string, error) {
	dir, err := commonDir()
	if err != nil {
		return "", err
	}
	if err := syscall.Chdir(dir); err != nil {
		return "", errors.New(wire.NoRepository(dir, err))
	}
	real, err := syscall.Getwd()
	if err != nil {
		return "", errors.New(wire.PathUnknown(dir, err))
	}
	return real, nil
}

// commonDir returns the repository's common Git directory, relative to the current one if git names it so.
func commonDir() (string, error) {
	if common := os.Getenv("GIT_COMMON_DIR"); common != "" {
		return asGitDir(common)
	}
	dir := os.Getenv("GIT_DIR")
	if dir == "" {
		// In a work tree. What it holds is the pusher's: it may look like a Git directory itself.
		dir = ".git"
		if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) && isGitDir(".") {
			dir = "."
		}
	}
	if info, err := os.Stat(dir); err == nil && info.Mode().IsRegular() {
		// In an additional work tree .git is a file that points to the directory.
		text, err := os.ReadFile(dir)
		if err != nil {
			return "", err
		}
		target, ok := strings.CutPrefix(strings.TrimRight(string(text), "\r\n"), "gitdir: ")
		if !ok {
			return "", errors.New(wire.NotAGitDirectory(dir))
		}
		above := "."
		if slash := strings.LastIndexByte(dir, '/'); slash >= 0 {
			above = dir[:slash+1]
		}
		dir = join(above, target)
	}
	if _, err := os.Stat(dir); err != nil {
		return "", errors.New(wire.NoRepository(dir, err))
	}
	if text, err := os.ReadFile(join(dir, "commondir")); err == nil {
		dir = join(dir, strings.TrimRight(string(text), "\r\n"))
	}
	return asGitDir(dir)
}

func asGitDir(dir string) (string, error) {
	if !isGitDir(dir) {
		return "", errors.New(wire.NotAGitDirectory(dir))
	}
	return dir, nil
}

// join returns a path that is relative to dir, unless it is absolute. The current directory is left out, as git does.
func join(dir, path string) string {
	if dir == "." || strings.HasPrefix(path, "/") {
		return path
	}
	return strings.TrimSuffix(dir, "/") + "/" + path
}

func isGitDir(dir string) bool {
	_, head := os.Lstat(dir + "/HEAD")
	_, objects := os.Stat(dir + "/objects")
	_, common := os.Stat(dir + "/commondir")
	return head == nil && (objects == nil || common == nil)
}
