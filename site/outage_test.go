package site_test

import (
	"bufio"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/wire"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// unplug puts a switch between the daemon and its database.
func (g *guard) unplug() *atomic.Bool {
	down := &atomic.Bool{}
	g.driver = func(d refdb.Driver) refdb.Driver { return &failing{driver: d, down: down.Load} }
	return down
}

// listen puts a driver that may turn deaf between the daemon and its database.
func (g *guard) listen() *failing {
	f := &failing{down: func() bool { return false }}
	g.driver = func(d refdb.Driver) refdb.Driver { f.driver = d; return f }
	return f
}

// While it is not known whether a move was announced nobody moves that ref; then
// the announcement is taken back.
func TestALostReplyToAnAnnouncement(t *testing.T) {
	t.Parallel()
	for _, slow := range []bool{false, true} {
		t.Run(fmt.Sprint("slow ", slow), func(t *testing.T) { testLostAnnouncement(t, slow) })
	}
}

func testLostAnnouncement(t *testing.T, slow bool) {
	t.Parallel()
	shared := local.SQLite(t)
	g, other := idleGuard(t, shared, "eu-1"), newGuard(t, shared, "eu-2")
	driver := g.listen()
	driver.slow = slow
	g.start()
	a, b := g.commit[0], g.commit[1]
	for _, site := range []*guard{g, other} {
		site.set("refs/heads/x", a)
	}
	driver.deaf.Store(true)
	driver.stubborn.Store(true)
	s := g.session()
	if err := s.prepare("update refs/heads/x " + b + " " + a); err == nil || !strings.Contains(err.Error(), "the global ref database does not answer") {
		t.Fatalf("the push: %v", err)
	}
	if n := g.intents(); slow == (n == 1) {
		t.Fatalf("%d intents stand", n)
	}
	driver.deaf.Store(false)
	again := g.session()
	if err := again.prepare("update refs/heads/x " + b + " " + a); err == nil {
		t.Error("the ref can be moved")
	}
	driver.stubborn.Store(false)
	sitetest.Eventually(t, "the announcement is taken back", func() bool {
		return g.intents() == 0 && (!slow || g.decided() == 1)
	})
	g.has("refs/heads/x", a, a)
	if slow {
		if _, err := driver.driver.Prepare(t.Context(), *driver.late.Load()); err == nil || g.intents() != 0 {
			t.Errorf("it came late, and was let in: %v", err)
		}
	}
	other.git("update-ref", "refs/heads/x", b)
	other.has("refs/heads/x", b, b)
	// The record that keeps a late request out stays, and is nothing for an operator.
	sitetest.Eventually(t, "a round without a fault", func() bool { return g.status().OK() })
	if s := g.status(); g.decided() == 0 || s.Counters.Heeded != 0 {
		t.Errorf("%+v", s)
	}
}

// decided counts the site's intents that are not pending and not forgotten.
func (g *guard) decided() (n int) {
	g.tb.Helper()
	for _, err := range g.db.Intents().All(g.tb.Context(), driver.IntentFilter{Owner: g.name, Decided: true}) {
		if err != nil {
			g.tb.Fatal(err)
		}
		n++
	}
	return n
}

func TestALostReplyToAnEnd(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, local.SQLite(t), "eu-1")
	driver := g.listen()
	g.start()
	a := g.commit[0]
	s := g.session()
	if err := s.prepare("create refs/heads/x " + a); err != nil {
		t.Fatal(err)
	}
	driver.deaf.Store(true)
	s.must("abort")
	g.has("refs/heads/x", "", "")
	if n := len(g.status().Pushes); n != 0 {
		t.Errorf("%d pushes are under way", n)
	}
	driver.deaf.Store(false)
	s.must("start", "create refs/heads/x "+a, "commit")
	g.has("refs/heads/x", a, a)
	s.close()
}

func TestADatabaseThatIsDown(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, local.SQLite(t), "eu-1")
	down := g.unplug()
	g.start()
	a, b := g.commit[0], g.commit[1]
	sitetest.Eventually(t, "the daemon serves", func() bool { return g.status().Presence })
	g.git("update-ref", "refs/heads/x", a)

	committed, died := g.session(), g.session()
	if err := committed.prepare("update refs/heads/x " + b + " " + a); err != nil {
		t.Fatal(err)
	}
	if err := died.prepare("create refs/heads/y " + a); err != nil {
		t.Fatal(err)
	}
	down.Store(true)
	if said := g.fails("update-ref", "refs/heads/z", a); !strings.Contains(said, "does not answer: nothing was changed") || strings.Contains(said, "unplugged") {
		t.Errorf("git said %q", said)
	}
	// What is through the door is not undone, and is recorded once that can be.
	committed.must("commit")
	committed.close()
	died.kill()
	g.unlock()
	if got := g.local("refs/heads/x"); got != b {
		t.Errorf("refs/heads/x is %q here, want %q", got, b)
	}
	var seen client.Status
	sitetest.Eventually(t, "the outage is seen", func() bool { seen = g.status(); return !seen.Database })
	if seen.OK() || !strings.Contains(seen.DatabaseError, "unplugged") {
		t.Errorf("status %+v", seen)
	}
	down.Store(false)
	g.resolved()
	g.has("refs/heads/x", b, b)
	g.has("refs/heads/y", "", "")
	sitetest.Eventually(t, "the daemon serves again", func() bool { return g.status().OK() })
	g.git("update-ref", "refs/heads/z", a)
	g.has("refs/heads/z", a, a)
}

// A daemon that nobody pushes to sees an outage, too, and its end.
func TestAnIdleDaemonSeesThatItsDatabaseIsDown(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, local.SQLite(t), "eu-1")
	down := g.unplug()
	g.start()
	sitetest.Eventually(t, "the daemon serves", func() bool { return g.status().OK() })
	down.Store(true)
	g.reload() // it looks at the database at once
	var seen client.Status
	sitetest.Eventually(t, "the outage is seen", func() bool { seen = g.status(); return !seen.Database })
	if seen.OK() || !strings.Contains(seen.DatabaseError, "unplugged") {
		t.Errorf("status %+v", seen)
	}
	down.Store(false)
	sitetest.Eventually(t, "the daemon serves again", func() bool { return g.status().OK() })
}

// shortLease is that of a daemon that is to lose its lock on the site's name. On a busy machine it may do so at any time.
const shortLease = time.Second

// After a while the daemon can't know that it is still the site's.
func TestADatabaseThatIsDownForLongerThanALease(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, local.SQLite(t), "eu-1")
	down := g.unplug()
	g.stale = shortLease
	g.start()
	sitetest.Eventually(t, "it knows what earlier daemons left", func() bool { return g.status().Presence })
	down.Store(true)
	sitetest.Eventually(t, "the lease ends", func() bool { return !g.status().Presence })
	if s := g.status(); s.OK() {
		t.Errorf("status %+v", s)
	}
	sitetest.Eventually(t, "it can't be had again", func() bool { return strings.Contains(g.status().PresenceError, "unplugged") })
	// Where the database is, is none of the pusher's business.
	if said := g.fails("update-ref", "refs/heads/z", g.commit[0]); !strings.Contains(said, "does not answer: nothing was changed") || strings.Contains(said, "unplugged") {
		t.Errorf("git said %q", said)
	}
	down.Store(false)
	sitetest.Eventually(t, "pushes go on", func() bool { _, ok := g.tries("refs/heads/"); return ok })
}

func TestADatabaseThatIsDownAtTheStart(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, local.SQLite(t), "eu-1")
	down := g.unplug()
	down.Store(true)
	g.start()
	if said := g.fails("update-ref", "refs/heads/x", g.commit[0]); !strings.Contains(said, "waiting for the global ref database: nothing was changed") || strings.Contains(said, "unplugged") {
		t.Errorf("git said %q", said)
	}
	down.Store(false)
	sitetest.Eventually(t, "the daemon serves", func() bool { return g.status().OK() })
	g.git("update-ref", "refs/heads/x", g.commit[0])
	g.has("refs/heads/x", g.commit[0], g.commit[0])
}

// mute doesn't answer questions about refs, while it is.
type mute struct {
	refdb.Driver
	is    atomic.Bool
	asked atomic.Int64
}

func (m *mute) States(ctx context.Context, project string, refs []string) ([]driver.State, error) {
	if !m.is.Load() {
		return m.Driver.States(ctx, project, refs)
	}
	m.asked.Add(1)
	<-ctx.Done()
	return nil, ctx.Err()
}

// A push waits once for a database that does not answer, however many refs it has.
func TestAPushWaitsOnceForADatabaseThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, local.SQLite(t), "eu-1", "[site]\n\ttimeout = 2s\n\tdatabaseWait = 1s")
	m := &mute{}
	g.driver = func(d refdb.Driver) refdb.Driver { m.Driver = d; return m }
	g.start()
	client := g.client()
	m.is.Store(true)
	// The last one is not guarded: for its sake the others are looked at one by one.
	refs := []string{"c0:refs/heads/a", "c0:refs/heads/b", "c0:refs/heads/c", "c0:refs/heads/d", "c0:refs/heads/e", "c0:refs/changes/01/1/1"}
	said, ok := client.push(refs...)
	if ok || strings.Count(said, "did not answer in time: nothing was changed") != 5 || g.local("refs/changes/01/1/1") != g.commit[0] {
		t.Errorf("the push: %s", said)
	}
	if n := m.asked.Load(); n != 1 {
		t.Errorf("the database was asked %d times", n)
	}
	m.is.Store(false)
	// On a busy machine the database, too, may not answer in two seconds.
	sitetest.Eventually(t, "a push is accepted", func() bool {
		_, ok := client.push(refs...)
		return ok
	})
}

// pushWaiting pushes, and calls then each time that the client sees that the push waits for the database.
func (c *clone) pushWaiting(then func(), refs ...string) (said string, waited, ok bool) {
	c.tb.Helper()
	cmd := exec.Command("git", append([]string{"--git-dir=" + c.dir, "push", "file://" + c.g.repo}, refs...)...)
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		c.tb.Fatal(err)
	}
	var all strings.Builder
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		all.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), "this push waits for it, for up to") {
			waited = true
			then()
		}
	}
	err = cmd.Wait()
	return all.String(), waited, err == nil
}

// Before git locks anything, a push waits for a database that is away, and its client sees what for: for as long as site.databaseWait says,
// if need be at the next daemon.
func TestAPushWaitsForADatabaseThatIsAwayBeforeGitLocksAnything(t *testing.T) {
	t.Parallel()
	const long = "timeout = 1s\n\tdatabaseWait = 50m"
	back := func(_ *guard, down *atomic.Bool) { down.Store(false) }
	for _, c := range []struct {
		name, settings string
		also           string                     // a ref that is pushed, too
		then           func(*guard, *atomic.Bool) // once the client has seen that the push waits
		refused        string
	}{
		{"the database comes back", long, "", back, ""},
		{"beside a ref that is not guarded", long, "refs/changes/01/1/1", back, ""},
		{"maintenance has the repository meanwhile", long, "", func(g *guard, down *atomic.Bool) {
			ctx, cancel := context.WithTimeout(g.tb.Context(), sitetest.Patience)
			defer cancel()
			release, err := g.daemon.HaveAlone(ctx, g.repo)
			if err != nil {
				g.tb.Error("the push keeps maintenance out")
			} else {
				release()
			}
			down.Store(false)
		}, ""},
		{"the daemon is restarted", long, "", func(g *guard, down *atomic.Bool) {
			if down.Load() {
				g.halt()
				down.Store(false)
				g.start()
			}
		}, ""},
		{"the database stays away", "timeout = 1s\n\tdatabaseWait = 3s", "", func(*guard, *atomic.Bool) {}, "nothing was changed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := idleGuard(t, local.SQLite(t), "eu-1", "[site]\n\t"+c.settings)
			down := g.unplug()
			g.start()
			sitetest.Eventually(t, "the daemon serves", func() bool { return g.status().OK() })
			client := g.client()
			down.Store(true)
			refs := []string{"c0:refs/heads/x"}
			if c.also != "" {
				refs = append(refs, "c0:"+c.also)
			}
			said, waited, ok := client.pushWaiting(func() {
				if locks, _ := filepath.Glob(g.repo + "/refs/heads/*.lock"); len(locks) != 0 {
					t.Errorf("git has locked %s", locks)
				}
				c.then(g, down)
			}, refs...)
			switch {
			case c.name != "the database stays away" && !waited:
				t.Errorf("the client did not see that the push waits: %s", said)
			case c.refused == "" && !ok:
				t.Errorf("the push failed: %s", said)
			case c.refused == "":
				g.has("refs/heads/x", g.commit[0], g.commit[0])
			case ok || !strings.Contains(said, c.refused):
				t.Errorf("the push (%t): %s", ok, said)
			}
		})
	}
}

// Each push that waits keeps a connection. Hooks that report what git did need one, too.
func TestOnlySoManyPushesWaitForADatabaseThatIsAway(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, local.SQLite(t), "eu-1", "[site]\n\ttimeout = 1s\n\tdatabaseWait = 50m")
	down := g.unplug()
	g.limits = func(d *site.Daemon) { d.LetNobodyWait() }
	g.start()
	sitetest.Eventually(t, "the daemon serves", func() bool { return g.status().OK() })
	client := g.client()
	down.Store(true)
	if said, waited, ok := client.pushWaiting(func() { down.Store(false) }, "c0:refs/heads/x"); waited || ok || !strings.Contains(said, "nothing was changed") {
		t.Errorf("the push: %s", said)
	}
}

// unadmitted answers what only reads, as a server that was replaced does until a person helps.
type unadmitted struct {
	refdb.Driver
	is     atomic.Bool
	listed atomic.Int64
}

func (u *unadmitted) States(ctx context.Context, project string, refs []string) ([]driver.State, error) {
	if u.is.Load() {
		return nil, refdb.ErrNotAdmitted
	}
	return u.Driver.States(ctx, project, refs)
}

func (u *unadmitted) Report(ctx context.Context, r driver.Report) (driver.Admission, error) {
	a, err := u.Driver.Report(ctx, r)
	a.Admitted = a.Admitted && !u.is.Load()
	return a, err
}

func (u *unadmitted) Intents(ctx context.Context, q driver.IntentQuery) (driver.IntentPage, error) {
	u.listed.Add(1)
	return u.Driver.Intents(ctx, q)
}

// A database that answers reads is away all the same for those that push.
func TestAPushDoesNotWaitForAServerThatHasNotBeenAdmittedForLong(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, local.SQLite(t), "eu-1", "[site]\n\ttimeout = 1s\n\tdatabaseWait = 3s")
	u := &unadmitted{}
	g.driver = func(d refdb.Driver) refdb.Driver { u.Driver = d; return u }
	g.start()
	sitetest.Eventually(t, "the daemon serves", func() bool { return g.status().OK() })
	client := g.client()
	u.is.Store(true)
	push := func() (waited bool) {
		said, waited, ok := client.pushWaiting(func() {}, "c0:refs/heads/x")
		if ok || !strings.Contains(said, wire.DatabaseNotCompared) {
			t.Errorf("the push: %s", said)
		}
		return waited
	}
	push()
	for range 3 {
		before := u.listed.Load()
		sitetest.Eventually(t, "the database answers what only reads", func() bool { return u.listed.Load() > before+1 })
		if push() {
			t.Error("a push waited although those before it have waited in vain")
		}
	}
	u.is.Store(false)
	sitetest.Eventually(t, "a push is accepted", func() bool { _, ok := client.push("c0:refs/heads/x"); return ok })
	// The next outage is another one.
	u.is.Store(true)
	if said, waited, ok := client.pushWaiting(func() { u.is.Store(false) }, "c1:refs/heads/x"); !waited || !ok {
		t.Errorf("a push in the next outage: %s", said)
	}
}

// A push waits for a database that is restarted, and is refused at once if it has been away for longer than that takes.
func TestAPushOutwaitsARestartOfTheDatabase(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		outage time.Duration
		waits  bool
	}{"a short outage": {sitetest.Patience, true}, "a long one": {0, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := idleGuard(t, local.SQLite(t), "eu-1")
			driver := g.listen()
			var down atomic.Bool
			driver.down = down.Load
			g.limits = func(d *site.Daemon) { d.SetOutage(c.outage) }
			g.start()
			down.Store(true)
			failed := make(chan error, 1)
			go func() {
				out, err := exec.Command("git", "--git-dir="+g.repo, "update-ref", "refs/heads/x", g.commit[0]).CombinedOutput()
				if err != nil {
					err = fmt.Errorf("%w: %s", err, out)
				}
				failed <- err
			}()
			if !c.waits {
				if err := <-failed; err == nil || !strings.Contains(err.Error(), "database") {
					t.Errorf("git ended with %v", err)
				}
				return
			}
			sitetest.Eventually(t, "the push has asked several times", func() bool { return g.status().Counters.Failures > 20 })
			select {
			case err := <-failed:
				t.Fatalf("it did not wait: %v", err)
			default:
			}
			down.Store(false)
			if err := <-failed; err != nil {
				t.Error(err)
			}
			g.has("refs/heads/x", g.commit[0], g.commit[0])
		})
	}
}

// When the database went away with the announcement of a push, that may have been recorded, or may be yet. The push waits, and is made once.
func TestAPushWhoseAnnouncementLostItsReplyOutwaitsARestart(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]bool{"it was recorded": false, "it comes late": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shared := local.SQLite(t)
			g, other := idleGuard(t, shared, "eu-1"), newGuard(t, shared, "eu-2")
			driver := g.listen()
			driver.slow = late
			g.limits = func(d *site.Daemon) { d.SetOutage(sitetest.Patience) }
			g.start()
			a, b := g.commit[0], g.commit[1]
			for _, site := range []*guard{g, other} {
				site.set("refs/heads/x", a)
			}
			driver.deaf.Store(true)
			driver.stubborn.Store(true)
			failed := make(chan error, 1)
			go func() {
				out, err := exec.Command("git", "--git-dir="+g.repo, "update-ref", "refs/heads/x", b, a).CombinedOutput()
				if err != nil {
					err = fmt.Errorf("%w: %s", err, out)
				}
				failed <- err
			}()
			sitetest.Eventually(t, "the push has asked several times", func() bool { return g.status().Counters.Failures > 5 || len(failed) > 0 })
			if len(failed) > 0 {
				t.Fatalf("it did not wait: %v", <-failed)
			}
			if n := driver.asked.prepared.Load(); n > 1 {
				t.Errorf("it was announced %d times", n)
			}
			driver.deaf.Store(false)
			driver.stubborn.Store(false)
			if err := <-failed; err != nil {
				t.Fatal(err)
			}
			g.has("refs/heads/x", b, b)
			if n := g.intents(); n > 0 {
				t.Errorf("%d intents are left", n)
			}
			if late {
				if _, err := driver.driver.Prepare(t.Context(), *driver.late.Load()); err == nil || g.intents() != 0 {
					t.Errorf("it came late, and was let in: %v", err)
				}
			}
			g.has("refs/heads/x", b, b)
			other.set("refs/heads/x", b)
			other.git("update-ref", "refs/heads/x", a)
			other.has("refs/heads/x", a, a)
		})
	}
}

// packsAway is a database that keeps no pack while it is away.
type packsAway struct {
	refdb.Driver
	driver.PackStore
	away  atomic.Bool
	lost  atomic.Bool // what is stored meanwhile is stored, and not confirmed
	asked atomic.Int32
}

func (p *packsAway) around(d refdb.Driver) refdb.Driver {
	p.Driver, p.PackStore = d, d.(driver.PackStore)
	return p
}

func (p *packsAway) StorePart(ctx context.Context, part driver.PackPart) error {
	p.asked.Add(1)
	switch {
	case !p.away.Load():
		return p.PackStore.StorePart(ctx, part)
	case !p.lost.Load():
		return fmt.Errorf("%w: unplugged", refdb.ErrUnavailable)
	}
	if err := p.PackStore.StorePart(ctx, part); err != nil {
		return err
	}
	return fmt.Errorf("%w: unplugged", refdb.ErrOutcomeUnknown)
}

// What a large push stores before it is announced waits in the same way.
func TestThePackOfAPushOutwaitsARestart(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"it was not taken": false, "its reply was lost": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shared := sessionDatabase(t)
			g := idleGuard(t, shared, "eu-1", storesAll)
			driver := &packsAway{}
			driver.lost.Store(lost)
			g.driver = driver.around
			g.limits = func(d *site.Daemon) { d.SetOutage(sitetest.Patience) }
			g.start()
			other := newGuard(t, shared, "us-1", storesAll)
			value := g.newCommit(g.commit[0], largePack)
			driver.away.Store(true)
			failed := make(chan error, 1)
			go func() {
				out, err := exec.Command("git", "--git-dir="+g.repo, "update-ref", x, value).CombinedOutput()
				if err != nil {
					err = fmt.Errorf("%w: %s", err, out)
				}
				failed <- err
			}()
			sitetest.Eventually(t, "the push has asked several times", func() bool { return driver.asked.Load() > 10 || len(failed) > 0 })
			if len(failed) > 0 {
				t.Fatalf("it did not wait: %v", <-failed)
			}
			driver.away.Store(false)
			if err := <-failed; err != nil {
				t.Fatal(err)
			}
			sitetest.Eventually(t, "the other site follows", func() bool { return other.local(x) == value })
		})
	}
}
