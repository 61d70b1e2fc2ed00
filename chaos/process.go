package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// patience is how long servers and sites may take to start, to stop, or to execute a command.
const patience = 60 * time.Second

// A process is a child of this one.
type process struct {
	*exec.Cmd
	ended chan struct{} // closed when it has
}

// spawn starts cmd and appends its output to the file log.
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
	// Its own group: Ctrl-C at the terminal is for this process.
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

// errEnded says that a process ended while something was expected of it.
var errEnded = errors.New("it has ended: see its log")

// await calls ask, again and again, until it returns nil.
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
		sleep(ctx, 20*time.Millisecond)
	}
}
