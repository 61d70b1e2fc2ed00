//go:build linux

package sites

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// A gate is a reference-transaction hook that waits where a test wants it to.
type gate struct {
	t   testing.TB
	dir string
}

// gateIn installs a gate in a repository. name is the hook's file.
func gateIn(t testing.TB, repo, name string) *gate {
	t.Helper()
	g := &gate{t, shortDir(t)}
	writeScript(t, filepath.Join(repo, "hooks", name), fmt.Sprintf(`
gate=%q
[ -n "$(cat)" ] || exit 0 # newer versions call it with nothing
echo "$1" >>$gate/calls
if [ -e $gate/$1.shut ]; then
	echo $PPID >$gate/$1.new
	mv $gate/$1.new $gate/$1.waits
	while [ -e $gate/$1.shut ]; do sleep 0.01; done
fi
echo "$1" >>$gate/passed
exit 0
`, g.dir))
	return g
}

// shut makes the next calls in that state wait.
func (g *gate) shut(state string) {
	g.t.Helper()
	g.write(state + ".shut")
}

func (g *gate) write(name string) {
	g.t.Helper()
	if err := os.WriteFile(filepath.Join(g.dir, name), nil, 0o600); err != nil {
		g.t.Fatal(err)
	}
}

// waits returns the parent of the call that waits in that state.
func (g *gate) waits(state string) (parent int) {
	g.t.Helper()
	eventually(g.t, "a hook in the state "+state, func() error {
		text, err := os.ReadFile(filepath.Join(g.dir, state+".waits"))
		if err != nil {
			return err
		}
		parent, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return err
	})
	return parent
}

// open lets all calls in that state go on.
func (g *gate) open(state string) {
	g.t.Helper()
	for _, name := range []string{state + ".waits", state + ".shut"} {
		if err := os.RemoveAll(filepath.Join(g.dir, name)); err != nil {
			g.t.Fatal(err)
		}
	}
}

// calls returns the states of all calls so far, passed the states of the calls that went on.
func (g *gate) calls() []string  { return g.lines("calls") }
func (g *gate) passed() []string { return g.lines("passed") }

func (g *gate) lines(name string) []string {
	g.t.Helper()
	text, err := os.ReadFile(filepath.Join(g.dir, name))
	if err != nil && !os.IsNotExist(err) {
		g.t.Fatal(err)
	}
	return slices.DeleteFunc(strings.Fields(string(text)), func(s string) bool { return s == "preparing" })
}

// parentOf returns the process ID of a process's parent.
func parentOf(t testing.TB, pid int) int {
	t.Helper()
	fields, err := stat(pid)
	if err != nil {
		t.Fatal(err)
	}
	parent, err := strconv.Atoi(fields[1])
	return must(t, parent, err)
}

// stat returns what follows the name in /proc/PID/stat: state, parent, …
func stat(pid int) ([]string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	// The name, in parentheses, may hold anything.
	return strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:])), nil
}

// childrenOf returns a process's children that have not ended.
func childrenOf(t testing.TB, parent int) (pids []int) {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		var pid int
		if _, err := fmt.Sscanf(path, "/proc/%d/stat", &pid); err != nil {
			t.Fatal(err)
		}
		fields, err := stat(pid)
		if err == nil && fields[1] == strconv.Itoa(parent) && fields[0] != "Z" {
			pids = append(pids, pid)
		}
	}
	return pids
}

// gone waits until a process has ended.
func gone(t testing.TB, pid int) {
	t.Helper()
	eventually(t, fmt.Sprint("the end of process ", pid), func() error {
		fields, err := stat(pid)
		if err != nil || fields[0] == "Z" {
			return nil
		}
		return fmt.Errorf("it still runs: %s", fields[0])
	})
}

// kill9 kills a process and waits for its end.
func kill9(t testing.TB, pid int) {
	t.Helper()
	if pid <= 1 {
		t.Fatalf("kill %d", pid)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatalf("kill %d: %v", pid, err)
	}
	gone(t, pid)
}

// signal sends a process a signal.
func signal(t testing.TB, pid int, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		t.Fatalf("signal %d to %d: %v", s, pid, err)
	}
}
