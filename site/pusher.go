package site

import (
	"slices"
	"strings"
)

// frontEnds are programs of git's that run others of git's, and move no ref.
// A process's short name ends after 15 bytes.
var frontEnds = []string{"git-daemon", "git-http-backend", "git-http-backen", "git-shell"}

// pushes reports whether the program of that name is git, about to move refs.
func (c *Config) pushes(program string) bool {
	program = strings.TrimSuffix(program, " (deleted)") // by an upgrade, while it runs
	if slices.Contains(frontEnds, program) {
		return false
	}
	return program == "git" || strings.HasPrefix(program, "git-") || slices.Contains(c.gitExes, program)
}
