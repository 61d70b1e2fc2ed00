package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// patience is how long servers and sites may take to start, to stop, or to do what they are told.
const patience = 60 * time.Second

// A process is a child of this one.
type process struct {
	*exec.Cmd
	ended chan struct{} // closed when it has
}

// spawn starts cmd, which writes what it says to a file.
func spawn(cmd *exec.Cmd, log string) (*process, error) {
	f, err := os.OpenFile(log, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	cmd.Stderr = f
	if cmd.Stdout == nil {
		cmd.Stdout = f
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	// Ctrl-C at the terminal is for us.
	cmd.SysProcAttr.Setpgid = true
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	p := &process{cmd, make(chan struct{})}
	go func() { // ends with the process, which kill waits for
		defer close(p.ended)
		_ = cmd.Wait() // how it ended is its log's matter
	}()
	return p, nil
}

// kill ends the process at once, and waits for its end.
func (p *process) kill() {
	_ = p.Process.Kill() // it may have ended already
	<-p.ended
}

// killTree kills the process and its children, and waits for their end: what
// they share may be used again then.
func (p *process) killTree() error {
	_ = p.Process.Signal(syscall.SIGSTOP) // no more children
	children, err := childrenOf(p.Process.Pid)
	p.kill()
	for _, pid := range children {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	for _, pid := range children {
		err = errors.Join(err, await(context.Background(), fmt.Sprintf("the end of process %d", pid), func() error {
			// Orphans are ours, the first process of the namespace.
			_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
			if syscall.Kill(pid, 0) == nil {
				return errors.New("it still runs")
			}
			return nil
		}))
	}
	return err
}

// childrenOf returns the process IDs of a process's children.
func childrenOf(parent int) (pids []int, err error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		// The name, in parentheses, may hold anything: what follows it is state and parent.
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(fields) < 2 || fields[1] != strconv.Itoa(parent) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// errEnded says that a process ended of which something was expected.
var errEnded = errors.New("it has ended: see its log")

// await asks, again and again, until the answer is nil.
func await(ctx context.Context, what string, ask func() error) error {
	for deadline := now().add(patience); ; {
		err := ask()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("wait for %s: %w", what, ctx.Err())
		case errors.Is(err, errEnded), now() > deadline:
			return fmt.Errorf("%s did not come: %w", what, err)
		}
		rest(ctx, 20*time.Millisecond)
	}
}
