package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// The commands that docs/OPERATIONS.md gives about the history run as they are written, in their order. The test replaces the
// repository's path, and a watch's reader leaves at once.
func TestTheCommandsAboutTheHistoryRunAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	commands := documentedCommands(t)
	w := newRecordedWorld(t)
	r := newRepo(t, mainRef)
	git(t, r.path, "config", "refdb.projectid", "the-id")
	w.Exec(t, `INSERT INTO projects (project, id, rules, mode, revision, time, op) VALUES ('team/app', 'the-id', '', 'enforce', 1, now(), 'id')`)
	db := w.open(t)
	move := func(old, to refdb.Value) {
		if err := db.Update(t.Context(), "team/app", []refdb.Update{{Ref: mainRef, Old: old, New: to}}); err != nil {
			t.Fatal(err)
		}
	}
	first := refdb.Value(r.commit)
	move(refdb.Unknown, first)
	w.Exec(t, `UPDATE history SET time = time - interval '4 days'`)
	w.Exec(t, `UPDATE epochs SET began = began - interval '200 days'`)
	move(first, refdb.Value(r.set(t, mainRef)))
	if err := db.Followers().Put(t.Context(), "NAME", refdb.Cursor{}); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(self, filepath.Join(bin, "refdbctl")); err != nil {
		t.Fatal(err)
	}
	outputs := make(map[string]string)
	for _, command := range commands {
		script := strings.ReplaceAll(command, "/srv/git/team/app.git", r.path)
		switch {
		case strings.HasPrefix(command, "refdbctl watch"):
			script += " | true"
		case strings.HasPrefix(command, "refdbctl followers remove"):
			script += " --yes" // there is no terminal to ask on
		}
		cmd := exec.CommandContext(t.Context(), "bash", "-euc", "-o", "pipefail", script)
		cmd.Env = append(w.program(t).Env, "PATH="+bin+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
		outputs[command] = string(out)
	}
	for part, want := range map[string]string{
		"refs log team/app refs/heads/main": "@{1}",
		`--at "3d ago"`:                     r.commit,
		"--dry-run":                         "would_move",
		"pushed by mistake":                 "moved",
		"history prune":                     "pruned 0 changes",
		"followers list":                    "NAME",
		"history stats":                     "the history begins",
	} {
		found := false
		for command, out := range outputs {
			if strings.Contains(command, part) {
				found = true
				if !strings.Contains(out, want) {
					t.Errorf("%s says %q, not %q", command, out, want)
				}
			}
		}
		if !found {
			t.Errorf("no command has %q", part)
		}
	}
}

// documentedCommands returns the commands of the section about the history: lines of their own, those of units, and
// those in the text that are whole.
func documentedCommands(t *testing.T) (commands []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## History\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, m := range regexp.MustCompile("(?m)^    (refdbctl .*)$|^ExecStart=/usr/bin/(refdbctl .*)$|`(refdbctl (?:followers|history) [^`]*)`").FindAllStringSubmatch(section, -1) {
		if command := m[1] + m[2] + m[3]; command != "refdbctl history prune" {
			commands = append(commands, command)
		}
	}
	if len(commands) < 12 {
		t.Fatalf("only %d commands were found: %q", len(commands), commands)
	}
	return commands
}
