package site_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/sessions"
	"github.com/globalrefdb/globalrefdb/site/wire"
	"github.com/globalrefdb/globalrefdb/site/wire/wiretest"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

func TestASessionThatIsRejected(t *testing.T) {
	t.Parallel()
	g := sessionTest(t)
	for name, c := range map[string]struct {
		change func(*wire.Begin)
		reason string
	}{
		"another root":       {func(b *wire.Begin) { b.Root = "/srv" }, wire.RejectRoot},
		"a link to the root": {func(b *wire.Begin) { b.Root += "/" }, wire.RejectRoot},
	} {
		m, _ := g.jgit().begin(c.change).(wire.Rejected)
		if m.Reason != c.reason || len(m.Lines) != 1 {
			t.Errorf("%s: %+v, want %s", name, m, c.reason)
		}
	}
	j := g.jgit().session()
	child := g.jgitChild()
	child.id = j.id
	if m, _ := child.begin().(wire.Rejected); m.Reason != wire.RejectGuard {
		t.Errorf("another process with the ID: %+v", m)
	}
	for text, want := range map[string]string{
		"refdb-session 2\nx\n\n": "rejected version", "refdb-session 1\nguard x\n\n": "rejected malformed", "refdb-session 1\n\n": "rejected malformed",
	} {
		conn, err := net.Dial("unix", filepath.Join(g.dir, "sock"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		io.WriteString(conn, text)
		conn.SetReadDeadline(time.Now().Add(sitetest.Patience))
		if said, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(said), want) {
			t.Errorf("%q: the daemon said %q, %v", text, said, err)
		}
	}
}

// Another site that lives must have another instance ID, and the same server ID.
func TestServersOfSitesThatDoNotGoTogether(t *testing.T) {
	t.Parallel()
	shared := sessionDatabase(t)
	g, other := newGuard(t, shared, "eu-1"), newGuard(t, shared, "us-1")
	as := func(instance, server string) func(*wire.Begin) {
		return func(b *wire.Begin) { b.Instance, b.Server = instance, server }
	}
	is := func(what string, m wire.Message, want string) {
		t.Helper()
		got, _ := m.(wire.Rejected)
		if got.Reason != want {
			t.Errorf("%s: %+v, want %q", what, m, want)
		}
	}
	first := g.jgitChild()
	is("the first", first.begin(as("one", "gerrit")), "")
	is("the same instance", other.jgit().begin(as("one", "gerrit")), wire.RejectInstance)
	is("another server", other.jgit().begin(as("two", "copy")), wire.RejectServer)
	is("one that was rejected is not known", g.jgit().begin(as("two", "gerrit")), "")
	is("no server", other.jgit().begin(), "")
	is("a copy", other.jgit().begin(as("three", "gerrit")), "")
	first.kill()
	is("the same site again", g.jgit().begin(as("one", "gerrit")), "")
	g.halt()
	is("of a site that does not live", other.jgit().begin(as("one", "new")), "")
}

// Rules 8 and 10: a connection that breaks within a message, or a message that is none, ends the session and nothing else.
func TestASessionThatBreaksWithinAMessage(t *testing.T) {
	t.Parallel()
	g := sessionTest(t)
	a, b := g.commit[0], g.commit[1]
	g.set(x, a)
	j := g.jgit().session()
	tx := j.granted(line(x, a, b))
	j.lists(tx, line(x, a, b))
	for _, text := range []string{
		"rep", "report " + tx, "report " + tx + "\n", "announce n1 1000 " + g.repo + "\n" + zero + " " + a + " refs/heads/y\n",
		"announce n2 1000 relative\n\n", "hello\n\n", "\n", "ok " + tx + "\n\n", "announce " + tx + " 1000 " + g.repo + "\n" + zero + " " + a + " refs/heads/y\n\n",
	} {
		io.WriteString(j.conn, text)
		j.conn.(*net.UnixConn).CloseWrite()
		for {
			if _, err := wiretest.ReadFromDaemon(j.r); err != nil {
				break
			}
		}
		j.session()
		if agents := g.agents(); len(agents) != 1 || !strings.HasSuffix(agents[0], ":"+tx) {
			t.Fatalf("after %q intents of %v stand", text, agents)
		}
	}
	// Within the first message: nothing is heard of it.
	for _, text := range []string{"refdb-session 1\n", "refdb-session 1\nguard " + j.id + "\nnumber 99\nname x\nroot " + filepath.Join(g.dir, "git") + "\nready\n"} {
		j.dial()
		io.WriteString(j.conn, text)
		j.conn.(*net.UnixConn).CloseWrite()
		io.ReadAll(j.conn)
	}
	j.session()
	j.move(line(x, a, b))
	j.report(tx)
	g.has(x, b, b)
}

// A guard that reads nothing holds up nobody, and its session ends.
func TestAGuardThatReadsNothing(t *testing.T) {
	t.Parallel()
	g := sessionTest(t)
	slow, other := g.jgitChild(), g.jgit().session()
	g.daemon.SetSessionLimits(sessions.Limits{Write: 100 * time.Millisecond}) // of the session that begins now
	slow.session()
	pings := strings.Repeat("ping\n\n", 200_000)
	go io.WriteString(slow.conn, pings) // until it is killed
	sitetest.Eventually(t, "the session ends", func() bool {
		other.report(other.granted(line(x, "", g.commit[0])))
		return !openSession(g.status().Sessions, slow.child.Process.Pid)
	})
	other.report(other.granted(line(x, "", g.commit[0])))
}

func openSession(all []client.Session, pid int) bool {
	for _, s := range all {
		if s.PID == pid {
			return s.State == client.SessionOpen
		}
	}
	return false
}

func TestMoreTransactionsThanAGuardMayHave(t *testing.T) {
	t.Parallel()
	g := sessionTest(t)
	j := g.jgit().session()
	var last any
	for i := range 2001 {
		tx := j.announce(line(fmt.Sprintf("refs/cache-automerge/%d", i), "", g.commit[0]))
		last = j.answer(tx)
	}
	if last != (refusedAs{"final", "too_many"}) {
		t.Errorf("one too many: %+v", last)
	}
	j.report("t1")
	j.granted(line("refs/cache-automerge/x", "", g.commit[0]))
}

// A stop waits for reports, takes them, and lets nothing new through.
func TestAStopWaitsForTransactionsOfSessions(t *testing.T) {
	t.Parallel()
	g := sessionTest(t)
	a, b := g.commit[0], g.commit[1]
	g.set(x, a)
	j := g.jgit().session()
	tx := j.granted(line(x, a, b))
	g.stop()
	sitetest.Eventually(t, "it stops", func() bool { return strings.Contains(g.log.String(), "msg=stopping") })
	if m := j.answer(j.announce(line("refs/heads/y", "", a))); m != (refusedAs{"final", "stopping"}) {
		t.Errorf("announced while it stops: %+v", m)
	}
	j.move(line(x, a, b))
	if got := j.report(tx); got[x] != b {
		t.Errorf("settled as %v", got)
	}
	if err := <-g.ended; err != nil {
		t.Error(err)
	}
	g.ended <- nil
	if strings.Contains(g.log.String(), "stopped with pushes in progress") {
		t.Error("it did not wait")
	}
	if _, err := wiretest.ReadFromDaemon(j.r); err == nil {
		t.Error("the session goes on")
	}
	g.has(x, b, b)
}

// What comes before the answer may take long. It is given only by a daemon that still serves.
func TestAnOKIsOfADaemonThatStillServes(t *testing.T) {
	t.Parallel()
	g := sessionTest(t)
	a, b := g.commit[0], g.commit[1]
	g.set(x, a)
	one, two := g.jgit().session(), g.jgitChild().session()
	tx := one.granted(line(x, a, b))
	one.move(line(x, a, b))
	waits := two.announce(line(x, b, a))
	sitetest.Eventually(t, "it waits", func() bool { return g.daemon.WaitingForClaims() == 1 })
	g.stop()
	sitetest.Eventually(t, "the daemon stops", func() bool { return strings.Contains(g.log.String(), "msg=stopping") })
	one.report(tx)
	if m := two.answer(waits); m != (refusedAs{"final", "stopping"}) {
		t.Errorf("once its turn has come: %+v", m)
	}
}

// A stop does not wait for a guard without a session, and does not say that this site has nothing pending.
func TestAStopWithATransactionOfAGuardWithoutASession(t *testing.T) {
	t.Parallel()
	g := sessionTest(t)
	j := g.jgit().session()
	j.granted(line(x, "", g.commit[0]))
	j.conn.Close()
	sitetest.Eventually(t, "the session has broken", func() bool { return g.status().Sessions[0].State == client.SessionBroken })
	if err := g.halt(); err != nil {
		t.Error(err)
	}
	sitetest.Contains(t, g.log.String(), "stopped with pushes in progress")
}

// A guard is noted durably before it is let do anything, and no longer than it has something open.
func TestGuardsAreNoted(t *testing.T) {
	t.Parallel()
	g := sessionTest(t)
	file := filepath.Join(g.dir, "state", "guards")
	noted := func(j *jgit) bool {
		b, _ := os.ReadFile(file)
		return strings.Contains(string(b), j.id)
	}
	j := g.jgit().session()
	if noted(j) {
		t.Error("noted with nothing to do")
	}
	j.granted(line("refs/cache-automerge/aa/b", "", g.commit[0]))
	if !noted(j) {
		t.Error("not noted with an OK")
	}
	j.conn.Close()
	sitetest.Eventually(t, "the session has broken", func() bool { return g.status().Sessions[0].State == client.SessionBroken })
	if !noted(j) {
		t.Error("not noted without a session")
	}
	j.session() // lists nothing
	sitetest.Eventually(t, "nothing is open", func() bool { return g.status().Sessions[0].Open == 0 })
	j.conn.Close()
	sitetest.Eventually(t, "it is noted no more", func() bool { return !noted(j) })
	// One that can't be noted gets nothing.
	if err := os.Mkdir(file+".new", 0o700); err != nil {
		t.Fatal(err)
	}
	j.session()
	for range 2 {
		if m, is := j.answer(j.announce(line("refs/cache-automerge/aa/c", "", g.commit[0]))).(refusedAs); !is || m.kind != wire.Final {
			t.Errorf("let through without a note: %+v", m)
		}
	}
}

// The modes of projects hold for sessions.
func TestSessionsGoByTheProjectsMode(t *testing.T) {
	t.Parallel()
	g := sessionTest(t, "\tlockWait = 200ms")
	a, b, c := g.commit[0], g.commit[1], g.commit[2]
	j := g.jgit().session()
	g.set(x, a)
	if _, err := g.db.Put(t.Context(), "team/app", x, refdb.Value(b)); err != nil {
		t.Fatal(err)
	}
	if m := j.answer(j.announce(line(x, a, c))); m != (refusedAs{"retry", "behind"}) {
		t.Errorf("mode enforce: %+v", m)
	}
	g.mode(config.Log)
	tx := ""
	sitetest.Eventually(t, "mode log is heeded", func() bool {
		tx = j.announce(line(x, a, c))
		return j.answer(tx) == (wire.Granted{TX: tx})
	})
	j.move(line(x, a, c))
	j.report(tx)
	sitetest.Eventually(t, "the database follows", func() bool { return g.global(x) == c })
	for change, err := range g.db.History(t.Context(), "team/app", x) {
		if err != nil || change.By != "alice" {
			t.Errorf("the history says %+v, %v", change, err)
		}
		break
	}
	g.mode(config.Comparing)
	sitetest.Eventually(t, "mode comparing is heeded", func() bool {
		return j.answer(j.announce(line(x, c, a))) == (refusedAs{"final", "other"})
	})
}

// mode gives the project another mode.
func (g *guard) mode(mode string) {
	g.tb.Helper()
	p, ok, err := g.db.Projects().Get(g.tb.Context(), "team/app")
	if err != nil || !ok {
		g.tb.Fatal(ok, err)
	}
	p.Mode = mode
	if _, err := g.db.Projects().Put(g.tb.Context(), p); err != nil {
		g.tb.Fatal(err)
	}
}

func TestTheHistorySaysWhoAskedAGuard(t *testing.T) {
	t.Parallel()
	g := sessionTest(t)
	j := g.jgit().session()
	tx := j.granted(line(x, "", g.commit[0]))
	j.move(line(x, "", g.commit[0]))
	j.report(tx)
	for change, err := range g.db.History(t.Context(), "team/app", x) {
		if err != nil || change.By != "alice" || !strings.HasPrefix(change.Owner, "eu-1/") {
			t.Errorf("the history says %+v, %v", change, err)
		}
	}
}

// A repository that a guard has made is put under guard at its first announcement; one with refs is not.
func TestARepositoryThatAGuardHasMade(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, sessionDatabase(t), "eu-1")
	g.options = func(o *site.Options) { o.Hook = sitetest.Hook() }
	g.start()
	made := filepath.Join(g.dir, "git", "made.git")
	sitetest.Run(t, "", "git", "init", "--quiet", "--bare", made)
	a := strings.TrimSpace(sitetest.Run(t, "", "git", "--git-dir="+made, "commit-tree", "-m", "x", sitetest.Run(t, "", "git", "--git-dir="+made, "hash-object", "-t", "tree", "-w", "/dev/null")))
	j := g.jgit().session()
	team := g.repo
	g.repo = made
	tx := j.granted(line("refs/meta/config", "", a))
	j.move(line("refs/meta/config", "", a))
	j.report(tx)
	if v, err := g.db.Get(t.Context(), "made", "refs/meta/config"); err != nil || string(v) != a {
		t.Errorf("the database has %s, %v", v, err)
	}
	if out, err := exec.Command("git", "--git-dir="+made, "update-ref", "refs/heads/x", a).CombinedOutput(); err != nil {
		t.Errorf("a push over git: %v: %s", err, out)
	}
	if v, err := g.db.Get(t.Context(), "made", "refs/heads/x"); err != nil || string(v) != a {
		t.Errorf("after a push over git the database has %s, %v: there are no hooks", v, err)
	}
	old := filepath.Join(g.dir, "git", "old.git")
	sitetest.Run(t, "", "git", "clone", "--quiet", "--mirror", team, old)
	sitetest.Run(t, "", "git", "--git-dir="+old, "fetch", "--quiet", made, "refs/heads/x:refs/heads/x")
	g.repo = old
	if m := j.answer(j.announce(line("refs/heads/y", "", a))); m != (refusedAs{"final", "not_configured"}) {
		t.Errorf("one with refs that is not under guard: %+v", m)
	}
	g.repo = team
}

// Pushes over git and two guards race for the same refs. What each was told holds, and all comes to rest.
func TestSessionsRaceWithPushesOverGit(t *testing.T) {
	t.Parallel()
	rounds := 40
	if testing.Short() {
		rounds = 15
	}
	for _, db := range []func(testing.TB) *local.Database{local.SQLite, local.Postgres} {
		g := newGuard(t, db(t), "eu-1", "\tlockWait = 300ms")
		refs := []string{x, "refs/heads/y", "refs/heads/z"}
		for _, ref := range refs {
			g.set(ref, g.commit[0])
		}
		var done sync.WaitGroup
		granted := make([]int, 2)
		for n, j := range []*jgit{g.jgit().session(), g.jgitChild().session()} {
			done.Go(func() {
				for i := 0; i < rounds || granted[n] == 0; i++ {
					var moves []wire.Line
					for _, ref := range refs[i%2 : 2+i%2] {
						moves = append(moves, line(ref, g.local(ref), g.commit[(i+n)%8]))
					}
					tx := j.announce(moves...)
					if j.answer(tx) != (wire.Granted{TX: tx}) {
						continue
					}
					granted[n]++
					want := map[string]string{}
					if tryMove(g, moves) == nil {
						for _, m := range moves {
							want[m.Ref] = m.New
						}
					}
					for ref, value := range j.report(tx) {
						if w, moved := want[ref]; moved && w != value {
							t.Errorf("%s was moved to %s, and is settled as %s", ref, w, value)
						}
					}
				}
			})
		}
		done.Go(func() {
			for i := range rounds {
				exec.Command("git", "--git-dir="+g.repo, "update-ref", refs[i%3], g.commit[(i+3)%8]).Run()
			}
		})
		done.Wait()
		g.resolved()
		for _, ref := range refs {
			if l, v := g.local(ref), g.global(ref); l != v {
				t.Errorf("%s is %s here and %s in the database", ref, l, v)
			}
		}
		if len(g.status().Stuck) > 0 || granted[0] == 0 || granted[1] == 0 {
			t.Errorf("%v granted, %+v", granted, g.status().Stuck)
		}
	}
}

// tryMove moves refs if nobody has their lock files.
func tryMove(g *guard, lines []wire.Line) error {
	var in strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&in, "update %s %s %s\n", l.Ref, l.New, l.Old)
	}
	cmd := exec.Command("git", "--git-dir="+g.repo, "-c", "core.hooksPath=/dev/null", "update-ref", "--stdin")
	cmd.Stdin = strings.NewReader(in.String())
	return cmd.Run()
}
