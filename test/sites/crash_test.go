//go:build linux

package sites

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// A victim is what a crash kills.
type victim string

const (
	theHook     victim = "the hook"
	receivePack victim = "receive-pack"
	theDaemon   victim = "the daemon"
	theDatabase victim = "the database"
)

// A moment is a step of a push.
type moment string

const (
	asking   moment = "before the daemon is asked"
	deciding moment = "when the database has done it, and has not told"
	decided  moment = "when the hook has its answer, and git has done nothing yet"
)

// A crashRow is a crash at one step of an atomic push, and what it leads to.
type crashRow struct {
	state  string // of the transaction
	when   moment
	victim victim
	lands  bool // whether the site accepts the push
}

var crashRows = []crashRow{
	{"prepared", asking, theHook, false},
	{"prepared", asking, receivePack, false},
	{"prepared", asking, theDaemon, true}, // it is back when it is asked
	{"prepared", deciding, theHook, false},
	{"prepared", deciding, receivePack, false},
	{"prepared", deciding, theDaemon, true}, // the hook asks its successor
	{"prepared", decided, receivePack, false},
	{"prepared", decided, theDaemon, true},
	{"prepared", decided, theDatabase, true},
	{"committed", asking, theHook, true},
	{"committed", asking, receivePack, true},
	{"committed", asking, theDaemon, true},
	{"committed", asking, theDatabase, true},
	{"committed", deciding, theHook, true},
	{"committed", deciding, receivePack, true},
	{"committed", deciding, theDaemon, true},
	{"committed", deciding, theDatabase, true},
}

// A crashed is a push that is to crash.
type crashed struct {
	*cluster
	row  crashRow
	link *slowLink // of eu to the database
	gate *gate     // at eu
	refs [3]string
}

func TestACrashAtAnyStepLeavesNothingDivergedAndNothingToDo(t *testing.T) {
	eachGit(t, func(t *testing.T, g *git) {
		kinds := []storage{files}
		if g.reftable() {
			kinds = append(kinds, storage{"sha1", "reftable"})
		}
		for _, kind := range kinds {
			t.Run(kind.String(), func(t *testing.T) {
				t.Parallel()
				c, way := clusterWithSlowLink(t, g, kind)
				gate := gateIn(t, c.eu.repo(project), "reference-transaction")
				for i, row := range crashRows {
					t.Run(fmt.Sprintf("%s, %s, %s", row.state, row.when, row.victim), func(t *testing.T) {
						if testing.Short() && (row.when == asking || row.victim == theHook) {
							t.Skip("left out by -short: a crash before the daemon is asked, or of the hook alone; make test-all runs it")
						}
						gate.t = t
						x := &crashed{cluster: c.in(t), row: row, link: way, gate: gate}
						for n := range x.refs {
							x.refs[n] = fmt.Sprintf("refs/heads/crash-%d-%d", i, n)
						}
						x.play()
						c.eu.daemon = x.eu.daemon
					})
				}
			})
		}
	})
}

// clusterWithSlowLink makes a cluster on PostgreSQL, where eu has a slow link to the database.
func clusterWithSlowLink(t *testing.T, g *git, kind storage) (*cluster, *slowLink) {
	t.Helper()
	var p *slowLink
	c := newCluster(t, g, design{
		storage: kind, database: onPostgres,
		url: func(site string, d database) string {
			if site != "eu" {
				return d.URL()
			}
			p = newSlowLink(t, d.URL(), 0)
			return p.url
		},
	})
	return c, p
}

func (x *crashed) play() {
	x.Helper()
	// One ref is moved, one created, one deleted.
	x.eu.pushed(x.h.a+":"+x.refs[0], x.h.a+":"+x.refs[2])
	x.us.sync()
	before := x.eu.refs(project)

	x.gate.shut(x.row.state)
	told := x.eu.startPush("--atomic", x.h.b+":"+x.refs[0], x.h.b+":"+x.refs[1], ":"+x.refs[2])
	hook := x.gate.waits(x.row.state)
	pack := parentOf(x, hook)
	switch x.row.when {
	case deciding:
		x.link.HoldRepliesWhen(x.isDecided)
		x.gate.open(x.row.state)
		eventually(x, "the database's decision", x.link.Holding)
	case decided:
		signal(x, pack, syscall.SIGSTOP)
		x.gate.open(x.row.state)
		gone(x, hook)
	}
	x.crash(hook, pack)

	p := told()
	if want := x.row.lands && x.row.victim != receivePack; p.ok != want || want != (len(p.accepted()) == 3) || !want && len(p.accepted()) > 0 {
		x.Errorf("the client was told %+v", p)
	}
	x.settled()
	want := before
	if x.row.lands {
		want[x.refs[0]], want[x.refs[1]] = x.h.b, x.h.b
		delete(want, x.refs[2])
	}
	sameRefs(x, "eu", x.eu.refs(project), want)
	sameRefs(x, "the database", x.global(project), want)
	x.unlock()
	if !testing.Short() { // in the end it is caught up with anyway
		x.caughtUp()
	}
	// Both sites go on.
	x.eu.pushed("+" + x.h.c + ":" + x.refs[0])
	x.us.sync()
	x.us.pushed("+"+x.h.a+":"+x.refs[0], "+"+x.h.a+":"+x.refs[1])
	x.caughtUp()
}

// isDecided is nil once the database has done what the daemon asks it in the state.
func (x *crashed) isDecided() error {
	pending := 0
	for _, err := range x.db.Intents().All(x.Context(), driver.IntentFilter{Project: project}) {
		if err != nil {
			return err
		}
		pending++
	}
	if want := map[string]int{"prepared": 3, "committed": 0}[x.row.state]; pending != want {
		return fmt.Errorf("%d intents", pending)
	}
	return nil
}

// crash kills the victim, and lets all others go on.
func (x *crashed) crash(hook, pack int) {
	x.Helper()
	switch x.row.victim {
	case theHook:
		kill9(x, hook)
	case receivePack:
		kill9(x, pack)
	case theDaemon:
		x.eu.kill()
	case theDatabase:
		x.link.Cut()
	}
	// It may wait for a child that has ended, which it learns of now.
	_ = syscall.Kill(pack, syscall.SIGCONT)
	switch x.row.victim {
	case theDaemon:
		x.link.Clear()
		x.eu.start()
		x.gate.open(x.row.state)
	case theDatabase:
		x.gate.open(x.row.state)
		x.link.Clear()
		x.link.restore(x)
	default:
		x.gate.open(x.row.state)
		x.link.Clear()
	}
}

// unlock removes the lock files that a killed git left behind, as an operator would, unless the daemon
// was faster.
func (x *crashed) unlock() {
	x.Helper()
	if x.row.victim != receivePack || x.row.state != "prepared" {
		return
	}
	repo := x.eu.repo(project)
	left := lockFiles(x, repo)
	if len(left) == 0 {
		return
	}
	// Recent ones may be in use.
	for _, path := range left {
		past := time.Now().Add(-time.Minute)
		if err := os.Chtimes(path, past, past); err != nil && !errors.Is(err, fs.ErrNotExist) {
			x.Fatal(err)
		}
	}
	out, err := x.eu.run("site", "check", "--repair", repo)
	if left := lockFiles(x, repo); len(left) > 0 {
		x.Fatalf("after site check --repair there are still %q: %v: %s", left, err, out)
	}
}

// unlockRefs removes git's lock files from a repository that no git is at work in, unless the daemon was faster.
func unlockRefs(t testing.TB, repo string) {
	t.Helper()
	for _, path := range lockFiles(t, repo) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
}

// lockFiles returns git's lock files in a repository.
func lockFiles(t testing.TB, repo string) (left []string) {
	t.Helper()
	err := filepath.WalkDir(repo, func(path string, _ os.DirEntry, err error) error {
		if strings.HasSuffix(path, ".lock") {
			left = append(left, path)
		}
		if errors.Is(err, fs.ErrNotExist) { // it was removed meanwhile
			return nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return left
}

func TestAnIOErrorInTheMiddleOfAPushIsResolvedByWhatGitHasDone(t *testing.T) {
	eachGit(t, func(t *testing.T, g *git) {
		c := newCluster(t, g, design{})
		c.eu.pushed(c.h.a + ":refs/heads/x")
		c.us.sync()
		gate := gateIn(t, c.eu.repo(project), "reference-transaction")
		gate.shut("prepared")
		told := c.eu.startPush("--atomic", c.h.b+":refs/heads/x", c.h.b+":refs/heads/y")
		gate.waits("prepared")
		obstruct(t, c.eu.repo(project), "refs/heads/y")
		gate.open("prepared")
		if p := told(); p.ok {
			t.Errorf("the client was told %+v", p)
		}
		c.settled()
		want := map[string]string{"refs/heads/x": c.h.b}
		sameRefs(t, "eu", c.eu.refs(project), want)
		sameRefs(t, "the database", c.global(project), want)
		c.caughtUp()
		if err := os.RemoveAll(filepath.Join(c.eu.repo(project), "refs/heads/y")); err != nil {
			t.Fatal(err)
		}
		c.eu.pushed(c.h.b + ":refs/heads/y")
		c.caughtUp()
	})
}

func TestGitKilledInTheMiddleOfALargePushIsResolvedRefByRef(t *testing.T) {
	eachGit(t, func(t *testing.T, g *git) {
		c := newCluster(t, g, design{})
		var args []string
		refs := 500
		if testing.Short() {
			refs = 250
		}
		for i := range refs {
			args = append(args, fmt.Sprintf("%s:refs/heads/many/%03d", c.h.a, i))
		}
		gate := gateIn(t, c.eu.repo(project), "reference-transaction")
		gate.shut("prepared")
		gate.shut("committed") // it does not end before it is killed
		told := c.eu.startPush(append([]string{"--atomic"}, args...)...)
		pack := parentOf(t, gate.waits("prepared"))
		gate.open("prepared")
		// The refs appear one after the other, and the last of them is not awaited.
		first := filepath.Join(c.eu.repo(project), "refs/heads/many/000")
		for {
			if _, err := os.Stat(first); err == nil {
				break
			}
			if fields, err := stat(pack); err != nil || fields[0] == "Z" {
				t.Fatal("git has ended without a push")
			}
			time.Sleep(50 * time.Microsecond)
		}
		kill9(t, pack)
		gate.open("committed")
		if p := told(); p.ok {
			t.Errorf("the client was told %+v", p)
		}
		c.settled()
		held := c.eu.refs(project)
		t.Logf("%d of %d refs are there", len(held), len(args))
		if len(held) == 0 {
			t.Error("no ref is there")
		}
		sameRefs(t, "the database", c.global(project), held)
		c.caughtUp()
	})
}

func TestTheInnerTransactionOfADeleteResolvesNothing(t *testing.T) {
	eachGit(t, func(t *testing.T, g *git) {
		c := newCluster(t, g, design{})
		c.eu.pushed(c.h.a + ":refs/heads/x")
		c.eu.git("-c", "core.hooksPath=/dev/null", "pack-refs", "--all")
		c.eu.pushed(c.h.b + ":refs/heads/x") // loose, too
		c.us.sync()
		gate := gateIn(t, c.eu.repo(project), "reference-transaction")
		gate.shut("committed")
		told := c.eu.startPush(":refs/heads/x")
		pack := parentOf(t, gate.waits("committed")) // the inner one
		// It goes through to the daemon while git stands still after it.
		signal(t, pack, syscall.SIGSTOP)
		gate.open("committed")
		eventually(t, "the inner hook", func() error {
			if passed := gate.passed(); strings.Count(strings.Join(passed, " "), "committed") == 0 {
				return errPending
			}
			return nil
		})
		eventually(t, "the end of the hook", func() error {
			if left := childrenOf(t, pack); len(left) > 0 {
				return fmt.Errorf("%d still run", left)
			}
			return nil
		})
		if got := c.eu.refs(project)["refs/heads/x"]; got != c.h.b {
			t.Fatalf("the ref is %q already", got)
		}
		if n := c.intents(); n != 1 {
			t.Errorf("%d intents after the inner committed", n)
		}
		kill9(t, pack)
		if p := told(); p.ok {
			t.Errorf("the client was told %+v", p)
		}
		c.settled()
		want := map[string]string{"refs/heads/x": c.h.b}
		sameRefs(t, "eu", c.eu.refs(project), want)
		sameRefs(t, "the database", c.global(project), want)
		c.caughtUp()
	})
}

// intents counts the pending ones.
func (c *cluster) intents() (n int) {
	c.Helper()
	for _, err := range c.db.Intents().All(c.Context(), driver.IntentFilter{}) {
		if err != nil {
			c.Fatal(err)
		}
		n++
	}
	return n
}
