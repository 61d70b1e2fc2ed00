//go:build linux

package sites

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A weight is what a process uses.
type weight struct {
	rss     int // in KiB
	files   int // descriptors, without sockets
	sockets int
}

func (w weight) String() string {
	return fmt.Sprintf("%d MiB, %d files, %d sockets", w.rss>>10, w.files, w.sockets)
}

// weigh returns what a process uses.
func weigh(pid int) (w weight, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return w, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			if w.rss, err = strconv.Atoi(strings.Fields(value)[0]); err != nil {
				return w, err
			}
		}
	}
	for kind, n := range filesOf(pid) {
		if kind == "socket:" {
			w.sockets = n
		} else {
			w.files += n
		}
	}
	return w, nil
}

// filesOf counts a process's descriptors by what they are.
func filesOf(pid int) map[string]int {
	kinds := make(map[string]int)
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid)) // it fails for malformed patterns only
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil {
			kind, _, _ := strings.Cut(target, "[")
			kinds[kind]++
		}
	}
	return kinds
}

// A meter watches what the daemons use. It is for one goroutine.
type meter struct {
	warm  map[string]weight    // by site: at the end of the warm-up, under load
	since map[string]time.Time // when the daemon that runs now was started
}

func newMeter() *meter { return &meter{make(map[string]weight), make(map[string]time.Time)} }

// follow notes that a site has a new daemon.
func (m *meter) follow(s *server) { m.since[s.name] = time.Now() }

// warmed notes what the daemons use at the end of the warm-up.
func (m *meter) warmed(s *server) error {
	w, err := weigh(s.daemon.Process.Pid)
	m.warm[s.name] = w
	return err
}

// Margins: memory that Go has not given back yet, in a daemon with the race detector, and a few files.
const (
	fileMargin     = 8
	memoryMargin   = 48 << 10
	goroutineLimit = 50
)

// socketLimit is for the connections to PostgreSQL, as many as the pool opens when it is busy, and a few others.
var socketLimit = max(16, 2*runtime.NumCPU()) + 8

// flat returns an error if a daemon uses more than after the warm-up.
func (m *meter) flat(s *server) (report string, err error) {
	now, err := weigh(s.daemon.Process.Pid)
	if err != nil {
		return "", err
	}
	warm := m.warm[s.name]
	report = fmt.Sprintf("the daemon of %s: %s after the warm-up, %s at the end, having run for %s: %v",
		s.name, warm, now, time.Since(m.since[s.name]).Round(time.Second), filesOf(s.daemon.Process.Pid))
	if now.files > warm.files+fileMargin || now.sockets > socketLimit || now.rss > warm.rss+memoryMargin {
		err = fmt.Errorf("it grows: %s", report)
	}
	return report, err
}

// goroutines makes a daemon end with a dump of its goroutines, and counts them.
func (m *meter) goroutines(t testing.TB, s *server) int {
	t.Helper()
	before := strings.Count(s.daemon.out.String(), "\ngoroutine ")
	signal(t, s.daemon.Process.Pid, syscall.SIGQUIT)
	if s.daemon.wait(t) {
		t.Errorf("the daemon of %s has not died", s.name)
	}
	n := strings.Count(s.daemon.out.String(), "\ngoroutine ") - before
	t.Logf("the daemon of %s had %d goroutines", s.name, n)
	return n
}
