package pusher

import (
	"strconv"
	"strings"
	"time"
)

// A Guard identifies one run of a process that moves refs by itself, in transactions of its own: see docs/SOCKET.md. No
// other process of the machine, in this boot or another, is the same guard.
type Guard struct {
	Agent
	Namespace uint64 // the PID namespace in which it has its ID
	ID        string // random
}

// A Transaction is one of a guard's.
type Transaction struct {
	Guard Guard
	TX    string
}

// String returns what [ParseGuard] reads.
func (g Guard) String() string { return processName(g.Agent, g.Namespace) + ":" + g.ID }

// String is how intents record a transaction. An [Agent]'s text has fewer parts.
func (t Transaction) String() string { return t.Guard.String() + ":" + t.TX }

// ParseGuard reads what [Guard.String] returned.
func ParseGuard(s string) (Guard, bool) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return Guard{}, false
	}
	a, namespace, ok := parseProcessName(s[:i])
	return Guard{a, namespace, s[i+1:]}, ok && s[i+1:] != ""
}

// ParseTransaction reads what [Transaction.String] returned.
func ParseTransaction(s string) (Transaction, bool) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return Transaction{}, false
	}
	g, ok := ParseGuard(s[:i])
	return Transaction{g, s[i+1:]}, ok && s[i+1:] != ""
}

// Ended reports whether the guard is dead: its boot is over, or this process can see that it has ended. Boot is this boot's ID.
func (g Guard) Ended(boot string) bool {
	return g.Boot != boot || ProvenEnded(processName(g.Agent, g.Namespace))
}

// Started returns how long the machine had been up when the process started, as projects.Uptime has it.
func (a Agent) Started() (uptime time.Duration, ok bool) {
	n, err := strconv.ParseInt(a.start, 10, 64)
	return time.Duration(n) * tick, err == nil
}
