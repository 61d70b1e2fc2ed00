//go:build unix

package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// passedOn are the signals that the command gets in our place.
var passedOn = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
}

// groupPoll is how often a process group that was told to end is looked at.
const groupPoll = 10 * time.Millisecond

// guarded is a command that runs only while a lock is held.
type guarded struct {
	command   []string
	env       []string
	in        io.Reader
	out, err  io.Writer
	killAfter time.Duration

	signals <-chan os.Signal
	lost    <-chan struct{} // closed when the lock is lost
	stands  func() bool     // looks at the time itself

	// keyboard is the signal from there that ended the command, 0 for none.
	keyboard syscall.Signal

	cmd *exec.Cmd
}

// run runs the command to its end, in a process group of its own, and returns
// nil, a *status or *killed as ended. An err says that it was not started.
func (g *guarded) run() (ended, err error) {
	job := newJob()
	defer job.end()
	started, over := make(chan error), make(chan struct{})
	go func() {
		// The kernel ends the command when the thread that started it ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := g.start()
		started <- err
		if err == nil {
			g.cmd.Wait() // how it ended is in ProcessState
		}
		close(over)
	}()
	if err := <-started; err != nil {
		return nil, cannotRun(g.command[0], err)
	}
	job.begin(g.cmd.Process.Pid, g.in, g.out)
	passed := false
	for {
		select {
		case <-over:
			if s := signalOf(g.cmd.ProcessState); !passed && (s == syscall.SIGINT || s == syscall.SIGQUIT) && job.lent() {
				g.keyboard = s
			}
			return howEnded(g.cmd.ProcessState), nil
		case <-g.lost:
			g.end(over)
			return howEnded(g.cmd.ProcessState), nil
		case s := <-g.signals:
			passed = true
			g.kill(s.(syscall.Signal))
		case s := <-job.signals:
			switch {
			case !job.follow(s):
			case g.stands():
				job.resume()
			default:
				// We were stopped for too long: others may have the lock already.
				g.killAfter = 0
			}
		}
	}
}

// start starts the command; a script that does not name its interpreter, with a
// shell, as a shell and execvp(3) do.
func (g *guarded) start() error {
	g.prepare(g.command)
	err := g.cmd.Start()
	if path := g.cmd.Path; errors.Is(err, syscall.ENOEXEC) && isText(path) {
		g.prepare(append([]string{"/bin/sh", path}, g.command[1:]...))
		err = g.cmd.Start()
	}
	return err
}

func (g *guarded) prepare(command []string) {
	g.cmd = exec.Command(command[0], command[1:]...)
	g.cmd.Env, g.cmd.Stdin, g.cmd.Stdout, g.cmd.Stderr = g.env, g.in, g.out, g.err
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(g.cmd.SysProcAttr)
	// What it leaves in the background may keep its output open; don't wait for that.
	g.cmd.WaitDelay = time.Second
}

// isText reports whether a file begins like a script, not like a program of another system.
func isText(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, 128)
	n, err := io.ReadFull(f, head)
	return (err == nil || errors.Is(err, io.ErrUnexpectedEOF)) && bytes.IndexByte(head[:n], 0) < 0
}

// kill sends a signal to the command's process group.
func (g *guarded) kill(s syscall.Signal) error {
	return syscall.Kill(-g.cmd.Process.Pid, s)
}

// end makes the whole group end, not only the command.
func (g *guarded) end(over <-chan struct{}) {
	deadline := time.NewTimer(g.killAfter)
	defer deadline.Stop()
	poll := time.NewTicker(groupPoll)
	defer poll.Stop()
	if g.killAfter > 0 {
		g.kill(syscall.SIGTERM)
		g.kill(syscall.SIGCONT) // one that is stopped could not end
	}
	for {
		if errors.Is(g.kill(0), syscall.ESRCH) {
			break
		}
		select {
		case <-poll.C:
			continue
		case <-deadline.C:
			g.kill(syscall.SIGKILL)
		}
		break
	}
	<-over
}

// tellJob sends the rest of our own job, such as the script that runs us, what
// the keyboard sent to the command alone.
func (g *guarded) tellJob() {
	if g.keyboard != 0 {
		syscall.Kill(0, g.keyboard)
	}
}

// howEnded returns nil, a *status or a *killed.
func howEnded(s *os.ProcessState) error {
	switch {
	case s == nil:
		return &status{code: exitError}
	case signalOf(s) != 0:
		return &killed{signalOf(s)}
	case s.ExitCode() != exitOK:
		return &status{code: s.ExitCode()}
	}
	return nil
}

// signalOf is the signal that ended a process, 0 for none.
func signalOf(s *os.ProcessState) syscall.Signal {
	if s != nil {
		if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
			return w.Signal()
		}
	}
	return 0
}
