//go:build linux

package sites

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// unshare runs a command in a PID namespace of its own, which ends with it, as a container's does.
var unshare = []string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc"}

// Two containers beside each other have PID namespaces of which neither is below the other, unless they share one.
func TestTheDaemonInAPIDNamespaceOfItsOwn(t *testing.T) {
	t.Parallel()
	if out, err := exec.Command(unshare[0], append(unshare[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("a PID namespace can't be made here (as root it can): %v: %s", err, out)
	}
	all, err := gits()
	g := must(t, all, err)[0]
	c := newCluster(t, g, design{})
	c.eu.stop()
	c.eu.wrapper = unshare
	c.eu.start()
	daemon := onlyChild(t, c.eu.daemon.Process.Pid)
	push := func(wrapper ...string) (string, error) {
		line := append(wrapper, "git", "-C", c.h.dir, "push", c.eu.repo(project), c.h.a+":refs/heads/main")
		cmd := exec.Command(line[0], line[1:]...)
		cmd.Env = g.env
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for what, wrapper := range map[string][]string{"above": nil, "beside it": unshare} {
		out, err := push(wrapper...)
		if err == nil || !strings.Contains(out, "run in different PID namespaces") || !strings.Contains(out, `pid: "service:NAME"`) {
			t.Errorf("a push in the namespace %s: %v: %s", what, err, out)
		}
	}
	if refs := c.globalRefs(); len(refs) != 0 {
		t.Errorf("the database has %v", refs)
	}
	if out, err := push("nsenter", "--target", fmt.Sprint(daemon), "--pid", "--mount"); err != nil {
		t.Errorf("a push in the daemon's: %v: %s", err, out)
	}
	if refs := c.globalRefs(); refs["refs/heads/main"] != c.h.a {
		t.Errorf("the database has %v", refs)
	}
}

// onlyChild returns the child of a process that has one.
func onlyChild(t *testing.T, pid int) (child int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", pid))
	if _, err := fmt.Sscan(must(t, string(text), err), &child); err != nil {
		t.Fatalf("the children of process %d are %q: %v", pid, text, err)
	}
	return child
}
