package pusher

import (
	"strconv"
	"strings"
)

// processName identifies a process among those of all machines, boots and PID namespaces:
// the agent, and the PID namespace in which it has its ID.
func processName(a Agent, namespace uint64) string {
	return a.String() + ":" + strconv.FormatUint(namespace, 10)
}

// parseProcessName reads what processName returned.
func parseProcessName(s string) (a Agent, namespace uint64, ok bool) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return Agent{}, 0, false
	}
	a, ok = ParseAgent(s[:i])
	namespace, err := strconv.ParseUint(s[i+1:], 10, 64)
	return a, namespace, ok && err == nil
}
