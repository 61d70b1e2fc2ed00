package main

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/globalrefdb/globalrefdb/site/wire"
)

// outages is where a hook leaves word, for those that the same process of git runs
// after it, that the daemon did not answer: each would wait for as long again, and git before
// 2.51 runs three for each ref of a push. A file per process holds when that started, and the reason.
const outages = "refdb/outage."

func outageFile(pid int) string { return outages + strconv.Itoa(pid) }

// remembered returns the reason, if an earlier hook of the same process left one.
func remembered(p wire.Process) (reason string, ok bool) {
	text, err := os.ReadFile(outageFile(p.Parent))
	if err != nil {
		return "", false
	}
	start, reason, _ := strings.Cut(string(text), "\n")
	return reason, start == p.ParentStart
}

// remember leaves word for hooks to come, and removes that for processes that have
// ended. If it can't, they wait.
func remember(p wire.Process, reason string) {
	files, _ := filepath.Glob(outages + "*")
	for _, file := range files {
		pid, err := strconv.Atoi(strings.TrimPrefix(file, outages))
		if text, _ := os.ReadFile(file); err == nil && !strings.HasPrefix(string(text), startOf(pid)+"\n") {
			os.Remove(file)
		}
	}
	// Removed first: it may be another user's.
	if err := os.Remove(outageFile(p.Parent)); err == nil || errors.Is(err, os.ErrNotExist) {
		os.WriteFile(outageFile(p.Parent), []byte(p.ParentStart+"\n"+reason), 0o644)
	}
}
