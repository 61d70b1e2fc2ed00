package site_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/presence"
	"github.com/globalrefdb/globalrefdb/site/wire"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

func TestStoppingFinishesWhatIsPrepared(t *testing.T) {
	t.Parallel()
	g := newGuard(t, local.SQLite(t), "eu-1")
	s := g.session()
	if err := s.prepare("create refs/heads/x " + g.commit[0]); err != nil {
		t.Fatal(err)
	}
	g.stop()
	sitetest.Eventually(t, "it is stopping", func() bool { return g.status().Stopping })
	s.must("commit")
	s.close()
	if err := <-g.ended; err != nil {
		t.Error(err)
	}
	g.ended <- nil
	g.has("refs/heads/x", g.commit[0], g.commit[0])
	if _, err := os.Lstat(filepath.Join(g.dir, "sock")); !os.IsNotExist(err) {
		t.Errorf("the socket is left behind: %v", err)
	}
	for l, err := range g.db.Locks(t.Context(), refdb.LockFilter{}) {
		t.Errorf("a lock is left behind: %+v, %v", l, err)
	}
}

// A push that begins while the daemon stops waits for the next one, where git holds no locks. What git has begun
// without a push, and may hold locks for, the daemon decides until it ends.
func TestAStopRefusesNobody(t *testing.T) {
	t.Parallel()
	g := newGuard(t, local.SQLite(t), "eu-1")
	s := g.session()
	if err := s.prepare("create refs/heads/x " + g.commit[0]); err != nil {
		t.Fatal(err)
	}
	g.stop()
	sitetest.Eventually(t, "it is stopping", func() bool { return g.status().Stopping })
	p := g.client().start("c0:refs/heads/pushed")
	sitetest.Eventually(t, "the push waits", func() bool { return p.said(wire.DaemonRestarts) })
	g.git("update-ref", "refs/heads/y", g.commit[0])
	s.must("commit")
	s.close()
	<-g.ended
	g.ended <- nil
	g.start()
	p.succeeds()
	g.has("refs/heads/pushed", g.commit[0], g.commit[0])
	g.has("refs/heads/y", g.commit[0], g.commit[0])
	if refused := g.status().Counters.Refused; refused != 0 {
		t.Errorf("%d were refused", refused)
	}
}

// A request that the daemon can't answer before it ends is not refused either: the next daemon answers it.
func TestADaemonThatStopsLeavesTheRequestsThatTakeTooLong(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, local.SQLite(t), "eu-1", "[site]\n\tstopTimeout = 20ms")
	asked := &g.listen().asked
	g.start()
	release, err := g.daemon.HaveAlone(t.Context(), g.repo)
	if err != nil {
		t.Fatal(err)
	}
	p := g.client().start("c0:refs/heads/pushed")
	sitetest.Eventually(t, "the push waits for the repository", func() bool { return asked.states.Load() > 0 })
	g.halt()
	release()
	g.start()
	p.succeeds()
	g.has("refs/heads/pushed", g.commit[0], g.commit[0])
}

// Only a daemon that was told to stop leaves hooks to the next one, for which they wait longer. One whose start fails may fail
// each time: its hooks are refused, or ask again within their limit.
func TestADaemonWhoseStartFailsLeavesNothingToTheNext(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, local.SQLite(t), "eu-1")
	c, err := config.Load(t.Context(), g.config)
	if err != nil {
		t.Fatal(err)
	}
	ends, end := context.WithCancel(t.Context())
	end()
	here, there := socketPair(t)
	defer there.Close()
	q := wire.Request{State: wire.StatePreReceive, Dir: g.repo, Body: []byte(strings.Repeat("0", 40) + " " + g.commit[0] + " refs/heads/x\n")}
	for stops, want := range map[bool]string{false: wire.DaemonStarting, true: wire.DaemonStopping} {
		d := site.New(c, g.db, site.Options{Logger: slog.New(slog.DiscardHandler)})
		if stops {
			d.BeginStop()
		}
		var request bytes.Buffer
		if err := q.Write(&request); err != nil {
			t.Fatal(err)
		}
		if got := d.Answer(ends, here, &request); got.OK || !slices.Equal(got.Lines, []string{want}) || got.Stopping() != stops {
			t.Errorf("it stops: %t, and answers %+v", stops, got)
		}
	}
}

// socketPair returns the two ends of a connection of this process to itself.
func socketPair(t *testing.T) (here, there *net.UnixConn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "")
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		ends[i] = c.(*net.UnixConn)
		t.Cleanup(func() { c.Close() })
	}
	return ends[0], ends[1]
}

// newConfig returns g's configuration after it has been edited.
func (g *guard) newConfig(edit func(old string) string) *config.Config {
	g.tb.Helper()
	old, err := os.ReadFile(g.config)
	if err != nil {
		g.tb.Fatal(err)
	}
	path := filepath.Join(g.dir, "new.config")
	if err := os.WriteFile(path, []byte(edit(string(old))), 0o600); err != nil {
		g.tb.Fatal(err)
	}
	c, err := config.Load(g.tb.Context(), path)
	if err != nil {
		g.tb.Fatal(err)
	}
	return c
}

func TestStoppingWaitsForAsLongAsTheConfigurationSaysNow(t *testing.T) {
	t.Parallel()
	g := newGuard(t, local.SQLite(t), "eu-1")
	s := g.session()
	if err := s.prepare("create refs/heads/x " + g.commit[0]); err != nil {
		t.Fatal(err)
	}
	if err := g.daemon.Reload(g.newConfig(func(old string) string { return old + "[site]\n\tstopTimeout = 20ms\n" })); err != nil {
		t.Fatal(err)
	}
	g.stop()
	sitetest.Eventually(t, "it ends without that push", func() bool { return len(g.ended) > 0 })
}

func TestReload(t *testing.T) {
	t.Parallel()
	g := newGuard(t, local.SQLite(t), "eu-1")
	s := g.session()
	if err := s.prepare("create refs/heads/x " + g.commit[0]); err != nil {
		t.Fatal(err)
	}
	if err := g.daemon.Reload(g.newConfig(func(old string) string { return old + "[guard]\n\tskipRef = refs/heads/wip/*" })); err != nil {
		t.Fatal(err)
	}
	g.git("update-ref", "refs/heads/wip/x", g.commit[1])
	if v := g.global("refs/heads/wip/x"); string(v) != g.commit[1] {
		t.Errorf("what the project's rules guard is %q globally", v)
	}
	s.must("commit")
	s.close()
	g.has("refs/heads/x", g.commit[0], g.commit[0])
	for key, edit := range map[string]func(old string) string{
		"name":         func(old string) string { return strings.Replace(old, "eu-1", "eu-2", 1) },
		"databaseFile": func(old string) string { return old + "[site]\n\tdatabaseFile = /etc/refdb/other\n" },
	} {
		err := g.daemon.Reload(g.newConfig(edit))
		if err == nil || !strings.Contains(err.Error(), "site."+key+" can't change while the daemon runs") {
			t.Errorf("another %s: %v", key, err)
		}
	}
}

func TestASiteHasOneDaemon(t *testing.T) {
	t.Parallel()
	shared := local.SQLite(t)
	g := newGuard(t, shared, "eu-1")
	same := *g
	same.stop = nil
	if err := same.tryStart(); err == nil || !strings.Contains(err.Error(), "a site daemon runs already") {
		t.Errorf("a second one with its state directory: %v", err)
	}
	other := idleGuard(t, shared, "eu-1")
	if err := other.tryStart(); err == nil || !strings.Contains(err.Error(), "give this site another name") {
		t.Errorf("a second one of its name: %v", err)
	}
	if got := g.status(); !got.Presence {
		t.Errorf("the first: %+v", got)
	}
	// Once the first has stopped in good order, an operator may have the other one take its place.
	g.halt()
	if err := other.tryStart(); err == nil || !strings.Contains(err.Error(), "refdbctl site take-over") {
		t.Errorf("a second one of its name, after the first: %v", err)
	}
	c, err := config.Load(t.Context(), other.config)
	if err != nil {
		t.Fatal(err)
	}
	db, err := refdb.New(shared.Open(t), refdb.Options{Site: "eu-1"})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := presence.TakeOver(t.Context(), c, db, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	other.start()
}

// A presence that was left behind is ended by a daemon with the same state directory, at once
// if it is proven that its process has ended, and when it is stale otherwise; and by no other, however old it is.
func TestAPresenceLeftBehind(t *testing.T) {
	t.Parallel()
	process, err := exec.Command("sh", "-c", `echo $(cat /proc/sys/kernel/random/boot_id):$$:$(cut -d' ' -f22 /proc/$$/stat):$(stat -Lc %i /proc/self/ns/pid)`).Output()
	if err != nil {
		t.Fatal(err)
	}
	gone := strings.TrimSpace(string(process))
	field := func(i int, to string) string {
		fields := strings.Split(gone, ":")
		fields[i] = to
		return strings.Join(fields, ":")
	}
	for name, c := range map[string]struct {
		process string // as the state records it
		waits   bool
	}{
		"by a process that has ended":                        {gone, false},
		"by one whose ID is another's by now":                {field(1, strconv.Itoa(os.Getppid())), false},
		"by one of another boot, or of another machine":      {field(0, "00000000-0000-4000-8000-000000000000"), true},
		"by one of another PID namespace, as of a container": {field(3, "1"), true},
		"by a version that did not record its process":       {"", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shared := local.SQLite(t)
			g := idleGuard(t, shared, "eu-1")
			dead, err := refdb.New(shared.Open(t), refdb.Options{Site: "eu-1", StaleAfter: leases})
			if err != nil {
				t.Fatal(err)
			}
			defer dead.Close()
			if _, err := dead.TryLock(t.Context(), "refdb/sites", "refs/sites/eu-1"); err != nil {
				t.Fatal(err)
			}
			if err := g.tryStart(); err == nil || !strings.Contains(err.Error(), "is served by "+dead.Owner()) {
				t.Errorf("a fresh one of another: %v", err)
			}
			dead.Close()
			shared.Age(t, "refdb/sites", "refs/sites/eu-1", 2*leases)
			if err := g.tryStart(); err == nil || !strings.Contains(err.Error(), "refdbctl site take-over") {
				t.Errorf("a stale one of another: %v", err)
			}
			shared.Age(t, "refdb/sites", "refs/sites/eu-1", -2*leases)
			if err := os.WriteFile(filepath.Join(g.dir, "state/owners"), []byte(dead.Owner()+" "+c.process+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if c.waits {
				aged := make(chan struct{})
				go func() {
					defer close(aged)
					sitetest.Eventually(t, "it waits", func() bool { return strings.Contains(g.log.String(), "waiting until the lock is stale") })
					shared.Age(t, "refdb/sites", "refs/sites/eu-1", 2*leases)
				}()
				defer func() { <-aged }()
			}
			g.start()
			if waited := strings.Contains(g.log.String(), "waiting until the lock is stale"); waited != c.waits {
				t.Errorf("it waited: %v", waited)
			}
		})
	}
}

func TestTheSocket(t *testing.T) {
	t.Parallel()
	shared := local.SQLite(t)
	g := idleGuard(t, shared, "eu-1")
	socket := filepath.Join(g.dir, "sock")
	if err := os.WriteFile(socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := g.tryStart(); err == nil || !strings.Contains(err.Error(), "something that is not a socket") {
		t.Errorf("a file in its place: %v", err)
	}
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.tryStart(); err == nil || !strings.Contains(err.Error(), "another process answers there") {
		t.Errorf("another's in its place: %v", err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	g.start()
	if info, err := os.Lstat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", info, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), sitetest.Patience)
	defer cancel()
	if _, err := client.Query(ctx, filepath.Join(g.dir, "nowhere")); err == nil {
		t.Error("a socket that is not there answers")
	}
}

func TestTheDaemonForgetsPushesThatAreOver(t *testing.T) {
	g := newGuard(t, local.SQLite(t), "eu-1")
	watched := func() (n int) {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if target, _ := os.Readlink("/proc/self/fd/" + e.Name()); strings.Contains(target, "pidfd") {
				n++
			}
		}
		return n
	}
	for range 10 {
		g.git("update-ref", "refs/heads/x", g.commit[0])
		g.git("update-ref", "-d", "refs/heads/x")
	}
	g.resolved()
	sitetest.Eventually(t, "no process is watched", func() bool { return watched() == 0 })
}
