//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A Gerrit that can't be seen from here is not said to be unguarded as if it had been seen.
func TestAGerritInAnotherPIDNamespaceIsNoProcess(t *testing.T) {
	t.Parallel()
	g := guardedAt(t, newWorld(t), "a")
	g.write(t, "index/accounts_0013/write.lock", "")
	f, err := os.OpenFile(filepath.Join(g.path, "index/accounts_0013/write.lock"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	// A lock of an open file is no process's, as one that a process in another namespace has.
	const setLockOfOpenFile = 37
	if err := syscall.FcntlFlock(f.Fd(), setLockOfOpenFile, &syscall.Flock_t{Type: syscall.F_WRLCK}); err != nil {
		t.Fatal(err)
	}
	_, all := g.codes(t)
	for _, found := range all.Findings {
		if found.Code == "gerrit-unguarded" && strings.Contains(found.Detail, "in another PID namespace, or on another machine") {
			return
		}
	}
	t.Errorf("found %+v", all.Findings)
}
