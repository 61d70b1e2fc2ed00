package test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/site/wire"
)

// The five steps of docs/GIT.md, on both sites: the test runs every command and uses every file as
// they are written there. It replaces paths (by ones below a directory of the site's own), the
// database (by SQLite), sudo (the test's user is both root and git) and systemd (it runs the unit's
// ExecStart with the file of StandardInput); it makes no user. make packages-test takes the same steps with the package.
// The README's test covers the build, test/sites covers failures.
func TestTheFiveStepsOfTheGitDocumentationRun(t *testing.T) {
	t.Parallel()
	texts := map[string]string{}
	for _, path := range []string{"docs/GIT.md", "docs/INSTALL.md", "deploy/systemd/refdb-site.service"} {
		text, err := os.ReadFile("../" + path)
		if err != nil {
			t.Fatal(err)
		}
		texts[path] = string(text)
	}
	dir, err := os.MkdirTemp("", "five") // short: sockets are in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	d := &gitDocumentation{text: texts["docs/GIT.md"], install: texts["docs/INSTALL.md"], unit: texts["deploy/systemd/refdb-site.service"], dir: dir}
	eu, us := d.newSite(t, "eu"), d.newSite(t, "us")

	d.commands(t, "1", 2, eu)
	for _, s := range []*documentedSite{eu, us} { // 2
		s.configure(t)
		s.startDaemon(t)
		eventually(t, "the daemon answers", func() error {
			_, err := s.try(t, d.step(t, "2", 2)[1])
			return err
		})
	}

	work := filepath.Join(dir, "work")
	runIn(t, dir, nil, "git", "init", "--quiet", "--initial-branch=main", work)
	commit := func(message string) {
		runIn(t, work, nil, "git", "-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "--quiet", "--allow-empty", "-m", message)
	}
	commit("the first")
	runIn(t, dir, nil, "git", "clone", "--quiet", "--bare", work, eu.repository())
	d.commands(t, "3", 1, eu)
	d.commands(t, "4", 1, us)

	for i, s := range []*documentedSite{eu, us} { // 5
		other := []*documentedSite{us, eu}[i]
		branch := "refs/heads/from-" + s.name
		commit(branch)
		runIn(t, work, nil, "git", "push", "--quiet", s.repository(), "HEAD:"+branch)
		eventually(t, branch+" is at site "+other.name, func() error {
			if got, want := runIn(t, other.repository(), nil, "git", "for-each-ref", "--format=%(objectname)", branch), hash(t, s, branch); got != want {
				return fmt.Errorf("there is %q, not %s", got, want)
			}
			return nil
		})
		for _, at := range []*documentedSite{eu, us} {
			if out := d.commands(t, "5", 2, at); !strings.Contains(out, ": 0 findings\n") || !strings.Contains(out, branch) {
				t.Errorf("at site %s: %s", at.name, out)
			}
		}
	}
}

func eventually(t *testing.T, what string, is func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	err := is()
	for ; err != nil && time.Now().Before(deadline); err = is() {
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		t.Fatalf("waited in vain: %s: %v", what, err)
	}
}

func hash(t *testing.T, s *documentedSite, ref string) string {
	return runIn(t, s.repository(), nil, "git", "rev-parse", ref)
}

// gitDocumentation is docs/GIT.md with the files that it leads to, and where the test runs its commands.
type gitDocumentation struct{ text, install, unit, dir string }

// step returns the commands of a step. They must be want.
func (d *gitDocumentation) step(t *testing.T, number string, want int) (commands []string) {
	t.Helper()
	_, steps, _ := strings.Cut(d.text, "in five steps\n")
	body := regexp.MustCompile(`(?s)\n` + number + `\. (.*?)\n(?:\d+\. |\n)`).FindStringSubmatch(steps)
	if body == nil {
		t.Fatalf("there is no step %s", number)
	}
	for _, m := range regexp.MustCompile("`((?:sudo |refdbctl )[^`]*)`").FindAllStringSubmatch(body[1], -1) {
		commands = append(commands, m[1])
	}
	if len(commands) != want {
		t.Fatalf("step %s has the commands %q, want %d", number, commands, want)
	}
	return commands
}

// commands runs the commands of a step at a site, and returns what they print.
func (d *gitDocumentation) commands(t *testing.T, number string, want int, at *documentedSite) (out string) {
	t.Helper()
	for _, command := range d.step(t, number, want) {
		said, err := at.try(t, command)
		if err != nil {
			t.Fatalf("step %s at site %s: %s: %v\n%s", number, at.name, command, err, said)
		}
		out += said
	}
	return out
}

// documentedSite is a site that is set up as the documentation says.
type documentedSite struct {
	*gitDocumentation
	name, root string
}

func (d *gitDocumentation) newSite(t *testing.T, name string) *documentedSite {
	t.Helper()
	s := &documentedSite{d, name, filepath.Join(d.dir, name)}
	for _, sub := range []string{"run/refdb", "var/lib/refdb"} {
		if err := os.MkdirAll(filepath.Join(s.root, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *documentedSite) repository() string { return filepath.Join(s.root, "srv/git/team/app.git") }
func (s *documentedSite) config() string     { return filepath.Join(s.root, "etc/refdb/site.config") }
func (s *documentedSite) database() string   { return "sqlite:" + filepath.Join(s.dir, "refs.sqlite") }

// here returns a text with the paths of this site.
func (s *documentedSite) here(text string) string {
	return regexp.MustCompile(`/(?:etc/refdb|srv/git)\b`).ReplaceAllStringFunc(text, func(path string) string { return s.root + path })
}

// configure makes the directories of step 2, and writes its two files.
func (s *documentedSite) configure(t *testing.T) {
	t.Helper()
	installs := regexp.MustCompile("(?m)^sudo (install -d .*)$").FindAllStringSubmatch(s.install, -1)
	if len(installs) != 2 {
		t.Fatalf("the directories are made by %q", installs)
	}
	for _, m := range installs {
		if out, err := s.try(t, strings.Replace(m[1], "-o git -g git ", "", 1)); err != nil {
			t.Fatalf("%s: %v\n%s", m[1], err, out)
		}
	}
	block := regexp.MustCompile("(?s)```ini\n( +\\[site\\].*?)```").FindStringSubmatch(s.text)
	if block == nil || !strings.Contains(block[1], "name = eu ") {
		t.Fatal("there is no configuration")
	}
	text := s.here(strings.Replace(block[1], "name = eu ", "name = "+s.name+" ", 1))
	text += "\nsocket = " + s.root + "/run/refdb/site.sock\nstate = " + s.root + "/var/lib/refdb\n" // paths that have defaults
	text += "timeout = 5m\nlockWait = 5m\n"                                                         // only a hang reaches them
	for path, content := range map[string]string{s.config(): text, s.here("/etc/refdb/database"): s.database() + "\n"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// startDaemon does what systemd does with the unit.
func (s *documentedSite) startDaemon(t *testing.T) {
	t.Helper()
	line := func(key string) string {
		m := regexp.MustCompile(`(?m)^` + key + `=(.*)$`).FindStringSubmatch(s.unit)
		if m == nil {
			t.Fatalf("the unit has no %s", key)
		}
		return m[1]
	}
	in, err := os.Open(s.here(strings.TrimPrefix(line("StandardInput"), "file:")))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	ctx, cancel := context.WithCancel(context.Background())
	args := strings.Fields(line("ExecStart"))
	daemon := exec.CommandContext(ctx, filepath.Join(programs(t), filepath.Base(args[0])), append(args[1:], "--config", s.config())...)
	daemon.Stdin, daemon.Stderr, daemon.Env = in, os.Stderr, patientEnviron()
	daemon.Cancel = func() error { return daemon.Process.Signal(syscall.SIGTERM) }
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = daemon.Wait()
	})
}

// patientEnviron is [cleanEnviron] in which only a hang reaches the limit of hooks and commands.
func patientEnviron() []string {
	return append(cleanEnviron(), wire.LimitVariable+"="+patience.String())
}

// try runs a command of the documentation at the site.
func (s *documentedSite) try(t *testing.T, command string) (string, error) {
	t.Helper()
	command = regexp.MustCompile(`sudo (-u git )?`).ReplaceAllString(s.here(command), "")
	if strings.HasPrefix(command, "refdbctl site ") {
		command += " --config " + s.config()
	}
	cmd := exec.Command("bash", "-euc", command)
	cmd.Env = append(patientEnviron(), "PATH="+programs(t)+":"+os.Getenv("PATH"))
	if !strings.Contains(command, "REFDB_URL=") && !strings.HasPrefix(command, "refdbctl site ") {
		cmd.Env = append(cmd.Env, "REFDB_URL="+s.database())
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}
