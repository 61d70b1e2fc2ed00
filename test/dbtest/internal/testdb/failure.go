package testdb

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
)

// longestLog is how many lines of a server's log a failed test shows.
const longestLog = 100

// A ServerLog is what a server prints.
type ServerLog interface {
	Printed() int64             // in bytes
	OutputFrom(at int64) string // what was printed after so many bytes
}

// ExplainFailure has a test that fails log, at its end, what explains a failure that is not the
// test's own: what the server of its database printed meanwhile, and how busy the machine is. log
// is nil if nobody knows what the server prints. keep chooses the lines.
func ExplainFailure(tb testing.TB, log ServerLog, keep func(line string) bool) {
	tb.Helper()
	var begin int64
	if log != nil {
		begin = log.Printed()
	}
	tb.Cleanup(func() {
		if !tb.Failed() {
			return
		}
		if log != nil {
			tb.Logf("the database's server printed:\n%s", lastLines(log.OutputFrom(begin), keep))
		}
		tb.Logf("the machine:\n%s", machineLoad())
	})
}

// EveryLine keeps all lines.
func EveryLine(string) bool { return true }

// lastLines returns the last of the lines to be kept.
func lastLines(text string, keep func(line string) bool) string {
	var lines []string
	for line := range strings.Lines(text) {
		if keep(line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-longestLog):], "")
}

// machineLoad returns how busy the machine is, as far as its system says so.
func machineLoad() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d processors\n", runtime.NumCPU())
	for _, name := range []string{"/proc/loadavg", "/proc/pressure/cpu", "/proc/pressure/io", "/proc/pressure/memory"} {
		if text, err := os.ReadFile(name); err == nil {
			fmt.Fprintf(&b, "%s: %s\n", name, strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "; "))
		}
	}
	return b.String()
}
