package site

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// An agent names a process once and for all, across processes and boots of
// one machine: it is the process of git that runs the hooks of a push.
type agent struct {
	boot  string // the kernel's ID of the boot
	pid   int
	start string // when the process started, in the kernel's own unit
}

func (a agent) String() string { return fmt.Sprintf("%s:%d:%s", a.boot, a.pid, a.start) }

// parseAgent reads what String returned, as it is recorded with an intent.
func parseAgent(s string) (agent, bool) {
	parts := strings.Split(s, ":")
	if len(parts) != 3 {
		return agent{}, false
	}
	pid, err := strconv.Atoi(parts[1])
	return agent{parts[0], pid, parts[2]}, err == nil && pid > 0
}

// errOrphan: a hook runs on although the process that started it is gone.
var errOrphan = errors.New("the process that pushed is gone")
