package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
)

// restoredCommands returns the commands that docs/OPERATIONS.md has for what a restored database lacks and no journal has, in
// their order.
func restoredCommands(t *testing.T) (commands []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	_, part, begun := strings.Cut(string(text), "**Restoring changes that no journal has.**")
	part, _, ended := strings.Cut(part, "\n**")
	if !begun || !ended {
		t.Fatal("docs/OPERATIONS.md says nothing about what no journal has")
	}
	for _, found := range regexp.MustCompile(`(?m)^ {7}refdbctl (.*)$`).FindAllStringSubmatch(part, -1) {
		commands = append(commands, found[1])
	}
	return commands
}

// The documented commands bring back the refs that a restored database has lost. Until then no site moves
// a ref back.
func TestTheCommandsForADatabaseThatWasRestored(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	eu, us := w.newSite(t, "eu-1", mainRef), w.newSite(t, "us-1")
	stops := map[*gitSite]func(){}
	for i, s := range []*gitSite{eu, us} {
		stops[s] = s.serve(t)
		s.site(t, "enable", []string{"--new", "--copy"}[i], "team/app", "--hook", s.hook).is(t, exit.OK, "")
	}
	sync := func(flags ...string) result {
		return us.site(t, append([]string{"sync", "--from", eu.repo.path, "--peer", "eu-1", "team/app"}, flags...)...)
	}
	sync().is(t, exit.OK, "")
	for _, table := range []string{"refs", "locks", "intents"} {
		w.Exec(t, "CREATE TABLE backup_"+table+" AS SELECT * FROM "+table)
	}
	stops[us]()
	stops[us] = us.serve(t) // so that the backup has an earlier generation
	old := w.do(t, "refs", "get", "team/app", mainRef)
	pushed, err := eu.push(t, mainRef)
	if err != nil {
		t.Fatal(err)
	}
	sync().is(t, exit.OK, "")
	for _, s := range []*gitSite{eu, us} {
		stops[s]()
	}
	for _, table := range []string{"refs", "locks", "intents"} {
		w.Exec(t, "DELETE FROM "+table)
		w.Exec(t, "INSERT INTO "+table+" SELECT * FROM backup_"+table)
		w.Exec(t, "DROP TABLE backup_"+table)
	}
	if got := w.do(t, "refs", "get", "team/app", mainRef); got != old || got == pushed+"\n" {
		t.Fatalf("the restored database has %s", got)
	}
	for _, name := range []string{"eu-1", "us-1"} { // the backup has the locks of the daemons that ran then
		w.Age(t, presenceProject, "refs/sites/"+name, time.Hour)
	}
	us.site(t, "serve").is(t, exit.Failed, "refdbctl site take-over")

	unchanged := func() {
		t.Helper()
		for _, s := range []*gitSite{eu, us} {
			if local := git(t, s.repo.path, "rev-parse", mainRef); local != pushed {
				t.Errorf("%s is %s, want %s", mainRef, local, pushed)
			}
		}
	}
	run := func(s *gitSite, command string) result {
		words := strings.Fields(strings.ReplaceAll(command, "/srv/git/team/app.git", s.repo.path))
		if words[0] == "site" {
			words = append(words, "--config", s.config)
		}
		return w.run(t, words...)
	}
	commands := restoredCommands(t)
	ran := map[string]int{}
	for _, command := range commands {
		words := strings.Fields(command)
		verb := strings.Join(words[:min(2, len(words))], " ")
		ran[verb]++
		switch verb {
		case "migrate up", "doctor", "refs import":
			run(eu, command).is(t, exit.OK, "")
		case "site take-over", "site repair":
			for _, s := range []*gitSite{eu, us} {
				run(s, command).is(t, exit.OK, "")
			}
		case "site check":
			for _, s := range []*gitSite{eu, us} {
				if r := run(s, command); r.code != exit.Failed || !strings.Contains(r.out, "database-behind") {
					t.Errorf("%s: %d %s %s", command, r.code, r.out, r.err)
				}
			}
			if r := sync("--dry-run"); r.code != exit.Failed || !strings.Contains(r.out, "ahead") {
				t.Errorf("sync --dry-run: %d %s %s", r.code, r.out, r.err)
			}
		case "refs verify":
			run(eu, command).is(t, exit.Failed, "")
		default:
			t.Errorf("refdbctl %s: a command that this test does not know", command)
		}
		unchanged()
	}
	if len(commands) < 8 || ran["site take-over"] != 1 || ran["refs import"] != 2 {
		t.Errorf("the commands are %q", commands)
	}
	for _, s := range []*gitSite{eu, us} {
		s.serve(t)
	}
	sync().is(t, exit.OK, "")
	unchanged()
	for _, s := range []*gitSite{eu, us} {
		s.site(t, "check", "--hook", s.hook).is(t, exit.OK, "0 findings")
	}
	if got := w.do(t, "refs", "get", "team/app", mainRef); got != pushed+"\n" {
		t.Errorf("the database has %s, want %s", got, pushed)
	}
}
