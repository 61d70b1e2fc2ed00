package site

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// gitAt looks through the processes of this machine for those of git that work on
// the repository: by their directory, their arguments or their environment.
// It is unsure if there are some that it can't look at.
func gitAt(dir string) (found []gitProcess, unsure bool) {
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, true
	}
	for _, proc := range processes {
		name, err := os.ReadFile(filepath.Join(proc, "comm"))
		if err != nil || !bytes.HasPrefix(name, []byte("git")) {
			continue
		}
		works, err := worksOn(proc, dir)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ESRCH): // it has ended
		case err != nil:
			unsure = true
		case works:
			pid, _ := strconv.Atoi(filepath.Base(proc))
			if s, err := statOf(pid); err == nil {
				found = append(found, gitProcess{pid, s.start})
			}
		}
	}
	return found, unsure
}

func (p gitProcess) ended() bool {
	s, err := statOf(p.pid)
	return err != nil || s.start != p.start
}

// worksOn reports whether a process has to do with the repository.
func worksOn(proc, dir string) (bool, error) {
	top := strings.TrimSuffix(dir, "/.git") // the work tree, if there is one
	cwd, err := os.Readlink(filepath.Join(proc, "cwd"))
	if err != nil {
		return false, err
	}
	if cwd == top || strings.HasPrefix(cwd, top+"/") {
		return true, nil
	}
	for _, name := range []string{"cmdline", "environ"} {
		text, err := os.ReadFile(filepath.Join(proc, name))
		if err != nil {
			return false, err
		}
		for word := range bytes.SplitSeq(text, []byte{0}) {
			if names(string(word), cwd, top) {
				return true, nil
			}
		}
	}
	return false, nil
}

// names reports whether an argument, or a variable, is the path of something in dir.
func names(word, cwd, dir string) bool {
	for _, path := range []string{word, word[strings.IndexByte(word, '=')+1:]} {
		if path == "" || !strings.Contains(path, "/") && !strings.HasPrefix(path, ".") {
			continue
		}
		if !filepath.IsAbs(path) {
			path = filepath.Join(cwd, path)
		}
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
		if path == dir || strings.HasPrefix(path, dir+"/") {
			return true
		}
	}
	return false
}
