package testserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Kill kills the server and its children with SIGKILL, as a crash would, and
// waits for their end: what they share may be used again then.
func (p *Process) Kill() error {
	_ = syscall.Kill(p.pid, syscall.SIGSTOP) // no more children
	children, err := childrenOf(p.pid)
	all := append(children, p.pid)
	for _, pid := range all {
		_ = syscall.Kill(pid, syscall.SIGKILL) // some may have ended
	}
	for deadline := time.Now().Add(timeout); len(all) > 0; {
		if hasEnded(all[0]) {
			all = all[1:]
			continue
		}
		if time.Now().After(deadline) {
			err = errors.Join(err, fmt.Errorf("process %d of %s still runs %s after it was killed", all[0], p.name, timeout))
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	p.lifeline.Close()
	p.release()
	return err
}

// Freeze stops the server and its children with SIGSTOP until thaw.
func (p *Process) Freeze() (thaw func(), err error) {
	_ = syscall.Kill(p.pid, syscall.SIGSTOP) // no more children
	children, err := childrenOf(p.pid)
	for _, pid := range children {
		_ = syscall.Kill(pid, syscall.SIGSTOP) // some end just now
	}
	return func() {
		for _, pid := range append(children, p.pid) {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	}, err
}

// childrenOf returns the process IDs of a process's children.
func childrenOf(parent int) (pids []int, err error) {
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			continue
		}
		if _, of, ok := stat(pid); ok && of == parent {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// hasEnded reports whether a process has ended. A zombie has.
func hasEnded(pid int) bool {
	// An orphan is our child if this is the first process of a PID namespace.
	_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
	state, _, ok := stat(pid)
	return !ok || state == "Z"
}

// stat returns a process's state and its parent, if there is such a process.
func stat(pid int) (state string, parent int, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0, false
	}
	// The name, in parentheses, may hold anything. Behind it are state and parent.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 2 {
		return "", 0, false
	}
	parent, err = strconv.Atoi(fields[1])
	return fields[0], parent, err == nil
}
