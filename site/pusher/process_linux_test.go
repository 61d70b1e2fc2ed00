package pusher

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestStatOfAProcess(t *testing.T) {
	t.Parallel()
	rest := " S 7 8 9 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0"
	for _, name := range []string{"(git)", "(a b)", "(a) S 1 1 1)", "(()", "())"} {
		s, err := parseStat([]byte("42 " + name + rest))
		if err != nil || s != (stat{parent: 7, group: 8, start: "4711"}) {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
	for _, text := range []string{"", "42 (git", "42 (git) S 1"} {
		if s, err := parseStat([]byte(text)); err == nil {
			t.Errorf("%q: %+v", text, s)
		}
	}
	s, err := statOf(os.Getpid())
	if err != nil || s.parent != os.Getppid() || s.group != syscall.Getpgrp() {
		t.Errorf("our own: %+v, %v", s, err)
	}
}

func TestAgent(t *testing.T) {
	t.Parallel()
	a := Agent{"11f3b0a4-6a43-4a4f-9d6e-0d6b8a5c1f00", 42, "4711"}
	if got, ok := ParseAgent(a.String()); !ok || got != a {
		t.Errorf("%v, %v", got, ok)
	}
	for _, s := range []string{"", "a:b:c", "a:1", "a:0:1", "a:-1:1", "a:1:2:3"} {
		if got, ok := ParseAgent(s); ok {
			t.Errorf("%q: %+v", s, got)
		}
	}
}

// Not parallel: it takes all file descriptors but one.
func TestAProcessThatCannotBeLookedAtHasNotEnded(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	s, err := statOf(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	boot, err := BootID()
	if err != nil {
		t.Fatal(err)
	}
	a := Agent{boot, cmd.Process.Pid, s.start}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 64, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	var files []*os.File
	for {
		f, err := os.Open("/dev/null")
		if err != nil {
			break
		}
		defer f.Close()
		files = append(files, f)
	}
	for left := range 3 {
		p, err := Watch(a)
		if errors.Is(err, ErrGone) || (err == nil) != (left == 2) {
			t.Errorf("with %d descriptors left: %v", left, err)
		}
		if err == nil {
			p.Close()
		}
		if !Running(a.String(), boot) {
			t.Errorf("with %d descriptors left it has ended", left)
		}
		files[left].Close()
	}
}

// sleeper is a process in a group of its own, with a child whose ID it prints.
func sleeper(t *testing.T, script string) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); cmd.Wait() })
	b := make([]byte, 20)
	n, err := out.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return cmd, strings.TrimSpace(string(b[:n]))
}

func TestThePusherIsTheHooksParent(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	defer unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
	cmd, child := sleeper(t, "sleep 100 & echo $!; wait")
	hook, c := Hook{pid: atoi(t, child)}, []string{"sh", "dash", "bash", "busybox"}
	a, err := hook.Agent(c, nil, "boot")
	if err != nil || a.PID != cmd.Process.Pid {
		t.Fatalf("%+v, %v", a, err)
	}
	p, err := Watch(a)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if p.ended() || hook.RunBy(a) != nil {
		t.Error("it has ended already")
	}
	other := a
	other.start += "1"
	if _, err := Watch(other); !errors.Is(err, ErrGone) {
		t.Errorf("another process of the same ID: %v", err)
	}
	waited := make(chan error, 1)
	go func() { waited <- p.Wait() }()
	syscall.Kill(a.PID, syscall.SIGKILL)
	select {
	case err := <-waited:
		// It is dead, though nobody has collected it yet.
		if err != nil || !p.ended() {
			t.Errorf("%v, ended %v", err, p.ended())
		}
	case <-time.After(5 * time.Minute): // only a hang takes as long
		t.Fatal("its end goes unnoticed")
	}
	if _, err := Watch(a); !errors.Is(err, ErrGone) {
		t.Errorf("one that has ended: %v", err)
	}
	cmd.Wait()
	// Now the hook is an orphan: of the first process or, here, of one that adopts orphans.
	if a, err := hook.Agent(c, nil, "boot"); !errors.Is(err, ErrGone) {
		t.Errorf("an orphan's: %+v, %v", a, err)
	}
	if hook.RunBy(a) == nil {
		t.Error("an orphan still has its parent")
	}
	if _, err := (Hook{}).Agent(c, nil, "boot"); err == nil || errors.Is(err, ErrGone) {
		t.Errorf("one that can't be seen: %v", err)
	}
}

func TestClosingEndsTheWait(t *testing.T) {
	t.Parallel()
	cmd, _ := sleeper(t, "echo; exec sleep 100")
	s, err := statOf(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Watch(Agent{"boot", cmd.Process.Pid, s.start})
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(10*time.Millisecond, p.Close) // nothing shows that it waits: it may be closed before
	if err := p.Wait(); err == nil {
		t.Error("a process that lives has ended")
	}
}

func atoi(t *testing.T, s string) (n int) {
	t.Helper()
	for _, c := range s {
		n = 10*n + int(c-'0')
	}
	return n
}
