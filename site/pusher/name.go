package pusher

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// frontEndVariables are the environment variables in which front ends of git say who pushes. REFDB_PUSHER is for
// those that have none of their own. REMOTE_USER comes last: behind a web server a front end may
// know the user by another name.
var frontEndVariables = [...]string{
	"REFDB_PUSHER",
	"GL_USERNAME",         // GitLab
	"GL_USER",             // Gitolite
	"GITEA_PUSHER_NAME",   // Gitea, Forgejo
	"GOGS_AUTH_USER_NAME", // Gogs
	"REMOTE_USER",         // git http-backend, and any web server
}

// maxNameBytes is what the history takes of a name.
const maxNameBytes = 200

// PushedBy returns the name of who pushes, as the front end says it in the environment of the agent, or
// "": in one of these variables or else one of those that front ends are known to set. The
// kernel has the environment as it was when git started. Only while a hook is still run by
// the agent ([Hook.RunBy], asked later) is the answer known to be about the agent.
//
// The hook need not say it: so it stays as it is, and what is looked for is the daemon's
// configuration alone.
func (a Agent) PushedBy(variables []string) string {
	// As for a program's name: of another user's process, such as root's, it can't be read.
	b, err := os.ReadFile("/proc/" + strconv.Itoa(a.PID) + "/environ")
	if err != nil {
		return ""
	}
	return nameIn(string(b), slices.Concat(variables, frontEndVariables[:]))
}

// nameIn returns the first name that one of the variables has in an environment, in the order of the
// variables.
func nameIn(environ string, variables []string) string {
	found := make([]string, len(variables))
	for entry := range strings.SplitSeq(environ, "\x00") {
		variable, value, _ := strings.Cut(entry, "=")
		if i := slices.Index(variables, variable); i >= 0 && found[i] == "" {
			found[i] = CleanName(value)
		}
	}
	for _, name := range found {
		if name != "" {
			return name
		}
	}
	return ""
}

// CleanName makes a name fit for the history: a push is not refused for it.
func CleanName(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s))
	if len(s) <= maxNameBytes {
		return s
	}
	s = s[:maxNameBytes]
	for !utf8.ValidString(s) { // a character was cut
		s = s[:len(s)-1]
	}
	return s
}
