//go:build unix

package jobcontrol

import (
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// stopSignal stops this process. SIGTTIN, like SIGTSTP, stops a process only if another process can
// continue it. SIGTSTP itself is unsuitable: Go does not restore the default action of a signal
// that it has caught once.
const stopSignal = syscall.SIGTTIN

// processGroup is the process group of a command. It is stopped and continued together with this
// process, as a shell does with a job. The command must never run while this process is stopped,
// because its lock would not be renewed.
type processGroup struct {
	id       int // the command's process group
	ownID    int // this process's group
	terminal int // -1: none
	signals  chan os.Signal
}

// newProcessGroup is called before the command starts. From then on no signal stops this process
// without the command.
func newProcessGroup() *processGroup {
	g := &processGroup{ownID: syscall.Getpgrp(), terminal: -1, signals: make(chan os.Signal, 4)}
	signal.Notify(g.signals, syscall.SIGCHLD, syscall.SIGCONT, syscall.SIGTSTP)
	return g
}

// attach sets the group's ID once the command has started. If in is a terminal that this process
// has in the foreground, attach passes it to the command, unless out is a pipe: the other end may
// be a pager that needs the terminal.
func (g *processGroup) attach(group int, in io.Reader, out io.Writer) {
	g.id = group
	if f, ok := in.(*os.File); ok && term.IsTerminal(int(f.Fd())) && !isPipe(out) {
		g.terminal = int(f.Fd())
		// Using the terminal from the background must not stop this process.
		signal.Ignore(syscall.SIGTTOU)
		g.resume()
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

// handle handles one of g.signals, and reports whether this process may have been stopped.
func (g *processGroup) handle(s os.Signal) bool {
	switch s {
	case syscall.SIGCHLD:
		if g.terminal < 0 || !stopped(g.id) {
			return false
		}
		// Ctrl-Z reached the command alone. It is meant for the whole job of this process, which
		// may be a pipeline. This process receives the SIGTSTP as well, and stops then.
		if g.foreground() == g.id {
			g.setForeground(g.ownID)
		}
		syscall.Kill(0, syscall.SIGTSTP)
		return false
	case syscall.SIGTSTP:
		syscall.Kill(-g.id, syscall.SIGSTOP)
		stopSelf()
		stopped(g.id) // takes note of the SIGSTOP above: its SIGCHLD must not stop the job again
	}
	return true
}

// mayRun reports whether the command can run after a signal that may have stopped this process. In
// the background the command would only be stopped again, unless this process was continued there.
func (g *processGroup) mayRun(after os.Signal) bool {
	return after == syscall.SIGCONT || g.terminal < 0 || g.foreground() == g.ownID
}

// resume continues the command, in the foreground if this process has the terminal.
func (g *processGroup) resume() {
	if g.foreground() == g.ownID {
		g.setForeground(g.id)
	}
	// The command is stopped if it used the terminal before it was in the foreground.
	syscall.Kill(-g.id, syscall.SIGCONT)
}

// hasTerminal reports whether the command has the terminal.
func (g *processGroup) hasTerminal() bool { return g.terminal >= 0 && g.foreground() == g.id }

// restoreTerminal takes the terminal back, after the command's end.
func (g *processGroup) restoreTerminal() {
	signal.Stop(g.signals)
	if g.terminal < 0 {
		return
	}
	if g.hasTerminal() {
		g.setForeground(g.ownID)
	}
	signal.Reset(syscall.SIGTTOU)
}

// foreground returns the process group that has the terminal, -1 without one.
func (g *processGroup) foreground() int {
	if g.terminal < 0 {
		return -1
	}
	group, err := unix.IoctlGetInt(g.terminal, unix.TIOCGPGRP)
	if err != nil {
		return -1
	}
	return group
}

func (g *processGroup) setForeground(group int) {
	// If this fails, the command is stopped when it reads the terminal: no loss of safety.
	unix.IoctlSetPointerInt(g.terminal, unix.TIOCSPGRP, group)
}
