//go:build unix

package main

import (
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stopWait is how long it may take until we are stopped or, once we run again,
// until we hear that we do.
const stopWait = time.Second

// job is a command in a process group of its own, which is stopped and
// continued together with us, as a shell does with a job. It must never run
// while we are stopped: nobody would renew its lock.
type job struct {
	group    int // the command's
	ours     int
	terminal int // -1: none
	signals  chan os.Signal
}

// newJob prepares for a command that is about to be started: from now on
// nothing stops us alone.
func newJob() *job {
	j := &job{ours: syscall.Getpgrp(), terminal: -1, signals: make(chan os.Signal, 4)}
	signal.Notify(j.signals, syscall.SIGCHLD, syscall.SIGCONT, syscall.SIGTSTP)
	return j
}

// begin gives the command the terminal, if in is one, and ours to give. It
// stays where it is if out is a pipe: the other end may be a pager that needs it.
func (j *job) begin(group int, in io.Reader, out io.Writer) {
	j.group = group
	if f, ok := in.(*os.File); ok && isTerminal(f) && !isPipe(out) {
		j.terminal = int(f.Fd())
		// Touching the terminal from the background must not stop us.
		signal.Ignore(syscall.SIGTTOU)
		j.resume()
	}
}

func isPipe(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&(os.ModeNamedPipe|os.ModeSocket) != 0
}

// follow does what one of j.signals asks for, and returns true once it is time
// to resume.
func (j *job) follow(s os.Signal) bool {
	switch s {
	case syscall.SIGCHLD:
		if j.terminal < 0 || !stopped(j.group) {
			return false
		}
		// Ctrl-Z reached the command alone. It is meant for all of our own job,
		// which may be a pipeline: this comes back as SIGTSTP.
		if j.foreground() == j.group {
			j.setForeground(j.ours)
		}
		syscall.Kill(0, syscall.SIGTSTP)
		return false
	case syscall.SIGTSTP:
		if !j.stop() {
			// In the background the command would only be stopped again.
			return j.terminal < 0 || j.foreground() == j.ours
		}
	}
	return true
}

// stop stops the command and us. It returns true when our shell has continued
// us, and false if we can't be stopped because there is none that could.
func (j *job) stop() bool {
	syscall.Kill(-j.group, syscall.SIGSTOP)
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	// SIGTTIN stops a process only if that can be undone, as SIGTSTP would. But
	// Go does not give a signal its own effect back once it was caught.
	syscall.Kill(os.Getpid(), syscall.SIGTTIN)
	select {
	case <-continued:
		return true
	case <-time.After(stopWait):
		return false
	}
}

// resume lets the command run, with the terminal if we have it to give.
func (j *job) resume() {
	if j.foreground() == j.ours {
		j.setForeground(j.group)
	}
	// It may have touched the terminal before it was its own, and been stopped.
	syscall.Kill(-j.group, syscall.SIGCONT)
}

// lent reports whether the command has the terminal.
func (j *job) lent() bool { return j.terminal >= 0 && j.foreground() == j.group }

// end takes the terminal back.
func (j *job) end() {
	signal.Stop(j.signals)
	if j.terminal < 0 {
		return
	}
	if j.lent() {
		j.setForeground(j.ours)
	}
	signal.Reset(syscall.SIGTTOU)
}

// foreground returns the process group that has the terminal, -1 without one.
func (j *job) foreground() int {
	if j.terminal < 0 {
		return -1
	}
	group, err := unix.IoctlGetInt(j.terminal, unix.TIOCGPGRP)
	if err != nil {
		return -1
	}
	return group
}

func (j *job) setForeground(group int) {
	// If it fails the command is stopped when it reads, which is no loss of safety.
	unix.IoctlSetPointerInt(j.terminal, unix.TIOCSPGRP, group)
}
