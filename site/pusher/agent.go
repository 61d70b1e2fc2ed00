// Package pusher tells which process of git moves refs: it identifies the process that runs a
// hook, watches for its end, and finds the gits that work on a repository.
package pusher

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/site/wire"
)

// An Agent identifies the git process that runs the hooks of a push. No other process of
// the machine, in this boot or another, is the same agent.
type Agent struct {
	Boot  string // the kernel's ID of the boot
	PID   int
	start string // when the process started, in the kernel's unit
}

// String is how intents record an agent.
func (a Agent) String() string { return fmt.Sprintf("%s:%d:%s", a.Boot, a.PID, a.start) }

// ParseAgent reads what [Agent.String] returned.
func ParseAgent(s string) (Agent, bool) {
	parts := strings.Split(s, ":")
	if len(parts) != 3 {
		return Agent{}, false
	}
	pid, err := strconv.Atoi(parts[1])
	return Agent{parts[0], pid, parts[2]}, err == nil && pid > 0
}

// ErrGone says that the process that started a hook, or moved refs, has ended.
var ErrGone = errors.New(wire.PusherGone)

// Running reports whether the agent of that name still runs. Boot is this boot's ID: agents of others have ended.
func Running(name, boot string) bool {
	a, ok := ParseAgent(name)
	if !ok || a.Boot != boot {
		return false
	}
	p, err := Watch(a)
	if err == nil {
		p.Close()
	}
	return !errors.Is(err, ErrGone)
}

// tick is the kernel's unit of start times, on all Linux systems that Go knows.
const tick = time.Second / 100

// StartedAfter reports whether the process has certainly started after the machine had been up for that long, as
// projects.Uptime has it.
func (a Agent) StartedAfter(uptime time.Duration) bool { return startedAfter(a.start, uptime) }

func startedAfter(start string, uptime time.Duration) bool {
	n, err := strconv.ParseInt(start, 10, 64)
	return err == nil && n > int64(uptime/tick)
}
