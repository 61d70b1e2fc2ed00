package main

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/globalrefdb/globalrefdb/site/wire"
)

// outages begins the names of files in which a hook records that the daemon did not answer, for later
// hooks of the same git process: otherwise each would wait for as long again, and git before 2.51
// runs three for each ref of a push. There is a file per process, with its start time and the reason.
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

// remember records the reason for later hooks, and removes the files of processes that have ended. If
// it can't, later hooks wait again.
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
