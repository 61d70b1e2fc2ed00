package main_test

import (
	"debug/elf"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/site/wire"
)

func TestTheDaemonDecidesEachState(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		state, answer string
		asked         bool
		status        int
		says          []string
	}{
		{"prepared", "ok\n", true, 0, nil},
		{"prepared", "ok\na hint\n", true, 0, []string{"a hint\n"}},
		{"prepared", "refused\nrefs/heads/main: locked\nand more\n", true, 1, []string{"refs/heads/main: locked\nand more\n"}},
		{"prepared", "refused\n", true, 1, []string{"without giving a reason"}},
		{"committed", "ok\n", true, 0, nil},
		{"committed", "refused\nlate\n", true, 0, []string{"late"}},
		{"aborted", "ok\n", true, 0, nil},
		{"aborted", "refused\nlate\n", true, 0, []string{"late"}},
		{"preparing", "refused\n", false, 0, nil},
		{"of-a-later-git", "refused\n", false, 0, nil},
	} {
		t.Run(c.state+" "+strings.Fields(c.answer)[0], func(t *testing.T) {
			s := newSite(t)
			d := s.serve(c.answer)
			s.transaction(c.state, lines).do().is(c.status, c.says...)
			got := d.requests()
			if !c.asked {
				if len(got) != 0 {
					t.Errorf("the daemon was asked: %+v", got)
				}
				return
			}
			if len(got) != 1 || got[0].State != c.state || got[0].Dir != s.dir || string(got[0].Body) != lines {
				t.Fatalf("the daemon was asked %+v", got)
			}
			if l := got[0].Limit; l <= 5*time.Second || l > patience {
				t.Errorf("the hook says that it waits for %v more", l)
			}
		})
	}
}

func TestAnEmptyTransactionNeedsNoDaemon(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, state := range []string{"prepared", "committed", "aborted"} {
		s.transaction(state, "").do().is(0)
	}
}

// Daemons of earlier versions followed the database by a git with hooks, which they marked. The
// daemon of this version would take such a move for a push, which may bring an earlier value back.
func TestAGitOfAnEarlierVersionsFollowerIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.serve("ok\n")
	r := s.transaction("prepared", lines)
	r.env = append(r.env, "REFDB_REPLICA=1")
	r.do().is(1, wire.FollowsForEarlier)
	if got := d.requests(); len(got) != 0 {
		t.Errorf("the daemon was asked %+v", got)
	}
}

// Such a git may have been allowed its move by the earlier daemon. It may be late: the daemon compares
// the repository then.
func TestAMoveOfAnEarlierVersionsFollowerIsCompared(t *testing.T) {
	t.Parallel()
	for _, mark := range []string{"REFDB_REPLICA=1", "REFDB_REPLICA="} {
		s := newSite(t)
		d := s.serve("ok\n")
		r := s.transaction("committed", lines)
		r.env = append(r.env, mark)
		r.do().is(0)
		want := []string{wire.StateCommitted}
		if mark == "REFDB_REPLICA=1" {
			want = append(want, wire.StateFollow)
		}
		var got []string
		for _, q := range d.requests() {
			got = append(got, q.State)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: the daemon was asked %q, want %q", mark, got, want)
		}
	}
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.serve("refused\nrefs/heads/main: this site is behind\n")
	s.update("refs/heads/main", a, b).do().is(1, "refs/heads/main: this site is behind\n")
	got := d.requests()
	if len(got) != 1 || got[0].State != wire.StateUpdate || got[0].Dir != s.dir || string(got[0].Body) != a+" "+b+" refs/heads/main\n" {
		t.Errorf("the daemon was asked %+v", got)
	}
}

func TestPreReceive(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]struct {
		status int
		says   []string
	}{
		"ok\n":                            {0, nil},
		"refused\nthe database is away\n": {1, []string{"the database is away\n"}},
	} {
		s := newSite(t)
		d := s.serve(answer)
		s.preReceive(lines).do().is(want.status, want.says...)
		got := d.requests()
		if len(got) != 1 || got[0].State != wire.StatePreReceive || got[0].Dir != s.dir || string(got[0].Body) != lines {
			t.Errorf("the daemon was asked %+v", got)
		}
	}
}

// Git shows pre-receive whatever names a client has sent, and refuses invalid ones
// after it, one by one.
func TestPreReceiveLeavesInvalidNamesToGit(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.serve("refused\n")
	for name, stdin := range map[string]string{"a space": lines + a + " " + b + " refs/heads/x y\n", "rubbish": "hello\n", "nothing": ""} {
		t.Run(name, func(t *testing.T) { s.preReceive(stdin).do().is(0) })
	}
	if got := d.requests(); len(got) != 0 {
		t.Errorf("the daemon was asked %+v", got)
	}
}

func TestALargeTransactionArrivesWhole(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.serve("ok\n")
	many := strings.Repeat(lines, 20_000)
	s.transaction("prepared", many).do().is(0)
	if got := d.requests(); len(got) != 1 || string(got[0].Body) != many {
		t.Error("another body arrived")
	}
	line := a + " " + b + " refs/heads/" + strings.Repeat("x", 1000) + "\n"
	s.transaction("prepared", strings.Repeat(line, 64<<20/len(line)+1)).do().is(1, "64 MB", "nothing was changed")
}

func TestTheRepositoryIsFoundHoweverGitNamesIt(t *testing.T) {
	t.Parallel()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	tree := filepath.Join(root, "tree")
	s := newSiteAt(t, filepath.Join(tree, ".git"))
	d := s.serve("ok\n")
	for _, name := range []string{".git/worktrees/w", "sub"} {
		s.must(os.MkdirAll(filepath.Join(tree, name), 0o755))
	}
	s.write("worktrees/w/HEAD", a+"\n", 0o644)
	s.write("worktrees/w/commondir", "../..\n", 0o644)
	more := filepath.Join(root, "more")
	s.must(os.Mkdir(more, 0o755))
	s.must(os.WriteFile(filepath.Join(more, ".git"), []byte("gitdir: "+tree+"/.git/worktrees/w\n"), 0o644))
	relative := filepath.Join(root, "relative")
	s.must(os.Mkdir(relative, 0o755))
	s.must(os.WriteFile(filepath.Join(relative, ".git"), []byte("gitdir: ../tree/.git\n"), 0o644))
	link := filepath.Join(root, "link")
	s.must(os.Symlink(s.dir, link))

	for name, c := range map[string]struct {
		dir string
		env []string
	}{
		"a dot":                            {s.dir, []string{"GIT_DIR=."}},
		"relative":                         {tree, []string{"GIT_DIR=.git"}},
		"relative, upwards":                {tree + "/sub", []string{"GIT_DIR=../.git"}},
		"absolute":                         {root, []string{"GIT_DIR=" + s.dir}},
		"a link":                           {root, []string{"GIT_DIR=" + link}},
		"unset, in the Git directory":      {s.dir, nil},
		"unset, in the work tree":          {tree, nil},
		"unset, in another work tree":      {more, nil},
		"unset, a relative pointer":        {relative, nil},
		"another work tree":                {more, []string{"GIT_DIR=" + s.dir + "/worktrees/w"}},
		"a pointer":                        {root, []string{"GIT_DIR=more/.git"}},
		"common directory in the variable": {tree, []string{"GIT_DIR=.git/worktrees/w", "GIT_COMMON_DIR=.git"}},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(d.requests())
			r := s.transaction("prepared", lines)
			r.args[0], r.dir, r.env = s.hook("reference-transaction"), c.dir, c.env
			r.do().is(0)
			got := d.requests()[before:]
			if len(got) != 1 || got[0].Dir != s.dir {
				t.Errorf("the daemon was asked %+v, want %s", got, s.dir)
			}
		})
	}
	for name, env := range map[string][]string{"no repository": nil, "a repository that is gone": {"GIT_DIR=gone"}, "a directory that is none": {"GIT_DIR=sub"}} {
		t.Run(name, func(t *testing.T) {
			r := s.transaction("prepared", lines)
			r.args[0], r.dir, r.env = s.hook("reference-transaction"), root, env
			s.must(os.MkdirAll(filepath.Join(root, "sub"), 0o755))
			r.do().is(1, "Git", "nothing was changed")
			r.args[1] = "committed"
			r.do().is(0, "was not told")
		})
	}
}

func TestALongPathIsNoObstacle(t *testing.T) {
	t.Parallel()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := newSiteAt(t, filepath.Join(root, strings.Repeat(strings.Repeat("d", 200)+"/", 5), "r.git"))
	d := s.serve("ok\n")
	s.transaction("prepared", lines).do().is(0)
	if got := d.requests(); len(got) != 1 || got[0].Dir != s.dir {
		t.Errorf("the daemon was asked %+v", got)
	}
}

// Each of these fails closed, with the reason and what to do, and is no harm
// once git has decided.
func TestWithoutAnAnswerNothingChanges(t *testing.T) {
	t.Parallel()
	hang := func(s *site) {
		done := make(chan struct{})
		s.serveWith(func(_ int, conn net.Conn) { <-done })
		s.tb.Cleanup(func() { close(done) })
	}
	const (
		start = "systemctl start refdb-site"
		limit = 250 * time.Millisecond
		hangs = "no answer within 250ms"
	)
	for name, c := range map[string]struct {
		arrange func(s *site)
		says    []string
	}{
		"no daemon": {func(*site) {}, []string{"no such file", start}},
		"a daemon that is gone": {func(s *site) {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.address})
			s.must(err)
			l.SetUnlinkOnClose(false)
			l.Close()
		}, []string{"connection refused", start}},
		"no link":         {func(s *site) { s.must(os.Remove(s.path("refdb/socket"))) }, []string{"refdb/socket is missing", "site enable"}},
		"not enabled":     {func(s *site) { s.must(os.RemoveAll(s.path("refdb"))) }, []string{"refdb/socket is missing", "site enable"}},
		"a file":          {func(s *site) { s.must(os.WriteFile(s.address, nil, 0o644)) }, []string{"refdb/socket is not a socket", "site enable"}},
		"a directory":     {func(s *site) { s.must(os.Mkdir(s.address, 0o755)) }, []string{"refdb/socket is not a socket", "site enable"}},
		"it hangs":        {hang, []string{hangs, start}},
		"garbage":         {func(s *site) { s.serve("HTTP/1.1 400 Bad Request\r\n") }, []string{"HTTP/1.1 400", start}},
		"half an answer":  {func(s *site) { s.serve("ok") }, []string{"malformed", start}},
		"an empty answer": {func(s *site) { s.serve("") }, []string{"closed the connection without an answer", start}},
		"an answer that does not end": {func(s *site) {
			done := make(chan struct{})
			s.serveWith(func(_ int, conn net.Conn) { io.WriteString(conn, "ok\n"); <-done })
			s.tb.Cleanup(func() { close(done) })
		}, []string{hangs, start}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			c.arrange(s)
			do := func(r *run) *run {
				within(t, limit, func(limit time.Duration) bool {
					r.limit = limit.String()
					if r.do(); c.says[0] == hangs || !strings.Contains(r.stderr, "no answer within ") {
						return true
					}
					s.forget()
					return false
				})
				return r
			}
			r := do(s.transaction("prepared", lines))
			r.is(1, append(c.says, "nothing was changed\n")...)
			if n := strings.Count(r.stderr, "\n"); n != 1 {
				t.Errorf("%d lines: %q", n, r.stderr)
			}
			do(s.update("refs/heads/main", a, b)).is(1, append(c.says, "nothing was changed\n")...)
			do(s.preReceive(lines)).is(1, append(c.says, "nothing was changed\n")...)
			for _, state := range []string{"committed", "aborted"} {
				do(s.transaction(state, lines)).is(0, append(c.says[:len(c.says)-1:len(c.says)-1], "was not told")...)
			}
		})
	}
}

func TestADaemonThatRestartsIsNotNoticed(t *testing.T) {
	t.Parallel()
	for name, arrange := range map[string]func(s *site) (wait func()){
		"it comes up": func(s *site) func() {
			up := make(chan struct{})
			// So that the hook, unless the machine is slow, has asked before.
			time.AfterFunc(300*time.Millisecond, func() { s.serve("ok\n"); close(up) })
			return func() { <-up }
		},
		"it goes away while it is asked": func(s *site) func() {
			s.serveWith(func(n int, conn net.Conn) {
				if n > 0 {
					io.WriteString(conn, "ok\n")
				}
			})
			return func() {}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			wait := arrange(s)
			s.transaction("prepared", lines).do().is(0)
			wait()
		})
	}
}

func TestTheUsualLimitIsFiveSeconds(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.serve("ok\n")
	r := s.transaction("prepared", lines)
	r.limit = ""
	for r.do(); strings.Contains(r.stderr, "no answer within 5s"); r.do() { // on a machine that is slow
		s.forget()
	}
	r.is(0)
	if l := d.requests()[0].Limit; l <= 0 || l > 5*time.Second {
		t.Errorf("limit %v", l)
	}
	// Hooks that gave up may have requests on the way to the other daemon.
	s = newSite(t)
	d = s.serve("ok\n")
	r = s.transaction("prepared", lines)
	for _, limit := range []string{"soon", "-1s", "0", "5"} {
		r.limit = limit
		r.do().is(1, "REFDB_HOOK_TIMEOUT="+limit)
	}
	if n := len(d.requests()); n != 0 {
		t.Errorf("%d requests", n)
	}
}

func TestCalledByHandItSaysWhatItIs(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.serve("ok\n")
	for name, args := range map[string][]string{
		"no argument":       {s.hook("reference-transaction")},
		"two arguments":     {s.hook("reference-transaction"), "prepared", "x"},
		"update of nothing": {s.hook("update")},
		"an argument":       {s.hook("pre-receive"), "x"},
		"half an update":    {s.hook("update"), "refs/heads/x"},
		"another name":      {binary},
		"--help":            {s.hook("update"), "--help"},
	} {
		t.Run(name, func(t *testing.T) {
			r := s.transaction("", lines)
			r.args = args
			r.do().is(1, "git runs it", "site enable")
		})
	}
	for name, stdin := range map[string]string{"rubbish": "hello\n", "a line cut off": lines + a, "a blank line": "\n", "bytes": "\x00\xff"} {
		t.Run(name, func(t *testing.T) {
			s.transaction("prepared", stdin).do().is(1, "is not OLD NEW REF", "git runs it", "nothing was changed")
			s.transaction("committed", stdin).do().is(0, "is not OLD NEW REF")
		})
	}
	s.update("refs/heads/x", "rubbish", b).do().is(1, "is not OLD NEW REF")
	if got := d.requests(); len(got) != 0 {
		t.Errorf("the daemon was asked %+v", got)
	}
}

func TestUnderAnotherNameTheArgumentsTell(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.serve("ok\n")
	r := s.transaction("prepared", lines)
	r.args[0] = binary
	r.do().is(0)
	r = s.update("refs/heads/main", a, b)
	r.args[0] = binary
	r.do().is(0)
	if got := d.requests(); len(got) != 2 || got[0].State != "prepared" || got[1].State != "update" {
		t.Errorf("the daemon was asked %+v", got)
	}
}

func TestASignalToTheGroupDoesNotChangeTheVerdict(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		state, answer string
		status        int
	}{{"prepared", "ok\n", 0}, {"prepared", "refused\n", 1}, {"committed", "ok\n", 0}} {
		s := newSite(t)
		asked, signaled := make(chan struct{}), make(chan struct{})
		s.serveWith(func(_ int, conn net.Conn) {
			close(asked)
			<-signaled
			io.WriteString(conn, c.answer)
		})
		cmd := s.transaction(c.state, lines).command()
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		s.must(cmd.Start())
		<-asked
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE} {
			s.must(syscall.Kill(-cmd.Process.Pid, sig))
		}
		close(signaled)
		cmd.Wait()
		if got := cmd.ProcessState.String(); cmd.ProcessState.ExitCode() != c.status {
			t.Errorf("%s, %q: %s", c.state, c.answer, got)
		}
	}
}

func TestNobodyReadsStandardError(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		state, answer string
		status        int
	}{{"prepared", "ok\nhint\n", 0}, {"prepared", "refused\nwhy\n", 1}, {"committed", "refused\nlate\n", 0}} {
		s := newSite(t)
		s.serve(c.answer)
		// A pipe whose reading end is closed.
		read, write, err := os.Pipe()
		s.must(err)
		read.Close()
		defer write.Close()
		cmd := s.transaction(c.state, lines).command()
		cmd.Stderr = write
		cmd.Run()
		if cmd.ProcessState.ExitCode() != c.status {
			t.Errorf("a broken pipe: %s, %q: %s", c.state, c.answer, cmd.ProcessState)
		}
		// No standard error at all: the socket must not take its place.
		r := s.transaction(c.state, lines)
		r.args = append([]string{"sh", "-c", `exec "$@" 2>&-`, "sh"}, r.args...)
		r.do()
		if r.status != c.status {
			t.Errorf("closed: %s, %q: %d", c.state, c.answer, r.status)
		}
	}
}

func TestTheBinaryIsSmallAndStatic(t *testing.T) {
	t.Parallel()
	info, err := os.Stat(binary)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > 4<<20 {
		t.Errorf("%d bytes", info.Size())
	}
	t.Logf("%d bytes", info.Size())
	program, err := elf.Open(binary)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	for _, p := range program.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("it needs a dynamic linker")
		}
	}
}

// Whatever is linked in costs each push several times.
func TestItDependsOnNextToNothing(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for path := range strings.Lines(string(out)) {
		path = strings.TrimSpace(path)
		ours := strings.HasPrefix(path, "github.com/globalrefdb/globalrefdb/")
		switch {
		case ours && !strings.HasSuffix(path, "/cmd/refdb-hook") && !strings.HasSuffix(path, "/site/wire"):
			t.Errorf("it depends on %s", path)
		case path == "runtime/cgo", path == "net", path == "fmt", strings.Contains(path, ".") && !ours:
			t.Errorf("it depends on %s", path)
		}
	}
}

// BenchmarkStart is the cost of a hook that asks nothing.
func BenchmarkStart(b *testing.B) {
	s := newSite(b)
	for b.Loop() {
		cmd := exec.Command(s.hook("reference-transaction"), "committed")
		if err := cmd.Run(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAsk is the same with an exchange.
func BenchmarkAsk(b *testing.B) {
	s := newSite(b)
	s.serve("ok\n")
	for b.Loop() {
		if r := s.transaction("committed", lines).do(); r.status != 0 {
			b.Fatal(r.stderr)
		}
	}
}
