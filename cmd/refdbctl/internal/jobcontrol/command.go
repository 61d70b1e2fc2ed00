//go:build unix

package jobcontrol

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

// ForwardedSignals returns the signals that are forwarded to the command.
func ForwardedSignals() []os.Signal {
	return []os.Signal{
		syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
	}
}

// groupPoll is how often terminate checks whether the process group is gone.
const groupPoll = 10 * time.Millisecond

// A Command runs only while a lock is held, in a process group of its own.
//
// Background processes that it leaves running are not waited for if Out and Err are files. Run copies
// what is written to other writers, until the last process that may write has ended.
type Command struct {
	Args      []string
	Env       []string
	In        io.Reader
	Out, Err  io.Writer
	KillAfter time.Duration // from SIGTERM to SIGKILL, once the lock is lost

	Signals  <-chan os.Signal // forwarded to the command
	LockLost <-chan struct{}  // closed when the lock is lost
	LockHeld func() bool      // reports whether the lock is still held

	// keyboardSignal is the signal from the keyboard that ended the command, 0 for none.
	keyboardSignal syscall.Signal

	cmd *exec.Cmd
}

// Run runs the command to its end. An error means that it was not started.
func (c *Command) Run() (Exit, error) {
	group := newProcessGroup()
	defer group.restoreTerminal()
	started, exited := make(chan error), make(chan struct{})
	go func() {
		// The kernel kills the command when the thread that started it ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.start()
		started <- err
		if err == nil {
			c.cmd.Wait() // how it ended is in ProcessState
		}
		close(exited)
	}()
	if err := <-started; err != nil {
		return Exit{}, err
	}
	group.attach(c.cmd.Process.Pid, c.In, c.Out)
	forwarded := false
	for {
		select {
		case <-exited:
			exit := exitOf(c.cmd.ProcessState)
			if !forwarded && (exit.Signal == syscall.SIGINT || exit.Signal == syscall.SIGQUIT) && group.hasTerminal() {
				c.keyboardSignal = exit.Signal
			}
			return exit, nil
		case <-c.LockLost:
			c.terminate(exited)
			return exitOf(c.cmd.ProcessState), nil
		case s := <-c.Signals:
			forwarded = true
			c.signalGroup(s.(syscall.Signal))
		case s := <-group.signals:
			switch {
			case !group.handle(s):
			case !c.LockHeld():
				// This program was stopped for too long: others may have the lock already.
				c.KillAfter = 0
			case group.mayRun(s):
				group.resume()
			}
		}
	}
}

// start starts the command. A script without a #! line is run by /bin/sh, as
// shells and execvp(3) do.
func (c *Command) start() error {
	c.prepare(c.Args)
	err := c.cmd.Start()
	if path := c.cmd.Path; errors.Is(err, syscall.ENOEXEC) && isText(path) {
		c.prepare(append([]string{"/bin/sh", path}, c.Args[1:]...))
		err = c.cmd.Start()
	}
	return err
}

func (c *Command) prepare(command []string) {
	c.cmd = exec.Command(command[0], command[1:]...)
	c.cmd.Env, c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = c.Env, c.In, c.Out, c.Err
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(c.cmd.SysProcAttr)
}

// isText reports whether a file begins like a script, not like a binary of another system.
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

// signalGroup sends a signal to the command's process group.
func (c *Command) signalGroup(s syscall.Signal) error {
	return syscall.Kill(-c.cmd.Process.Pid, s)
}

// terminate ends the whole process group: SIGTERM, and SIGKILL after KillAfter.
func (c *Command) terminate(exited <-chan struct{}) {
	deadline := time.NewTimer(c.KillAfter)
	defer deadline.Stop()
	poll := time.NewTicker(groupPoll)
	defer poll.Stop()
	if c.KillAfter > 0 {
		c.signalGroup(syscall.SIGTERM)
		c.signalGroup(syscall.SIGCONT) // a stopped process can't handle SIGTERM
	}
	for {
		if errors.Is(c.signalGroup(0), syscall.ESRCH) {
			break
		}
		select {
		case <-poll.C:
			continue
		case <-deadline.C:
			c.signalGroup(syscall.SIGKILL)
		}
		break
	}
	<-exited
}

// SignalCaller sends the signal with which the keyboard ended the command to our own
// process group, such as the script that runs us: the terminal sent it to the command alone.
func (c *Command) SignalCaller() {
	if c.keyboardSignal != 0 {
		syscall.Kill(0, c.keyboardSignal)
	}
}

// exitOf returns how a process ended that was waited for.
func exitOf(s *os.ProcessState) Exit {
	if s == nil {
		return Exit{Code: 1}
	}
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return Exit{Signal: w.Signal()}
	}
	return Exit{Code: s.ExitCode()}
}
