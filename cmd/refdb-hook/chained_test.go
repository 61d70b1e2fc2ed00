package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// These tests are not parallel: a script that was just written can't be run while
// a process that was forked meanwhile has it open.

func TestAChainedHookRunsFirst(t *testing.T) {
	const record = "#!/bin/sh\n{ echo \"$0 $*\"; cat; } >seen\n"
	for _, c := range []struct {
		name, state, script string
		status              int
		asked               bool
		says                string
	}{
		{"agrees", "prepared", record, 0, true, ""},
		{"refuses", "prepared", record + "echo no >&2; exit 7\n", 7, false, "no\n"},
		{"after the fact", "committed", record + "exit 7\n", 0, true, ""},
		{"in a state of later gits", "preparing", record + "exit 7\n", 7, false, ""},
		{"is killed", "prepared", record + "kill -9 $$\n", 128 + 9, false, "ended by a signal"},
		{"is killed after the fact", "aborted", record + "kill -9 $$\n", 0, true, "ended by a signal"},
		{"names no interpreter", "prepared", strings.TrimPrefix(record, "#!/bin/sh\n"), 0, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSite(t)
			d := s.serve("ok\n")
			s.write("hooks/reference-transaction.chained", c.script, 0o755)
			many := strings.Repeat(lines, 2000) // more than a pipe holds
			var says []string
			if c.says != "" {
				says = []string{c.says}
			}
			s.transaction(c.state, many).do().is(c.status, says...)
			seen, err := os.ReadFile(s.path("seen"))
			s.must(err)
			if want := "hooks/reference-transaction.chained " + c.state + "\n" + many; string(seen) != want {
				t.Errorf("it saw %.200q, want %.200q", seen, want)
			}
			got := d.requests()
			if c.asked != (len(got) == 1) || c.asked && string(got[0].Body) != many {
				t.Errorf("%d requests", len(got))
			}
		})
	}
}

func TestAChainedHookTakesNothingOfTheDaemonsTime(t *testing.T) {
	s := newSite(t)
	d := s.serve("ok\n")
	within(t, 250*time.Millisecond, func(limit time.Duration) bool {
		s.write("hooks/reference-transaction.chained", fmt.Sprintf("#!/bin/sh\nexec sleep %f\n", 2*limit.Seconds()), 0o755)
		r, before := s.transaction("prepared", lines), len(d.requests())
		r.limit = limit.String()
		r.do()
		if strings.Contains(r.stderr, "nothing within ") { // as if it were the chained hook's time, which takes longer in any case
			s.forget()
			return false
		}
		r.is(0)
		if n := len(d.requests()) - before; n != 1 {
			t.Errorf("%d requests", n)
		}
		return true
	})
}

// While it waits the hook heeds no signals. What it runs is not to inherit that.
func TestAChainedHookCanBeInterrupted(t *testing.T) {
	s := newSite(t)
	s.serve("ok\n")
	const ignored = "sed -n 's/^SigIgn:[ \t]*//p' /proc/$$/status"
	s.write("hooks/update.chained", "#!/bin/sh\n"+ignored+" >&2\n", 0o755)
	mask := func(text string) uint64 {
		n, err := strconv.ParseUint(strings.TrimSpace(text), 16, 64)
		s.must(err)
		return n
	}
	ours, err := exec.Command("sh", "-c", ignored).Output()
	s.must(err)
	if more := mask(s.update("refs/heads/main", a, b).do().stderr) &^ mask(string(ours)); more != 0 {
		t.Errorf("it ignores the signals %#x", more)
	}
}

func TestAChainedUpdateHook(t *testing.T) {
	s := newSite(t)
	d := s.serve("ok\n")
	s.write("hooks/update.chained", "#!/bin/sh\necho \"$*\" >&2\ncase $1 in *evil) exit 3;; esac\n", 0o755)
	s.update("refs/heads/good", a, b).do().is(0, "refs/heads/good "+a+" "+b+"\n")
	s.update("refs/heads/evil", a, b).do().is(3, "refs/heads/evil "+a+" "+b+"\n")
	if got := d.requests(); len(got) != 1 {
		t.Errorf("the daemon was asked %+v", got)
	}
}

func TestAChainedPreReceiveHook(t *testing.T) {
	for status, asked := range map[int]int{0: 1, 3: 0} {
		s := newSite(t)
		d := s.serve("ok\n")
		s.write("hooks/pre-receive.chained", fmt.Sprintf("#!/bin/sh\n{ echo \"$0 $# $GIT_QUARANTINE_PATH\"; cat; } >&2\nexit %d\n", status), 0o755)
		r := s.preReceive(lines + a + " " + b + " refs/heads/x\n")
		r.env = append(r.env, "GIT_QUARANTINE_PATH=objects/in")
		r.do().is(status, "hooks/pre-receive.chained 0 objects/in\n"+r.stdin)
		if got := d.requests(); len(got) != asked {
			t.Errorf("the daemon was asked %+v", got)
		}
	}
}

func TestAChainedHookThatCannotRun(t *testing.T) {
	for _, c := range []struct {
		name   string
		mode   os.FileMode
		script string
		status int
		says   string
	}{
		{"not executable, as git ignores one", 0o644, "#!/bin/sh\nexit 7\n", 0, ""},
		{"no such interpreter", 0o755, "#!/no/such/program\n", 1, "can't be run"},
		{"does not read", 0o755, "#!/bin/sh\nexec <&-\n", 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSite(t)
			s.serve("ok\n")
			s.write("hooks/reference-transaction.chained", c.script, c.mode)
			r := s.transaction("prepared", strings.Repeat(lines, 2000)).do()
			if c.says == "" {
				r.is(c.status)
			} else {
				r.is(c.status, c.says, "nothing was changed")
			}
		})
	}
}
