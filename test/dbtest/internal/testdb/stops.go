package testdb

import (
	"fmt"
	"os"
	"slices"
	"sync"
)

// A Stopper is stopped at the end.
type Stopper interface{ Stop() error }

// A StopFunc is a function that stops something.
type StopFunc func() error

// Stop calls f.
func (f StopFunc) Stop() error { return f() }

// stops are the stoppers. The last one is stopped first.
type stops struct {
	mu  sync.Mutex
	all []Stopper
}

// started is what this process has to stop. It is global because tests share
// their servers.
var started stops

// StopAtEnd has [StopAll] stop it.
func StopAtEnd(it Stopper) {
	started.mu.Lock()
	defer started.mu.Unlock()
	started.all = append(started.all, it)
}

// StopAll stops what was started.
func StopAll() {
	started.mu.Lock()
	defer started.mu.Unlock()
	for _, it := range slices.Backward(started.all) {
		Stop(it)
	}
	started.all = nil
}

// Stop stops it, and says if that fails.
func Stop(it Stopper) {
	if err := it.Stop(); err != nil {
		Served("%v", err)
	}
}

// Served says which server the tests run on.
func Served(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "dbtest: "+format+"\n", args...)
}

// ServerDirs returns the directories of the servers that this process runs.
func ServerDirs() (dirs []string) {
	started.mu.Lock()
	defer started.mu.Unlock()
	for _, it := range started.all {
		if server, ok := it.(interface{ Dir() string }); ok {
			dirs = append(dirs, server.Dir())
		}
	}
	return dirs
}
