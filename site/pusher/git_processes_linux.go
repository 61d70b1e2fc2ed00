package pusher

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// gitsAt finds the git processes that work on the repository, or on a linked work tree of
// it: their directory, arguments or environment name it. Exes are names of programs that
// are git under another name. Unsure says that some processes could not be looked at.
func gitsAt(dir string, exes []string) (found []gitProcess, unsure bool) {
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, true
	}
	tops := topsOf(dir)
	for _, proc := range processes {
		p, works, err := lookAt(proc, tops, exes)
		switch {
		case err == nil && works:
			found = append(found, p)
		case err != nil && !isGone(err):
			unsure = true
		}
	}
	return found, unsure
}

// lookAt reports whether a process is one of git's that works on the repository.
func lookAt(proc string, tops, exes []string) (p gitProcess, works bool, err error) {
	name, err := os.ReadFile(filepath.Join(proc, "comm"))
	if err != nil {
		return p, false, err
	}
	short := strings.TrimSuffix(string(name), "\n") // at most 15 bytes
	if !strings.HasPrefix(short, "git") && !slices.ContainsFunc(exes, func(exe string) bool { return exe[:min(15, len(exe))] == short }) {
		return p, false, nil
	}
	if works, err = worksOn(proc, tops); err != nil || !works {
		return p, false, err
	}
	pid, _ := strconv.Atoi(filepath.Base(proc))
	s, err := statOf(pid)
	return gitProcess{pid, s.start}, true, err
}

func (p gitProcess) ended() bool {
	s, err := statOf(p.pid)
	return err == nil && (s.dead || s.start != p.start) || err != nil && isGone(err)
}

// RunsSince reports whether a git that may move refs works on the repository and has not started after the machine had been
// up for that long. A git that can't be looked at counts.
func RunsSince(uptime time.Duration, dir string, gitPrograms []string) bool {
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return true
	}
	tops := topsOf(dir)
	for _, proc := range processes {
		pid, _ := strconv.Atoi(filepath.Base(proc))
		s, err := statOf(pid)
		if err != nil && isGone(err) || err == nil && startedAfter(s.start, uptime) {
			continue
		}
		name, err := os.ReadFile(filepath.Join(proc, "comm"))
		if err == nil && slices.Contains(frontEnds, strings.TrimSuffix(string(name), "\n")) {
			continue
		}
		if _, works, err := lookAt(proc, tops, gitPrograms); works || err != nil && !isGone(err) {
			return true
		}
	}
	return false
}

// topsOf returns the directory of the repository, or of the work tree around it, and
// those of its linked work trees.
func topsOf(dir string) []string {
	tops := []string{strings.TrimSuffix(dir, "/.git")}
	links, _ := filepath.Glob(filepath.Join(dir, "worktrees", "*", "gitdir"))
	for _, link := range links {
		text, err := os.ReadFile(link)
		if err != nil {
			continue
		}
		tree := filepath.Dir(strings.TrimSpace(string(text))) // of its file .git
		if !filepath.IsAbs(tree) {
			tree = filepath.Join(filepath.Dir(link), tree)
		}
		if real, err := filepath.EvalSymlinks(tree); err == nil {
			tops = append(tops, real)
		}
	}
	return tops
}

// worksOn reports whether a process works on the repository.
func worksOn(proc string, tops []string) (bool, error) {
	cwd, err := os.Readlink(filepath.Join(proc, "cwd"))
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(tops, func(top string) bool { return cwd == top || strings.HasPrefix(cwd, top+"/") }) {
		return true, nil
	}
	for _, name := range []string{"cmdline", "environ"} {
		text, err := os.ReadFile(filepath.Join(proc, name))
		if err != nil {
			return false, err
		}
		if namesOne(text, cwd, tops) {
			return true, nil
		}
	}
	return false, nil
}

// namesOne reports whether one of the words, which end with a NUL, is a path in one of the directories.
func namesOne(words []byte, cwd string, tops []string) bool {
	for word := range bytes.SplitSeq(words, []byte{0}) {
		if slices.ContainsFunc(tops, func(top string) bool { return names(string(word), cwd, top) }) {
			return true
		}
	}
	return false
}

// names reports whether an argument, or a variable's value, is a path in dir.
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
