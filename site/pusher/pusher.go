package pusher

import (
	"slices"
	"strings"
)

// frontEnds are git programs that start other git programs, and move no refs themselves.
// One stands here twice because the kernel cuts the name of a process after 15 bytes.
var frontEnds = []string{"git-daemon", "git-http-backend", "git-http-backen", "git-shell"}

// movesRefs reports whether the program of that name is a git that may move refs. GitPrograms
// are names of programs that are git under another name.
func movesRefs(program string, gitPrograms []string) bool {
	program = strings.TrimSuffix(program, " (deleted)") // an upgrade replaced it while it runs
	if slices.Contains(frontEnds, program) {
		return false
	}
	return program == "git" || strings.HasPrefix(program, "git-") || slices.Contains(gitPrograms, program)
}
