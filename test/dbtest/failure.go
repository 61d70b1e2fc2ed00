package dbtest

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
)

const (
	// longestLog is how many lines of a server's log a failed test shows.
	longestLog = 100

	// logPrefix begins a line of PostgreSQL's log with its time and process, and with the
	// database, which is empty in lines about the whole server.
	logPrefix = "%m [%p] database=%d "
)

// A serverLog is what a server prints.
type serverLog interface {
	Printed() int64             // in bytes
	OutputFrom(at int64) string // what was printed after so many bytes
}

// explainFailure has a test that fails log, at its end, what explains a failure that is not the
// test's own: what the server of its database printed meanwhile, and how busy the machine is. log
// is nil if nobody knows what the server prints. keep chooses the lines.
func explainFailure(tb testing.TB, log serverLog, keep func(line string) bool) {
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

func everyLine(string) bool { return true }

// aboutDatabase keeps the lines of PostgreSQL's log about a database, or about the whole server.
func aboutDatabase(name string) func(line string) bool {
	keep := false
	return func(line string) bool {
		// A line without a prefix goes on with what the line before began.
		if _, about, ok := strings.Cut(line, " database="); ok && !strings.HasPrefix(line, "\t") {
			keep = strings.HasPrefix(about, " ") || strings.HasPrefix(about, name+" ")
		}
		return keep
	}
}

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
