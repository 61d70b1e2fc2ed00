package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/site/client"
)

// nobody is the ID of a user who is neither root nor the one who runs the tests.
const nobody = 65534

// The daemon runs as the repositories' user, as do git and its hooks: they must not
// find the password of all sites' projects in it.
func TestThePasswordCanNotBeReadOffTheDaemon(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can hand a file over to a daemon of another user: whether the password can be read off it is not looked at")
	}
	dir, err := os.MkdirTemp("/tmp", "secret")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	config := siteConfig(t, dir, "")
	w := newWorld(t)
	program := w.program(t, "site", "serve", "--config", config, "--database-file", "-")
	copied := filepath.Join(dir, "refdbctl")
	for _, args := range [][]string{
		{"cp", program.Path, copied}, {"chown", "-R", fmt.Sprint(nobody), dir}, {"chmod", "0755", dir},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	const secret = "schwertfisch"
	file := filepath.Join(t.TempDir(), "database")
	if err := os.WriteFile(file, []byte("postgres://refdb:"+secret+"@127.0.0.1:1/refdb\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	stdin, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	program.Path, program.Stdin, program.Dir = copied, stdin, dir
	program.Env = append(without(program.Env, "REFDB_URL"), "HOME="+dir)
	program.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	program.Stderr = log
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		program.Process.Kill()
		program.Wait()
		if text, _ := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("the daemon says\n%s", text)
		}
	})
	awaitStatus(t, dir, "up", func(s client.Status) bool {
		text, err := os.ReadFile(log.Name())
		return err == nil && strings.Contains(string(text), "127.0.0.1") // it has the address
	})
	for _, name := range []string{"environ", "fd/0", "mem", "maps"} {
		cat := exec.Command("head", "-c", "1", fmt.Sprintf("/proc/%d/%s", program.Process.Pid, name))
		cat.SysProcAttr = program.SysProcAttr
		if out, err := cat.CombinedOutput(); err == nil || !strings.Contains(string(out), "ermission denied") {
			t.Errorf("another process of the same user reads %s: %v: %s", name, err, out)
		}
	}
	for _, name := range []string{"environ", "cmdline"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", program.Process.Pid, name))
		if err != nil || strings.Contains(string(text), secret) {
			t.Errorf("%s: %v: %s", name, err, text)
		}
	}
}

// The file is root's, and a daemon that is not is told to get it from systemd.
func TestAFileOfRootsIsNotReadByOthers(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root has a file that others can't read: what they are told is not looked at")
	}
	dir, err := os.MkdirTemp("/tmp", "rootsfile")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	file, copied := filepath.Join(dir, "database"), filepath.Join(dir, "refdbctl")
	config := siteConfig(t, dir, "")
	program := newWorld(t).program(t, "site", "serve", "--config", config, "--database-file", file)
	for _, args := range [][]string{{"cp", program.Path, copied}, {"chown", "-R", fmt.Sprint(nobody), dir}, {"chmod", "0755", dir}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if err := os.WriteFile(file, []byte("postgres://refdb@127.0.0.1:1/refdb\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	program.Path, program.Dir = copied, dir
	program.Env = append(without(program.Env, "REFDB_URL"), "HOME="+dir)
	program.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := program.CombinedOutput()
	want := "refdbctl: reading the database's address: open " + file + ": permission denied: run this as root or, in a unit of systemd, open the file with StandardInput=file:" + file + " and give --database-file -\n"
	if err == nil || string(out) != want {
		t.Errorf("%v: %s; want %s", err, out, want)
	}
}

func without(env []string, name string) (rest []string) {
	for _, entry := range env {
		if !strings.HasPrefix(entry, name+"=") {
			rest = append(rest, entry)
		}
	}
	return rest
}

func TestTheDatabasesAddressComesFromAFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "database")
	if err := os.WriteFile(file, []byte("postgres://refdb@127.0.0.1:1/refdb?connect_timeout=1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	plain := siteConfig(t, t.TempDir(), "")
	named := siteConfig(t, t.TempDir(), "databaseFile = "+file)
	for _, args := range [][]string{
		{"--config", plain, "--database-file", file},
		{"--config", named},
	} {
		cmd := w.program(t, append([]string{"site", "repair", "--timeout", "2s"}, args...)...)
		cmd.Env = without(cmd.Env, "REFDB_URL")
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "127.0.0.1") {
			t.Errorf("%q: %v: %s", args, err, out)
		}
	}
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.run(t, "site", "repair", "--config", plain, "--database-file", empty).is(t, exit.Failed, empty+" is empty")
	w.run(t, "site", "repair", "--config", plain, "--database-file", dir+"/nowhere").is(t, exit.Failed, "reading the database's address")
}

// Only root can read the database's address. The files that enable and sync leave in the
// repository belong to its owner nevertheless.
func TestRootEnablesARepositoryAsItsOwner(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user: whether `site enable` does is not looked at")
	}
	dir, err := os.MkdirTemp("/tmp", "owner")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	w := newWorld(t)
	data := filepath.Dir(strings.TrimPrefix(w.URL(), "sqlite:"))
	repo, file := filepath.Join(dir, "team/app.git"), filepath.Join(dir, "database")
	config := siteConfig(t, dir, "databaseFile = "+file)
	hook := filepath.Join(dir, "refdb-hook")
	built, err := builtHook()
	if err != nil {
		t.Fatal(err)
	}
	writeProgram(t, hook, string(built))
	serve := w.program(t, "site", "serve", "--config", config, "--database-file", "-")
	for _, args := range [][]string{
		{"git", "init", "--quiet", "--bare", repo},
		{"cp", serve.Path, filepath.Join(dir, "refdbctl")},
		{"chown", "-R", fmt.Sprint(nobody), dir, data},
		{"chmod", "0755", dir, filepath.Dir(data), data},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	if err := os.WriteFile(file, []byte(w.URL()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	stdin, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	program := func(cmd *exec.Cmd) *exec.Cmd {
		cmd.Path, cmd.Dir = filepath.Join(dir, "refdbctl"), dir
		cmd.Env = without(cmd.Env, "REFDB_URL")
		return cmd
	}
	program(serve).Stdin = stdin
	serve.Env = append(serve.Env, "HOME="+dir)
	serve.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { serve.Process.Kill(); serve.Wait() })
	awaitStatus(t, dir, "up", func(s client.Status) bool { return s.OK() })
	for _, args := range [][]string{
		{"site", "enable", "--new", "team/app", "--config", config, "--hook", hook},
		{"site", "sync", "--from", repo, "team/app", "--config", config},
		{"site", "check", "--repair", "--config", config, "--hook", hook},
		{"site", "repair", "--config", config},
	} {
		if out, err := program(w.program(t, args...)).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	out, err := exec.Command("find", repo, "!", "-user", fmt.Sprint(nobody)).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("not the owner's: %v: %s", err, out)
	}
}
