package main

import (
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
)

// Every command that docs/OPERATIONS.md has about a database that went back in time can be run as it is written.
func TestTheCommandsAboutADatabaseThatWentBackAreUnderstood(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## The database went back in time\n")
	section, _, _ = strings.Cut(section, "\n## ")
	found := regexp.MustCompile("(?m)(?:`|^ {4,7})refdbctl ([^`\n]*)").FindAllStringSubmatch(section, -1)
	if len(found) < 15 {
		t.Fatalf("only %d commands were found", len(found))
	}
	recovers := 0
	for _, f := range found {
		words := strings.Fields(regexp.MustCompile(`"[^"]*"`).ReplaceAllString(f[1], "why"))
		a := newApp(cli.Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard, Env: func(string) string { return "" }})
		cmd, rest, err := a.rootCommand().Find(words)
		if err == nil {
			err = cmd.ParseFlags(rest)
		}
		switch {
		case err != nil:
			t.Errorf("refdbctl %s: %v", f[1], err)
		case cli.IsGroup(cmd):
			t.Errorf("refdbctl %s: that is a group of commands", f[1])
		case cmd.Name() == "recover":
			recovers++
		}
	}
	if recovers < 5 {
		t.Errorf("only %d commands recover the database", recovers)
	}
}
