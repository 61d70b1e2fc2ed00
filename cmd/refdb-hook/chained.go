package main

import (
	"errors"
	"os"
	"strings"
	"syscall"

	"github.com/globalrefdb/globalrefdb/site/wire"
)

// chainedHook returns the path of the repository's own hook; empty if there is
// none that can be run.
func chainedHook(self string) string {
	path := self + ".chained"
	const executable = 1 // X_OK
	if !strings.Contains(self, "/") || syscall.Access(path, executable) != nil {
		return ""
	}
	return path
}

// runChained returns the status of the hook at path.
func (c call) runChained(path string) int {
	stdin := os.Stdin
	var feed *os.File
	if c.state != wire.StateUpdate {
		var err error
		if stdin, feed, err = os.Pipe(); err != nil {
			return c.failed(wire.NotRun(path, err))
		}
	}
	args := append([]string{path}, c.args[1:]...)
	attr := &os.ProcAttr{Files: []*os.File{stdin, os.Stdout, os.Stderr}}
	p, err := os.StartProcess(path, args, attr)
	if errors.Is(err, syscall.ENOEXEC) {
		// A script that doesn't say what runs it. Git takes the shell for it.
		p, err = os.StartProcess("/bin/sh", append([]string{"sh"}, args...), attr)
	}
	if err != nil {
		return c.failed(wire.NotRun(path, err))
	}
	if feed != nil {
		stdin.Close()
		feed.Write(c.body) // a hook need not read it
		feed.Close()
	}
	state, err := p.Wait()
	if err != nil {
		return c.failed(path + ": " + err.Error())
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		say(wire.EndedBySignal(path, status.Signal().String()))
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}
