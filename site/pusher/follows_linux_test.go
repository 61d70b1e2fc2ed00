package pusher

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// followsVar makes this test's program say whether a git follows the database in the repository of that path.
const followsVar = "REFDB_TEST_FOLLOWS"

func TestMain(m *testing.M) {
	if dir := os.Getenv(followsVar); dir != "" {
		fmt.Print(FollowsSince(time.Duration(1<<62), dir, nil))
		return
	}
	os.Exit(m.Run())
}

// A daemon that is not root's can't look into what others run. That must not let it wait for any git of the machine.
func TestOnlyGitsOfTheDaemonsUserAndRootFollow(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("left out: looking at the processes of other users as one that may not, which needs root to begin with")
	}
	const daemon, other = 65534, 65533
	dir := filepath.Join(t.TempDir(), "a.git")
	git := filepath.Join(t.TempDir(), "git") // a shell by that name
	if err := os.Symlink("/bin/sh", git); err != nil {
		t.Fatal(err)
	}
	for up := git; up != "/"; up = filepath.Dir(up) {
		if info, err := os.Stat(up); err == nil && info.IsDir() && info.Mode()&0o001 == 0 {
			if err := os.Chmod(up, info.Mode()|0o001); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, row := range []struct {
		name        string
		user        uint32
		args        []string
		environment string
		want        bool
	}{
		{"another git of root", 0, nil, "", false},
		{"root's that names the repository", 0, []string{"--git-dir=" + dir}, "", true},
		{"another user's", other, []string{"--git-dir=" + dir}, "REFDB_REPLICA=1", false},
		{"the daemon's that pushes", daemon, []string{"--git-dir=" + dir}, "", false},
		{"the daemon's that follows", daemon, []string{"--git-dir=" + dir}, "REFDB_REPLICA=1", true},
		{"the daemon's that follows in another repository", daemon, []string{"--git-dir=" + dir + "2"}, "REFDB_REPLICA=1", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			cmd := exec.Command(git, append([]string{"-c", "read line", "sh"}, row.args...)...)
			if _, err := cmd.StdinPipe(); err != nil {
				t.Fatal(err)
			}
			cmd.Dir = "/"
			cmd.Env = []string{row.environment}
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: row.user, Gid: row.user}}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { cmd.Process.Kill(); cmd.Wait() }()
			look := exec.Command("/proc/self/exe")
			look.Dir = "/"
			look.Env = []string{followsVar + "=" + dir}
			look.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: daemon, Gid: daemon}}
			out, err := look.CombinedOutput()
			if got := strings.TrimSpace(string(out)); err != nil || got != fmt.Sprint(row.want) {
				t.Errorf("it follows: %s, %v, want %v", got, err, row.want)
			}
		})
	}
}
