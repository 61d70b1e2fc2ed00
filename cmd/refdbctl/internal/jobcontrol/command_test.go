//go:build linux

package jobcontrol

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/testprogram"
)

// patience is how long tests wait for what must happen.
const patience = 5 * time.Minute

// The commands of the tests handle signals. They would inherit those that this process was told to
// ignore, as by nohup, and could not handle them; they don't inherit those that it catches.
func TestMain(m *testing.M) {
	caught := make(chan os.Signal, 1)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGHUP} {
		if signal.Ignored(s) {
			signal.Notify(caught, s)
		}
	}
	os.Exit(m.Run())
}

// running is a command in progress.
type running struct {
	lines   *bufio.Scanner
	signals chan os.Signal
	lost    chan struct{}
	ended   chan Exit
}

// start runs a shell script, and waits until it has printed "ready".
func start(tb testing.TB, script string, killAfter time.Duration) *running {
	tb.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	run := &running{bufio.NewScanner(r), make(chan os.Signal, 1), make(chan struct{}), make(chan Exit, 1)}
	c := &Command{Args: []string{"sh", "-c", script}, Env: os.Environ(), Out: w, Err: os.Stderr, KillAfter: killAfter,
		Signals: run.signals, LockLost: run.lost, LockHeld: func() bool { return true }}
	go func() {
		exit, err := c.Run()
		if err != nil {
			tb.Error(err)
		}
		w.Close()
		run.ended <- exit
	}()
	tb.Cleanup(func() { r.Close() })
	run.prints(tb, "ready")
	return run
}

func (r *running) prints(tb testing.TB, want string) {
	tb.Helper()
	if !r.lines.Scan() || r.lines.Text() != want {
		tb.Fatalf("printed %q, want %q", r.lines.Text(), want)
	}
}

// ends waits until the command and all processes with its output have ended.
func (r *running) ends(tb testing.TB, want Exit) {
	tb.Helper()
	for r.lines.Scan() {
	}
	select {
	case got := <-r.ended:
		if got != want {
			tb.Errorf("it ended with %+v, want %+v", got, want)
		}
	case <-time.After(patience):
		tb.Fatal("it did not end")
	}
}

func TestTheEndOfACommandIsReported(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script, binary := filepath.Join(dir, "script"), filepath.Join(dir, "binary")
	for name, text := range map[string]string{script: "exit $1\n", binary: "\x7fno program\x00\n"} {
		if err := testprogram.Write(name, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args []string
		exit Exit
		err  error
	}{
		{[]string{"true"}, Exit{}, nil},
		{[]string{"sh", "-c", "exit 42"}, Exit{Code: 42}, nil},
		{[]string{"sh", "-c", "kill -9 $$"}, Exit{Signal: syscall.SIGKILL}, nil},
		{[]string{script, "6"}, Exit{Code: 6}, nil}, // without #!, as shells run it
		{[]string{binary}, Exit{}, syscall.ENOEXEC},
		{[]string{filepath.Join(dir, "nothing")}, Exit{}, os.ErrNotExist},
		{[]string{dir}, Exit{}, os.ErrPermission},
	} {
		command := &Command{Args: c.args, Out: io.Discard, LockHeld: func() bool { return true }}
		if exit, err := command.Run(); exit != c.exit || !errors.Is(err, c.err) {
			t.Errorf("%s: %+v, %v", strings.Join(c.args, " "), exit, err)
		}
	}
}

func TestSignalsAreForwardedToTheGroup(t *testing.T) {
	t.Parallel()
	r := start(t, `trap 'echo hup' HUP; trap 'echo usr1' USR1; trap 'exit 9' USR2; echo ready; while :; do sleep 0.01; done`, 0)
	for s, says := range map[os.Signal]string{syscall.SIGHUP: "hup", syscall.SIGUSR1: "usr1"} {
		r.signals <- s
		for r.lines.Scan() && r.lines.Text() != says { // the sleep in the group dies of the signal
		}
	}
	r.signals <- syscall.SIGUSR2
	r.ends(t, Exit{Code: 9})
}

// The output is open as long as any process of the group runs.
func TestALostLockEndsTheWholeGroup(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script    string
		killAfter time.Duration
		want      Exit
	}{
		"with SIGTERM":                     {`sleep 1000 & trap 'exit 3' TERM; echo ready; wait`, patience, Exit{Code: 3}},
		"with SIGKILL if that is ignored":  {`trap '' TERM; sh -c 'while :; do sleep 1; done' & echo ready; wait`, 50 * time.Millisecond, Exit{Signal: syscall.SIGKILL}},
		"with SIGKILL at once, without it": {`trap 'exit 3' TERM; echo ready; while :; do sleep 1; done`, 0, Exit{Signal: syscall.SIGKILL}},
		"even if it is stopped":            {`trap 'exit 3' TERM; echo ready; kill -STOP $$; wait`, patience, Exit{Code: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, c.script, c.killAfter)
			close(r.lost)
			r.ends(t, c.want)
		})
	}
}
