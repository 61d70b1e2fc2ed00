package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/testprogram"
)

// These tests are not parallel: a script that was just written can't be run while
// a process that was forked meanwhile has it open.

func TestAnOwnHookRunsFirst(t *testing.T) {
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
			s.write("hooks/reference-transaction", c.script, 0o755)
			many := strings.Repeat(lines, 2000) // more than a pipe holds
			var says []string
			if c.says != "" {
				says = []string{c.says}
			}
			s.transaction(c.state, many).do().is(c.status, says...)
			seen, err := os.ReadFile(s.path("seen"))
			s.must(err)
			if want := "hooks/reference-transaction " + c.state + "\n" + many; string(seen) != want {
				t.Errorf("it saw %.200q, want %.200q", seen, want)
			}
			got := d.requests()
			if c.asked != (len(got) == 1) || c.asked && string(got[0].Body) != many {
				t.Errorf("%d requests", len(got))
			}
		})
	}
}

func TestAnOwnHookTakesNothingOfTheDaemonsTime(t *testing.T) {
	s := newSite(t)
	d := s.serve("ok\n")
	within(t, 250*time.Millisecond, func(limit time.Duration) bool {
		s.write("hooks/reference-transaction", fmt.Sprintf("#!/bin/sh\nexec sleep %f\n", 2*limit.Seconds()), 0o755)
		r, before := s.transaction("prepared", lines), len(d.requests())
		r.limit = limit.String()
		r.do()
		if strings.Contains(r.stderr, "no answer within ") { // as if it were the own hook's time, which takes longer in any case
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
func TestAnOwnHookCanBeInterrupted(t *testing.T) {
	s := newSite(t)
	s.serve("ok\n")
	const ignored = "sed -n 's/^SigIgn:[ \t]*//p' /proc/$$/status"
	s.write("hooks/update", "#!/bin/sh\n"+ignored+" >&2\n", 0o755)
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

func TestAnOwnUpdateHook(t *testing.T) {
	s := newSite(t)
	d := s.serve("ok\n")
	s.write("hooks/update", "#!/bin/sh\necho \"$*\" >&2\ncase $1 in *evil) exit 3;; esac\n", 0o755)
	s.update("refs/heads/good", a, b).do().is(0, "refs/heads/good "+a+" "+b+"\n")
	s.update("refs/heads/evil", a, b).do().is(3, "refs/heads/evil "+a+" "+b+"\n")
	if got := d.requests(); len(got) != 1 {
		t.Errorf("the daemon was asked %+v", got)
	}
}

func TestAnOwnPreReceiveHook(t *testing.T) {
	for status, asked := range map[int]int{0: 1, 3: 0} {
		s := newSite(t)
		d := s.serve("ok\n")
		s.write("hooks/pre-receive", fmt.Sprintf("#!/bin/sh\n{ echo \"$0 $# $GIT_QUARANTINE_PATH\"; cat; } >&2\nexit %d\n", status), 0o755)
		r := s.preReceive(lines + a + " " + b + " refs/heads/x\n")
		r.env = append(r.env, "GIT_QUARANTINE_PATH=objects/in")
		r.do().is(status, "hooks/pre-receive 0 objects/in\n"+r.stdin)
		if got := d.requests(); len(got) != asked {
			t.Errorf("the daemon was asked %+v", got)
		}
	}
}

func TestAnOwnHookThatCannotRun(t *testing.T) {
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
			s.write("hooks/reference-transaction", c.script, c.mode)
			r := s.transaction("prepared", strings.Repeat(lines, 2000)).do()
			if c.says == "" {
				r.is(c.status)
			} else {
				r.is(c.status, c.says, "nothing was changed")
			}
		})
	}
}

// What this program does not decide about, it hands over to the repository's own hook.
func TestOtherHooksAreHandedOver(t *testing.T) {
	s := newSite(t)
	d := s.serve("refused\n")
	for _, name := range []string{"proc-receive", "post-receive", "post-update"} {
		run := func() *run {
			r := s.transaction("", "lines\n")
			r.args = []string{s.hook(name), "x"}
			return r.do()
		}
		if name == "proc-receive" {
			run().is(1, "has no hook proc-receive")
		} else {
			run().is(0)
		}
		s.write("hooks/"+name, "#!/bin/sh\n{ echo \"$0 $* $PPID\"; cat; } >&2\nexit 5\n", 0o755)
		run().is(5, "hooks/"+name+" x "+strconv.Itoa(os.Getpid())+"\nlines\n")
		s.write("hooks/"+name, "echo no interpreter >&2\n", 0o755)
		run().is(0, "no interpreter\n")
	}
	if got := d.requests(); len(got) != 0 {
		t.Errorf("the daemon was asked %+v", got)
	}
}

// A work tree may hold whatever a pusher has committed.
func TestFilesOfAWorkTreeAreNoHooks(t *testing.T) {
	root := t.TempDir()
	s := newSiteAt(t, root+"/.git")
	s.serve("ok\n")
	for _, dir := range []string{"hooks", "objects", "refs"} {
		s.must(os.Mkdir(root+"/"+dir, 0o755))
	}
	s.must(os.WriteFile(root+"/HEAD", []byte("ref: refs/heads/main\n"), 0o644))
	s.write("../hooks/reference-transaction", "#!/bin/sh\necho of the work tree >&2\nexit 1\n", 0o755)
	s.write("hooks/reference-transaction", "#!/bin/sh\necho of the repository >&2\n", 0o755)
	r := s.transaction("prepared", lines)
	r.dir, r.env = root, nil
	r.do().is(0, "of the repository\n")
}

func TestOwnHooksAreWhereTheyWereBefore(t *testing.T) {
	elsewhere := t.TempDir()
	for target, file := range map[string]string{
		"../hooks":        "hooks/update",
		"../more/hooks":   "more/hooks/update",
		elsewhere:         elsewhere + "/update",
		"../../elsewhere": "../elsewhere/update",
	} {
		s := newSite(t)
		s.serve("ok\n")
		s.must(os.Symlink(target, s.path("refdb/own-hooks")))
		path := file
		if !strings.HasPrefix(file, "/") {
			path = s.path(file)
		}
		s.must(os.MkdirAll(path[:strings.LastIndexByte(path, '/')], 0o755))
		s.must(testprogram.Write(path, []byte("#!/bin/sh\necho \"$0\" >&2\n")))
		s.update("refs/heads/x", a, b).do().is(0, file+"\n")
	}
}

// An earlier version renamed the repository's hooks and took their places; it may be there until gits that began before have ended.
func TestThisProgramInAHooksPlaceIsNotRun(t *testing.T) {
	const own = "#!/bin/sh\necho \"own ${0##*/}\" >&2\n"
	relay := "#!/bin/sh\n# refdb-hook: a test\nexec false\n"
	for name, take := range map[string]func(*site){
		"the program":                     func(s *site) { s.must(os.Link(binary, s.path("hooks/update"))) },
		"a link to it":                    func(s *site) { s.must(os.Symlink(s.hook("update"), s.path("hooks/update"))) },
		"the script that starts it":       func(s *site) { s.write("hooks/update", relay, 0o755) },
		"an own link to the site's hooks": func(s *site) { s.must(os.Symlink(s.hooks, s.path("refdb/own-hooks"))) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.serve("ok\n")
			take(s)
			s.update("refs/heads/x", a, b).do().is(0)
			if name == "an own link to the site's hooks" {
				return
			}
			s.write("hooks/update.chained", own, 0o755)
			s.update("refs/heads/x", a, b).do().is(1, "hooks/update.chained", "site enable "+s.dir+"; nothing was changed")
			s.must(os.Mkdir(s.path("refdb/chained"), 0o755))
			s.must(os.Symlink("../../hooks/update.chained", s.path("refdb/chained/update")))
			s.update("refs/heads/x", a, b).do().is(0, "own update\n")
			s.must(os.Rename(s.path("hooks/update.chained"), s.path("hooks/update")))
			s.update("refs/heads/x", a, b).do().is(0, "own update\n")
		})
	}
}
