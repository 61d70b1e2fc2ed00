package main

import (
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
)

// Every command that docs/GIT.md tells an operator to run can be run as it is written.
func TestTheCommandsOfTheSiteDocumentationAreUnderstood(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/GIT.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?:`|\\$ )(?:sudo )?(?:-u git )?refdbctl ([^`\n]*)").FindAllSubmatch(text, -1)
	if len(found) < 10 {
		t.Fatalf("only %d commands were found", len(found))
	}
	for _, f := range found {
		words := strings.Fields(strings.ReplaceAll(string(f[1]), `"us burnt down, its disks are lost"`, "why"))
		a := newApp(cli.Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard, Env: func(string) string { return "" }})
		cmd, rest, err := a.rootCommand().Find(words)
		if err == nil {
			err = cmd.ParseFlags(rest)
		}
		if err != nil {
			t.Errorf("refdbctl %s: %v", f[1], err)
		} else if cli.IsGroup(cmd) {
			t.Errorf("refdbctl %s: that is a group of commands", f[1])
		}
	}
}
