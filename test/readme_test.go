package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The commands that README.md gives a newcomer run as they are written, in a clone. The test
// replaces the directory /tmp.
func TestTheReadmeRunsAsItIsWritten(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	clone, tmp := cloneOfThis(t), t.TempDir()
	_, block, _ := strings.Cut(string(text), "\nBy hand:\n\n")
	block, _, _ = strings.Cut(block, "\n\n")
	var script []string
	for line := range strings.Lines(block) {
		command, ok := strings.CutPrefix(strings.TrimSpace(line), "$ ")
		if !ok {
			t.Fatalf("%q is no command", line)
		}
		script = append(script, strings.ReplaceAll(command, "/tmp/", tmp+"/"))
	}
	if len(script) < 10 {
		t.Fatalf("only %d commands were found", len(script))
	}
	out := runIn(t, clone, nil, "bash", "-euxc", strings.Join(script, "\n"))
	for _, want := range []string{": 1 imported, ", "refs/heads/main", "the first commit", "equal"} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}

	program := regexp.MustCompile("(?s)```go\n(package main\n.*?)```").FindSubmatch(text)
	if program == nil {
		t.Fatal("there is no program")
	}
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, program[1], 0o666); err != nil {
		t.Fatal(err)
	}
	// Without the clone's path in it, what is built here was built before. Without a debugger's tables it is linked in half the time.
	env := []string{"REFDB_URL=sqlite:" + tmp + "/refs.sqlite", "GOFLAGS=-trimpath -ldflags=-w", "CGO_ENABLED=0"}
	if out := runIn(t, clone, env, "go", "run", file); out != "" {
		t.Errorf("the program says %q", out)
	}
	for _, ref := range []string{"refs/heads/main", "refs/heads/release"} {
		if out := runIn(t, clone, env, "bin/refdbctl", "refs", "get", "my/project", ref); !strings.Contains(out, strings.Repeat("2", 40)) {
			t.Errorf("%s holds %s", ref, out)
		}
	}
}

// What README.md shows of the demo, the demo prints: the same lines in the same order, but for values, times, winners and padding.
func TestTheDemoPrintsWhatTheReadmeShows(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the programs and pushes for some ten seconds")
	}
	t.Parallel()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, ok := strings.Cut(string(text), "```text\n== ")
	block, _, closed := strings.Cut("== "+block, "```")
	if !ok || !closed {
		t.Fatal("README.md shows no output")
	}
	varies := regexp.MustCompile(`\b(eu|us)\b|[0-9a-f]{7,}|\d\d:\d\d:\d\d|\d+(\.\d+)?m?s\b|\d+`)
	plain := func(line string) string { return varies.ReplaceAllString(strings.TrimSpace(line), "…") }

	rest := runIn(t, cloneOfThis(t), nil, "make", "demo")
	for line := range strings.Lines(block) {
		found := false
		for !found && rest != "" {
			var printed string
			printed, rest, _ = strings.Cut(rest, "\n")
			found = plain(printed) == plain(line)
		}
		if !found {
			t.Fatalf("the demo does not print, in this order, %q", line)
		}
	}
}

// cloneOfThis returns a repository of one commit with the files of this one.
func cloneOfThis(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	entries, err := os.ReadDir("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		switch from, to := filepath.Join("..", e.Name()), filepath.Join(dir, e.Name()); {
		case e.Name() == ".git" || e.Name() == "bin":
		case e.IsDir():
			err = os.CopyFS(to, os.DirFS(from))
		default:
			runIn(t, ".", nil, "cp", from, to)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	runIn(t, dir, nil, "git", "init", "--quiet", "--initial-branch=main")
	runIn(t, dir, nil, "git", "add", ".")
	runIn(t, dir, nil, "git", "-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "--quiet", "-m", "the first commit")
	return dir
}

// runIn runs a command that must succeed. Its environment names no database, unless env does.
func runIn(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(cleanEnviron(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// cleanEnviron returns the environment without variables for a database, a repository or make's own flags.
func cleanEnviron() (env []string) {
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "REFDB_") && !strings.HasPrefix(v, "GIT_") && !strings.HasPrefix(v, "MAKE") {
			env = append(env, v)
		}
	}
	return env
}
