package pusher

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/globalrefdb/globalrefdb/site/wire"
)

// An orphan is adopted, here by this test, which is of the same process group: as
// git daemon is in a container.
func TestAnOrphanIsNoPushOfWhoeverAdoptsIt(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	defer unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
	cmd := exec.Command("sh", "-c", "sleep 100 & echo $!; wait")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 20)
	n, err := out.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	hook := Hook{pid: atoi(t, strings.TrimSpace(string(b[:n])))}
	defer func() {
		syscall.Kill(hook.pid, syscall.SIGKILL)
		syscall.Wait4(hook.pid, nil, 0, nil)
	}()
	parent, err := statOf(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	c := []string{"sh", "dash", "bash", "busybox"}
	said := &wire.Process{PID: hook.pid, Parent: cmd.Process.Pid, ParentStart: parent.start}
	if a, err := hook.Agent(c, said, "boot"); err != nil || a != (Agent{"boot", cmd.Process.Pid, parent.start}) {
		t.Fatalf("while its parent lives: %+v, %v", a, err)
	}
	later := *said
	later.ParentStart += "1"
	if a, err := hook.Agent(c, &later, "boot"); !errors.Is(err, ErrGone) {
		t.Errorf("another process has its parent's ID: %+v, %v", a, err)
	}
	elsewhere := *said
	elsewhere.PID++
	if a, err := hook.Agent(c, &elsewhere, "boot"); err == nil || !strings.Contains(err.Error(), "PID namespace") {
		t.Errorf("in another PID namespace: %+v, %v", a, err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	if a, err := hook.Agent(c, said, "boot"); !errors.Is(err, ErrGone) {
		t.Errorf("an orphan: %+v, %v", a, err)
	}
	// Hooks that speak version 1 don't say whose children they were.
	if a, err := hook.Agent(c, nil, "boot"); err == nil || !strings.Contains(err.Error(), "site.gitExe") {
		t.Errorf("an orphan whose hook is an old one: %+v, %v", a, err)
	}
}

func TestWhichProgramsPush(t *testing.T) {
	t.Parallel()
	c := []string{".git-wrapped"}
	for name, pushes := range map[string]bool{
		"git": true, "git-receive-pack": true, ".git-wrapped": true, "git (deleted)": true,
		"git-daemon": false, "git-http-backend": false, "git-shell": false, "gitolite-shell": false, "python3.11": false, "tini": false,
	} {
		if movesRefs(name, c) != pushes {
			t.Errorf("%s: %v", name, !pushes)
		}
	}
	exe, err := programOf(os.Getpid())
	if self, _ := os.Executable(); err != nil || exe != filepath.Base(self) {
		t.Errorf("our own is %q, %v", exe, err)
	}
	if exe, err := programOf(1); os.Getpid() != 1 && (exe == "" || err != nil) {
		t.Errorf("that of process 1 is %q, %v", exe, err)
	}
	if _, err := programOf(1 << 30); !errors.Is(err, ErrGone) {
		t.Errorf("one that is gone: %v", err)
	}
}
