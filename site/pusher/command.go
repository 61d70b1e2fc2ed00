package pusher

import (
	"path"
	"strings"
)

// withValue are git's own options, before the command, whose value is the next argument.
var withValue = map[string]bool{
	"-C": true, "-c": true, "--git-dir": true, "--work-tree": true, "--namespace": true, "--super-prefix": true, "--config-env": true, "--attr-source": true,
}

// commandOf returns the command of git that the arguments of a process name, such as "push", and the command's own arguments. An alias runs
// its command in another process, which has the command's own name.
func commandOf(words []string) (command string, arguments []string) {
	if len(words) == 0 {
		return "", nil
	}
	if command, ok := strings.CutPrefix(path.Base(words[0]), "git-"); ok {
		return command, words[1:]
	}
	for i := 1; i < len(words); i++ {
		switch {
		case withValue[words[i]]:
			i++
		case !strings.HasPrefix(words[i], "-"):
			return words[i], words[i+1:]
		}
	}
	return "", nil
}

// renamedTo returns the branch to which the arguments of a process rename another; "" if they don't.
func renamedTo(words []string) string {
	command, arguments := commandOf(words)
	if command != "branch" {
		return ""
	}
	moves, ended, last := false, false, ""
	for _, a := range arguments {
		switch {
		case ended || !strings.HasPrefix(a, "-"):
			last = a
		case a == "--":
			ended = true
		case strings.HasPrefix(a, "--"):
			moves = moves || len(a) >= len("--mo") && strings.HasPrefix("--move", a)
		default:
			moves = moves || strings.ContainsAny(a, "mM")
		}
	}
	if !moves || last == "" {
		return ""
	}
	return "refs/heads/" + last
}
