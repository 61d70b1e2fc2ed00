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
	dir := os.Getenv("GIT_DIR")
	if dir == "" {
		dir = ".git"
		if isGitDir(".") {
			dir = "."
		}
	}
	if common := os.Getenv("GIT_COMMON_DIR"); common != "" {
		dir = common
	} else if info, err := os.Stat(dir); err == nil && info.Mode().IsRegular() {
		// In an additional work tree .git is a file that points to the directory.
		text, err := os.ReadFile(dir)
		if err != nil {
			return "", err
		}
		target, ok := strings.CutPrefix(strings.TrimRight(string(text), "\r\n"), "gitdir: ")
		if !ok {
			return "", errors.New(wire.NotAGitDirectory(dir))
		}
		if err := chdir(dir[:strings.LastIndexByte(dir, '/')+1]); err != nil {
			return "", err
		}
		dir = target
	}
	if err := chdir(dir); err != nil {
		return "", err
	}
	if os.Getenv("GIT_COMMON_DIR") == "" {
		if text, err := os.ReadFile("commondir"); err == nil {
			if err := chdir(strings.TrimRight(string(text), "\r\n")); err != nil {
				return "", err
			}
		}
	}
	if !isGitDir(".") {
		return "", errors.New(wire.NotAGitDirectory(dir))
	}
	real, err := syscall.Getwd()
	if err != nil {
		return "", errors.New(wire.PathUnknown(dir, err))
	}
	return real, nil
}

func isGitDir(dir string) bool {
	_, head := os.Lstat(dir + "/HEAD")
	_, objects := os.Stat(dir + "/objects")
	_, common := os.Stat(dir + "/commondir")
	return head == nil && (objects == nil || common == nil)
}

func chdir(dir string) error {
	if dir == "" {
		return nil
	}
	if err := syscall.Chdir(dir); err != nil {
		return errors.New(wire.NoRepository(dir, err))
	}
	return nil
}
