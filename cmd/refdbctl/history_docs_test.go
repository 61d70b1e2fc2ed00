package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

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
	for _, m := range regexp.MustCompile("(?m)^    (refdbctl .*)$|^ExecStart=/usr/local/bin/(refdbctl .*)$|`(refdbctl (?:followers|history) [^`]*)`").FindAllStringSubmatch(section, -1) {
		if command := m[1] + m[2] + m[3]; command != "refdbctl history prune" {
			commands = append(commands, command)
		}
	}
	if len(commands) < 12 {
		t.Fatalf("only %d commands were found: %q", len(commands), commands)
	}
	return commands
}
