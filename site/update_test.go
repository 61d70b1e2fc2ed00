package site_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/wire"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// A clone is a clone that pushes.
type clone struct {
	tb  testing.TB
	dir string
	g   *guard
	env []string // besides this process's
}

// impatient has hooks wait for a daemon that does not run, or does not answer, for no longer than a test can.
const impatient = "REFDB_HOOK_TIMEOUT=500ms"

// client has the site's commits as branches c0, c1, …
func (g *guard) client() *clone {
	g.tb.Helper()
	c := &clone{tb: g.tb, dir: filepath.Join(g.tb.TempDir(), "client.git"), g: g}
	sitetest.Run(g.tb, "", "git", "init", "--quiet", "--bare", c.dir)
	g.git("-c", "core.hooksPath=/dev/null", "update-ref", "refs/peer/test/tip", g.commit[len(g.commit)-1]) // which has all
	sitetest.Run(g.tb, "", "git", "--git-dir="+c.dir, "fetch", "--quiet", "file://"+g.repo, "refs/peer/test/tip")
	var refs strings.Builder
	for i, id := range g.commit {
		fmt.Fprintf(&refs, "create refs/heads/c%d %s\n", i, id)
	}
	cmd := exec.Command("git", "--git-dir="+c.dir, "update-ref", "--stdin")
	cmd.Stdin = strings.NewReader(refs.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		g.tb.Fatalf("%v: %s", err, out)
	}
	return c
}

// push returns what git says, and whether it succeeded.
func (c *clone) push(args ...string) (string, bool) {
	c.tb.Helper()
	cmd := exec.Command("git", append([]string{"--git-dir=" + c.dir, "push", "file://" + c.g.repo}, args...)...)
	cmd.Env = append(os.Environ(), c.env...)
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}

// A startedPush is a push under way.
type startedPush struct {
	tb   testing.TB
	out  sitetest.Buffer
	done chan error
}

// start is push, which it does not wait for.
func (c *clone) start(args ...string) *startedPush {
	c.tb.Helper()
	cmd := exec.Command("git", append([]string{"--git-dir=" + c.dir, "push", "file://" + c.g.repo}, args...)...)
	p := &startedPush{tb: c.tb, done: make(chan error, 1)}
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), c.env...), &p.out, &p.out
	if err := cmd.Start(); err != nil {
		c.tb.Fatal(err)
	}
	go func() { p.done <- cmd.Wait() }()
	return p
}

// said reports whether git, or a hook, has said the text. A push that has ended fails the test unless it has.
func (p *startedPush) said(text string) bool {
	p.tb.Helper()
	if strings.Contains(p.out.String(), text) {
		return true
	}
	if len(p.done) > 0 {
		p.tb.Fatalf("the push ended: %s", p.out.String())
	}
	return false
}

func (p *startedPush) succeeds() {
	p.tb.Helper()
	if err := <-p.done; err != nil {
		p.tb.Errorf("the push: %v: %s", err, p.out.String())
	}
}

func TestAPushReadsPerRefWhyItIsRefused(t *testing.T) {
	t.Parallel()
	shared := local.SQLite(t)
	east, west := newGuard(t, shared, "east", "[site]\n\tlockWait = 100ms"), newGuard(t, shared, "west")
	a, b, c := east.commit[0], east.commit[1], east.commit[2]
	for _, ref := range []string{"refs/heads/behind", "refs/heads/gone", "refs/heads/locked", "refs/heads/packed", "refs/heads/fine"} {
		east.set(ref, a)
		west.set(ref, a)
	}
	east.git("pack-refs", "--all", "--prune")
	east.git("-c", "core.hooksPath=/dev/null", "update-ref", "refs/heads/stray", a)
	west.git("update-ref", "refs/heads/behind", b)
	west.git("update-ref", "refs/heads/packed", b)
	west.git("update-ref", "-d", "refs/heads/gone", a)
	west.git("update-ref", "refs/heads/new", b)
	s := west.session()
	if err := s.prepare("update refs/heads/locked " + b + " " + a); err != nil {
		t.Fatal(err)
	}
	time.Sleep(10 * time.Millisecond) // so that it has an age
	client := east.client()
	said, ok := client.push("c2:behind", "c2:gone", "c2:locked", "c2:new", "c2:stray", ":packed", "c2:fine", "c2:sound", "c2:refs/changes/01/1/1")
	if ok {
		t.Error("the push succeeded")
	}
	for _, line := range []string{
		"remote: refs/heads/behind: this site is behind (global " + b[:7] + ", here " + a[:7] + "): fetch and retry in a few seconds",
		"remote: refs/heads/gone: this site is behind (global deleted, here " + a[:7] + ")",
		"remote: refs/heads/locked: another push to it is in progress at west since ",
		"remote: refs/heads/new: this site is behind (global " + b[:7] + ", here nothing)",
		"remote: refs/heads/stray exists here but not in the global database: ask the administrator to run `refdbctl site check`",
		"remote: refs/heads/packed: this site is behind (global " + b[:7] + ", here " + a[:7] + ")",
		"! [remote rejected] c2 -> behind (hook declined)",
	} {
		sitetest.Contains(t, said, line)
	}
	for _, ref := range []string{"fine", "sound"} {
		if east.local("refs/heads/"+ref) != c || east.global("refs/heads/"+ref) != c {
			t.Errorf("%s did not go on: %s", ref, said)
		}
	}
	if east.local("refs/changes/01/1/1") != c {
		t.Error("what is not guarded did not go on")
	}
	s.must("abort")
	if said, ok := client.push("c2:locked"); !ok {
		t.Errorf("when the lock is gone: %s", said)
	}
	s.close()
}

// besideAPush returns a site that counts its requests, and the session of a push at another site that
// has refs/heads/x.
func besideAPush(t *testing.T) (east *guard, requests *asked, s *session) {
	t.Helper()
	shared := local.SQLite(t)
	east, west := idleGuard(t, shared, "east"), newGuard(t, shared, "west")
	requests = &east.listen().asked
	east.start()
	s = west.session()
	if err := s.prepare("create refs/heads/x " + west.commit[0]); err != nil {
		t.Fatal(err)
	}
	return east, requests, s
}

func TestAPushWaitsALittleForAnother(t *testing.T) {
	t.Parallel()
	east, asked, s := besideAPush(t)
	pushed := make(chan string, 1)
	client := east.client()
	go func() {
		said, ok := client.push("c1:refs/heads/x")
		if !ok {
			pushed <- said
		}
		close(pushed)
	}()
	// Once when it begins, and again and again while the ref is locked.
	sitetest.Eventually(t, "it waits", func() bool { return asked.states.Load() >= 3 })
	s.must("abort")
	if said := <-pushed; said != "" {
		t.Error(said)
	}
	east.has("refs/heads/x", east.commit[1], east.commit[1])
	s.close()
}

// A push of another site is under way, and whether it is made or not, the ref has another value than
// the pusher saw: waiting for its end would not help.
func TestAPushThatCanNotMatchAnyMoreDoesNotWait(t *testing.T) {
	t.Parallel()
	shared := local.SQLite(t)
	east, west := newGuard(t, shared, "east"), newGuard(t, shared, "west")
	a, b, c := east.commit[0], east.commit[1], east.commit[2]
	east.set("refs/heads/x", a)
	west.set("refs/heads/x", a)
	west.git("update-ref", "refs/heads/x", b)
	s := west.session()
	if err := s.prepare("update refs/heads/x " + c + " " + b); err != nil {
		t.Fatal(err)
	}
	behind := "refs/heads/x: this site is behind (global " + b[:7] + ", here " + a[:7] + ")"
	said, ok := east.client().push("c3:refs/heads/x")
	if ok || !strings.Contains(said, behind) {
		t.Errorf("the push was told: %s", said)
	}
	if out, err := exec.Command("git", "--git-dir="+east.repo, "update-ref", "refs/heads/x", east.commit[3], a).CombinedOutput(); err == nil || !strings.Contains(string(out), behind) {
		t.Errorf("without the update hook git was told: %s", out)
	}
	s.must("commit")
	west.has("refs/heads/x", c, c)
	s.close()
}

func TestAPushWhoseProcessEndsStopsWaiting(t *testing.T) {
	t.Parallel()
	east, asked, s := besideAPush(t)
	waiting := exec.Command("git", "--git-dir="+east.repo, "update-ref", "refs/heads/x", east.commit[1])
	if err := waiting.Start(); err != nil {
		t.Fatal(err)
	}
	sitetest.Eventually(t, "it waits", func() bool { return asked.prepared.Load() == 1 && asked.states.Load() >= 2 })
	killed := time.Now()
	if err := waiting.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	waiting.Wait()
	sitetest.Eventually(t, "it is refused while the lock stands", func() bool { return east.status().Counters.Refused == 1 })
	if took := time.Since(killed); took > sitetest.Patience/2 {
		t.Errorf("it waited for its limit: %s", took)
	}
	s.must("abort")
	s.close()
}

// A push that waits for a ref goes on to wait at the next daemon.
func TestAStoppingDaemonEndsWaits(t *testing.T) {
	t.Parallel()
	east, asked, s := besideAPush(t)
	p := east.client().start("c1:refs/heads/x")
	sitetest.Eventually(t, "it waits", func() bool { return asked.states.Load() >= 2 })
	east.halt()
	sitetest.Eventually(t, "it waits for the next daemon", func() bool { return p.said(wire.DaemonRestarts) })
	east.start()
	s.must("abort")
	p.succeeds()
	east.has("refs/heads/x", east.commit[1], east.commit[1])
	s.close()
}

func TestAPushWithoutADaemon(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, local.SQLite(t), "eu-1")
	client := g.client()
	client.env = []string{impatient}
	start := time.Now()
	said, ok := client.push("c0:x", "c1:y")
	if ok {
		t.Error("the push succeeded")
	}
	// It waits once, however many refs it has.
	if n := strings.Count(said, "the site daemon does not answer"); n != 1 {
		t.Errorf("it is told %d times: %s", n, said)
	}
	if d := time.Since(start); d < 500*time.Millisecond {
		t.Errorf("it waited for %s only", d)
	}
	if g.local("refs/heads/x") != "" {
		t.Error("the ref is there")
	}
}

// hook runs a hook by hand, as git would be.
func (g *guard) hook(name, stdin string, args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(hooksPath(g.repo), name), args...)
	cmd.Dir, cmd.Stdin = g.repo, strings.NewReader(stdin)
	cmd.Env = append(os.Environ(), "GIT_DIR=.")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestAHookCalledByHand(t *testing.T) {
	t.Parallel()
	g := newGuard(t, local.SQLite(t), "eu-1")
	for _, c := range []struct{ name, hook, stdin, args, says string }{
		{"rubbish", "reference-transaction", "rubbish\n", "prepared", "is not OLD NEW REF"},
		{"half a line", "reference-transaction", zero + " " + g.commit[0], "prepared", "is not OLD NEW REF"},
		{"nothing", "reference-transaction", "", "prepared", ""},
		{"a state of the future", "reference-transaction", "x\n", "pondering", ""},
		{"an end that nobody announced", "reference-transaction", zero + " " + g.commit[0] + " refs/heads/x\n", "committed", ""},
		{"a symbolic value", "reference-transaction", zero + " ref:refs/heads/y refs/heads/x\n", "prepared", "a symbolic ref can't be guarded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			said, err := g.hook(c.hook, c.stdin, strings.Fields(c.args)...)
			if (err == nil) != (c.says == "") {
				t.Errorf("%v: %s", err, said)
			}
			sitetest.Contains(t, said, c.says)
		})
	}
	if n := g.intents(); n != 0 {
		t.Errorf("%d intents stand", n)
	}
}

// The refs of peers are sync's alone: a push to refs/peer/asia would keep asia's from being fetched.
func TestNobodyPushesToPeersRefs(t *testing.T) {
	t.Parallel()
	g := newGuard(t, local.SQLite(t), "eu-1")
	client := g.client()
	said, ok := client.push("c0:refs/peer/asia", "c1:refs/peer/asia/heads/x", ":refs/peer/test/tip", "c2:refs/heads/x")
	if ok {
		t.Error("the push succeeded")
	}
	for _, ref := range []string{"refs/peer/asia", "refs/peer/asia/heads/x", "refs/peer/test/tip"} {
		sitetest.Contains(t, said, "remote: "+ref+": only `refdbctl site sync` moves the refs of peers")
	}
	if got := g.git("for-each-ref", "--format=%(refname)"); got != "refs/heads/x\nrefs/peer/test/tip" {
		t.Errorf("the refs are\n%s", got)
	}
}
