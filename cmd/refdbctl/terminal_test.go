//go:build linux

package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/refdb"
)

// terminal is a pseudo-terminal, with what it has shown.
type terminal struct {
	master, slave *os.File
	shown         screen
	done          chan struct{}
}

func newTerminal(tb testing.TB) *terminal {
	tb.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		tb.Fatalf("this test needs pseudo-terminals: %v", err)
	}
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		tb.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		tb.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		tb.Fatal(err)
	}
	t := &terminal{master: master, slave: slave, done: make(chan struct{})}
	go func() {
		defer close(t.done)
		io.Copy(&t.shown, master) // until the last process has closed it
	}()
	tb.Cleanup(func() {
		slave.Close()
		master.Close()
	})
	return t
}

func (t *terminal) types(tb testing.TB, keys string) {
	tb.Helper()
	if _, err := t.master.WriteString(keys); err != nil {
		tb.Fatal(err)
	}
}

// shows waits until the terminal shows one of texts.
func (t *terminal) shows(tb testing.TB, texts ...string) {
	tb.Helper()
	shown := func(text string) bool { return strings.Contains(t.shown.String(), text) }
	for deadline := time.Now().Add(patience); !slices.ContainsFunc(texts, shown); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("%q is not shown within %s, but: %q", texts, patience, t.shown.String())
		}
	}
}

// number waits until the terminal shows a number after name, up to a full stop, and returns it.
func (t *terminal) number(tb testing.TB, name string) (digits string) {
	tb.Helper()
	eventually(tb, name, func() (shown bool) {
		_, after, _ := strings.Cut(t.shown.String(), name)
		digits, _, shown = strings.Cut(after, ".")
		return shown
	})
	return digits
}

// all returns what the terminal has shown, once no process has it any more.
func (t *terminal) all() string {
	t.slave.Close()
	<-t.done
	return t.shown.String()
}

// isTakenFrom waits until a process that is a session's first has no longer the terminal.
func (t *terminal) isTakenFrom(tb testing.TB, cmd *exec.Cmd) {
	tb.Helper()
	eventually(tb, "another process group has the terminal", func() bool {
		group, err := unix.IoctlGetInt(int(t.master.Fd()), unix.TIOCGPGRP)
		if err != nil {
			tb.Fatal(err)
		}
		return group != cmd.Process.Pid
	})
}

// start runs a command in a session of its own on the terminal.
func (t *terminal) start(tb testing.TB, cmd *exec.Cmd) {
	tb.Helper()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = t.slave, t.slave, t.slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := startForeground(cmd); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
}

// exitOf waits for a process and returns its exit status, -N if signal N ended it.
func exitOf(tb testing.TB, cmd *exec.Cmd) int {
	tb.Helper()
	cmd.Wait()
	if s, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return -int(s.Signal())
	}
	return cmd.ProcessState.ExitCode()
}

// shell returns a shell with job control, in whose script $REFDBCTL is the program.
func (w *world) shell(tb testing.TB, script string) *exec.Cmd {
	tb.Helper()
	cmd := w.program(tb)
	cmd.Env = append(cmd.Env, "REFDBCTL="+cmd.Path)
	cmd.Path = "/bin/sh"
	cmd.Args = []string{"sh", "-c", "set -m; " + script}
	return cmd
}

func TestTheCommandHasTheTerminal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	term := newTerminal(t)
	cmd := w.program(t, "lock", "p", mainRef, "--", "sh", "-c", `echo ready; read x; echo "got <$x>"; exit 5`)
	term.start(t, cmd)
	term.shows(t, "ready")
	term.types(t, "hello\n")
	term.shows(t, "got <hello>")
	if code := exitOf(t, cmd); code != 5 {
		t.Errorf("status %d", code)
	}
}

func TestCtrlCReachesTheCommandAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	term := newTerminal(t)
	cmd := w.program(t, "lock", "p", mainRef, "--", "sh", "-c", `trap 'echo interrupted; exit 5' INT; echo ready; read x`)
	term.start(t, cmd)
	term.shows(t, "ready")
	term.types(t, "\x03")
	if code := exitOf(t, cmd); code != 5 {
		t.Errorf("status %d", code)
	}
	w.isFree(t, mainRef)
	if n := strings.Count(term.all(), "interrupted"); n != 1 {
		t.Errorf("the command was interrupted %d times", n)
	}
}

func TestCtrlZStopsBothAndTheyGoOnTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	term := newTerminal(t)
	cmd := w.shell(t, `"$REFDBCTL" lock p `+mainRef+` `+patientLock+` -- sh -c 'trap "exit 5" INT; echo ready; read x'
		echo "stopped with $?"; read x; fg; echo "ended with $?"; read y; echo "shell got <$y>"`)
	term.start(t, cmd)
	term.shows(t, "ready")
	term.types(t, "\x1a")
	term.shows(t, "stopped with 149")
	term.types(t, "go on\n")
	term.shows(t, "REFDBCTL") // fg prints the job before it gives it the terminal
	term.isTakenFrom(t, cmd)
	term.types(t, "\x03")
	term.shows(t, "ended with 5")
	term.types(t, "mine\n")
	term.shows(t, "shell got <mine>")
	w.isFree(t, mainRef)
}

func TestCtrlZWhereNoShellCouldContinueIsUndone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	term := newTerminal(t)
	cmd := w.program(t, "lock", "p", mainRef, "--", "sh", "-c", `trap "exit 5" INT; echo ready; read x; echo "got <$x>"; read x`)
	term.start(t, cmd)
	term.shows(t, "ready")
	term.types(t, "\x1a")
	term.types(t, "go on\n")
	term.shows(t, "got <go on>")
	term.types(t, "\x03")
	if code := exitOf(t, cmd); code != 5 {
		t.Errorf("status %d", code)
	}
}

func TestCtrlZInAScriptStopsItAll(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	term := newTerminal(t)
	cmd := w.shell(t, `sh -c '"$REFDBCTL" lock p `+mainRef+` `+patientLock+` -- sh -c "echo by=\$PPID.; read x; exit 5"; echo "script sees $?"'
		echo "stopped with $?"; read x; fg; echo "ended with $?"`)
	term.start(t, cmd)
	program := term.number(t, "by=")
	term.types(t, "\x1a")
	term.shows(t, "stopped with 148")
	// The shell looks at the script alone. What is not yet stopped can't be continued.
	eventually(t, "the program is stopped", func() bool { return processState(t, program) == "T" })
	term.types(t, "go on\n")
	term.shows(t, "REFDBCTL")
	term.types(t, "line\n")
	term.shows(t, "script sees 5")
	term.shows(t, "ended with 0")
}

func TestCtrlZInAPipelineStopsTheCommandToo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	term := newTerminal(t)
	cmd := w.shell(t, `"$REFDBCTL" lock p `+mainRef+` `+patientLock+` -- sh -c 'echo pid=$$.; exec sleep 1000' | cat
		echo "stopped with $?"; read x; fg; echo "ended with $?"`)
	term.start(t, cmd)
	pid := term.number(t, "pid=")
	term.types(t, "\x1a")
	term.shows(t, "stopped with 148")
	// A process to which the signal was sent runs no more, but shows that only when its turn comes.
	eventually(t, "the command is stopped while its lock is not renewed", func() bool { return processState(t, pid) == "T" })
	term.types(t, "go on\n")
	eventually(t, "the command is continued", func() bool { return processState(t, pid) != "T" })
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	syscall.Kill(-n, syscall.SIGTERM)
	term.shows(t, "ended with 0")
	w.isFree(t, mainRef)
}

func TestAJobThatIsStoppedGoesOnInTheBackground(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	term := newTerminal(t)
	cmd := w.shell(t, `"$REFDBCTL" lock p `+mainRef+` `+patientLock+` -- sh -c 'echo pid=$$.; exec sleep 1000' &
		echo job=$!.; read x; kill -TSTP %1; read x; bg; read x; kill -TERM $!; wait $!; echo "ended with $?"`)
	term.start(t, cmd)
	job, pid := term.number(t, "job="), term.number(t, "pid=")
	stopped := func() bool { return processState(t, job) == "T" && processState(t, pid) == "T" }
	term.types(t, "stop\n")
	eventually(t, "both are stopped", stopped)
	term.types(t, "go on\n")
	eventually(t, "the command goes on", func() bool { return processState(t, pid) != "T" })
	term.types(t, "end\n")
	term.shows(t, "ended with 143")
	w.isFree(t, mainRef)
}

func processState(tb testing.TB, pid string) string {
	tb.Helper()
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		tb.Fatal(err)
	}
	return strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))[0]
}

func TestALockThatWentStaleWhileStopped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var term *terminal
	for staleAfter := 2 * time.Second; ; staleAfter *= 2 {
		term = newTerminal(t)
		cmd := w.shell(t, `"$REFDBCTL" lock p `+mainRef+` --stale-after=`+staleAfter.String()+` -- sh -c 'echo ready; read x'
			echo "stopped with $?"; read x; fg; echo "ended with $?"`)
		term.start(t, cmd)
		term.shows(t, "stopped with ", "ready")
		term.types(t, "\x1a")
		// A machine that is slow loses the lock before it is stopped.
		term.shows(t, "stopped with 149", "stopped with 4", "stopped with 1\r")
		if strings.Contains(term.shown.String(), "stopped with 149") {
			break
		}
		if staleAfter > patience {
			t.Fatalf("it is not stopped: %q", term.shown.String())
		}
	}
	eventually(t, "the lock is stale", func() bool {
		l, ok := w.RowLock(t, "p", mainRef)
		return ok && l.Stale()
	})
	term.types(t, "go on\n")
	term.shows(t, "ended with 4")
}

func TestAPagerKeepsTheTerminal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	term := newTerminal(t)
	cmd := w.shell(t, `"$REFDBCTL" lock p `+mainRef+` `+patientLock+` -- echo text | { cat; read x </dev/tty; echo "pager got <$x>"; }`)
	term.start(t, cmd)
	term.shows(t, "text")
	term.types(t, "key\n")
	term.shows(t, "pager got <key>")
}

func TestQuestions(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]struct {
		code  int
		shows string
		left  bool
	}{
		"y\n":   {exit.OK, "purged 1 lock", false},
		"YES\n": {exit.OK, "purged 1 lock", false},
		"n\n":   {exit.Failed, "nothing was done", true},
		"\n":    {exit.Failed, "nothing was done", true},
		"\x04":  {exit.Failed, "nothing was done", true},
		"\x03":  {-int(syscall.SIGINT), "interrupted", true},
	} {
		t.Run(fmt.Sprintf("%q", answer), func(t *testing.T) {
			w := newWorld(t)
			w.InsertLock(t, refdb.LockInfo{Project: "p", Ref: mainRef, Owner: "dead", Age: time.Hour})
			term := newTerminal(t)
			cmd := w.program(t, "locks", "purge", "--stale")
			term.start(t, cmd)
			term.shows(t, "Purge 1 lock? [y/N]")
			if !strings.Contains(term.shown.String(), "dead") {
				t.Errorf("does not say what it will do: %q", term.shown.String())
			}
			term.types(t, answer)
			if code := exitOf(t, cmd); code != want.code {
				t.Errorf("status %d, want %d", code, want.code)
			}
			term.shows(t, want.shows)
			if _, left := w.RowLock(t, "p", mainRef); left != want.left {
				t.Errorf("the lock is left: %v", left)
			}
		})
	}
}

func TestColoursAndProgressAreForTerminals(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env["TERM"] = "xterm"
	w.InsertLock(t, refdb.LockInfo{Project: "p", Ref: mainRef, Owner: "dead", Age: time.Hour})
	show := func(args ...string) string {
		term := newTerminal(t)
		cmd := w.program(t, args...)
		term.start(t, cmd)
		if code := exitOf(t, cmd); code != exit.OK {
			t.Errorf("%v: status %d", args, code)
		}
		return term.all()
	}
	if got := show("locks", "list"); !strings.Contains(got, "\x1b[33mstale") {
		t.Errorf("no colour: %q", got)
	}
	repo := newRepo(t, branches(1500)...)
	if got := show("refs", "import", "p", "--repo", repo.path); !strings.Contains(got, "/1500") || !strings.Contains(got, "1500 imported") {
		t.Errorf("no progress: %q", got)
	}
	w.env["NO_COLOR"] = "1"
	if got := show("locks", "list"); strings.Contains(got, "\x1b") {
		t.Errorf("colour in spite of NO_COLOR: %q", got)
	}
}

func TestWatchOnATerminalDrawsInPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	term := newTerminal(t)
	cmd := w.program(t, "locks", "list", "--watch=50ms")
	term.start(t, cmd)
	eventually(t, "two rounds", func() bool { return strings.Count(term.shown.String(), clearScreen) >= 2 })
	term.types(t, "\x03")
	if code := exitOf(t, cmd); code != exit.OK {
		t.Errorf("status %d: %q", code, term.shown.String())
	}
}

func TestAWaiterOnATerminalSaysWhomItWaitsFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	lock, err := w.open(t).TryLock(t.Context(), "p", mainRef)
	if err != nil {
		t.Fatal(err)
	}
	term := newTerminal(t)
	cmd := w.program(t, "lock", "p", mainRef, "--", "echo", "mine")
	term.start(t, cmd)
	term.shows(t, "waiting: ")
	term.shows(t, lock.Owner())
	if err := lock.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	term.shows(t, "mine")
	exitOf(t, cmd)
}
