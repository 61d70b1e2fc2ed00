package pusher

import (
	"path"
	"strings"
)

// withValue are git's own options, before the command, whose value is the next argument.
var withValue = map[string]bool{
	"-C": true, "-c": true, "--git-dir": true, "--work-tree": true, "--namespace": true, "--super-prefix": true, "--config-env": true, "--attr-source": true,
}

// commandOf returns the command of git that the arguments of a process name, such as "push". An alias runs its command in
// another process, which has the command's own name.
func commandOf(words []string) string {
	if len(words) == 0 {
		return ""
	}
	if command, ok := strings.CutPrefix(path.Base(words[0]), "git-"); ok {
		return command
	}
	for i := 1; i < len(words); i++ {
		switch {
		case withValue[words[i]]:
			i++
		case !strings.HasPrefix(words[i], "-"):
			return words[i]
		}
	}
	return ""
}
