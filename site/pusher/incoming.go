package pusher

import (
	"os"
	"strconv"
	"strings"
)

// Incoming returns the directory in which git keeps the objects of a push while it runs the hook pre-receive, or "" if there is none, or the
// hook's environment can't be read, as that of another user's process. The hook waits for its answer, so its number is not another's.
func (p Hook) Incoming() string {
	environ, err := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/environ")
	if err != nil {
		return ""
	}
	for entry := range strings.SplitSeq(string(environ), "\x00") {
		if dir, ok := strings.CutPrefix(entry, "GIT_QUARANTINE_PATH="); ok {
			return dir
		}
	}
	return ""
}
