//go:build linux

package sites

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/site/client"
)

// maintain maintains the site's repository of the project.
func (s *server) maintain() client.Maintained {
	s.c.Helper()
	out := s.must("site", "maintain", "-o", "json", project)
	var rows []client.Maintained
	if err := json.Unmarshal([]byte(out), &rows); err != nil || len(rows) != 1 {
		s.c.Fatalf("%v: %s", err, out)
	}
	return rows[0]
}

// prunes is maintain without a reason to prune nothing.
func (s *server) prunes() client.Maintained {
	s.c.Helper()
	m := s.maintain()
	if m.Left != "" {
		s.c.Errorf("site %s pruned nothing: %s", s.name, m.Left)
	}
	return m
}

// pruneAsGit prunes without asking anybody.
func (s *server) pruneAsGit() {
	s.c.Helper()
	s.git("-c", "core.hooksPath=/dev/null", "prune", "--expire=2.weeks.ago")
}

// age makes all loose objects of the repository 40 days old, and lets reflogs keep none of them.
func (s *server) age() {
	s.c.Helper()
	s.git("config", "gc.reflogExpire", "now")
	s.git("config", "gc.reflogExpireUnreachable", "now")
	s.git("reflog", "expire", "--expire=now", "--all")
	out, err := exec.Command("find", filepath.Join(s.repo(project), "objects"), "-type", "f", "-exec", "touch", "-d", "40 days ago", "{}", "+").CombinedOutput()
	if err != nil {
		s.c.Fatalf("%v: %s", err, out)
	}
}

// manyPacks pushes, and leaves as many packs of that as a repository is packed for.
func (s *server) manyPacks(refspec string) {
	s.c.Helper()
	s.git("config", "receive.unpackLimit", "1")
	s.pushed(refspec)
	s.git("config", "--unset", "receive.unpackLimit")
	packs := filepath.Join(s.repo(project), "objects/pack")
	found, err := filepath.Glob(filepath.Join(packs, "pack-*.pack"))
	if len(must(s.c.TB, found, err)) != 1 {
		s.c.Fatalf("packs: %q", found)
	}
	for _, kind := range []string{".pack", ".idx"} { // one without its index is none
		text, err := os.ReadFile(strings.TrimSuffix(found[0], ".pack") + kind)
		must(s.c.TB, text, err)
		for i := range 60 {
			if err := os.WriteFile(filepath.Join(packs, fmt.Sprintf("pack-%040x%s", i, kind)), text, 0o444); err != nil {
				s.c.Fatal(err)
			}
		}
	}
}

func (s *server) has(id string) bool {
	s.c.Helper()
	_, err := s.c.g.try(s.repo(project), "cat-file", "-e", id)
	return err == nil
}

// whole fails the test if the repository lacks objects.
func (s *server) whole() {
	s.c.Helper()
	if _, err := s.c.g.try(s.repo(project), "fsck", "--connectivity-only", "--no-dangling"); err != nil {
		s.c.Errorf("site %s: %v", s.name, err)
	}
}

// passDays lets days go by in the database of a cluster on SQLite: for its history, and for the packs that were used.
func (c *cluster) passDays(days int) {
	c.Helper()
	c.passes(time.Duration(days)*24*time.Hour, "UPDATE history SET time = time - ?", "UPDATE packs SET time = time - ? WHERE position IS NOT NULL")
}

// passes executes statements in the database of a cluster on SQLite that let rows get older by that.
func (c *cluster) passes(by time.Duration, statements ...string) {
	c.Helper()
	path := strings.TrimPrefix(c.eu.db, "sqlite:")
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout("+fmt.Sprint(patience.Milliseconds())+")")
	if err != nil {
		c.Fatal(err)
	}
	defer db.Close()
	for _, statement := range statements {
		if _, err := db.Exec(statement, by.Microseconds()); err != nil {
			c.Fatal(err)
		}
	}
}

// onlyRuled leaves out what shows that a test would notice that maintenance loses something.
func onlyRuled(t *testing.T, ruled bool) {
	t.Helper()
	if testing.Short() && !ruled {
		t.Skip("left out by -short: the same with a prune that asks nobody, which loses something; make test-all runs it")
	}
}

// What a ref has left other sites may still build on: a pack that was made before is used afterwards.
func TestWhatARefHasLeftIsKeptForOtherSites(t *testing.T) {
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	for _, ruled := range []bool{true, false} {
		t.Run(fmt.Sprintf("maintain=%v", ruled), func(t *testing.T) {
			onlyRuled(t, ruled)
			t.Parallel()
			c := newCluster(t, g, design{h: newHistory(t, g, "sha1", 1, 1), extra: storing})
			old, child := c.h.leaves[0], c.h.children[0][0]
			c.eu.pushed(old + ":refs/heads/main")
			c.us.follows(project)
			gate := gateIn(t, c.eu.repo(project), "reference-transaction")
			gate.shut("prepared")
			told := c.eu.startPush(child + ":refs/heads/x")
			gate.waits("prepared") // its pack builds on main's value
			c.us.pushed("--force", c.h.c+":refs/heads/main")
			c.us.age()
			if ruled {
				if m := c.us.prunes(); m.Kept == 0 {
					t.Errorf("nothing is kept: %+v", m)
				}
			} else {
				c.us.pruneAsGit()
			}
			if c.us.has(old) != ruled {
				t.Errorf("the site has what the ref left: %v", !ruled)
			}
			gate.open("prepared")
			if p := told(); !p.ok {
				t.Fatalf("%+v", p)
			}
			c.us.follows(project)
		})
	}
}

// Git's check that all objects of a push are there may rely on a branch that is deleted before the push is prepared.
func TestWhatAPushFoundIsNotPrunedUnderIt(t *testing.T) {
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	for _, ruled := range []bool{true, false} {
		t.Run(fmt.Sprintf("maintain=%v", ruled), func(t *testing.T) {
			onlyRuled(t, ruled)
			t.Parallel()
			c := newCluster(t, g, design{h: newHistory(t, g, "sha1", 1, 1)})
			base, child := c.h.leaves[0], c.h.children[0][0]
			c.eu.pushed(c.h.b+":refs/heads/main", base+":refs/heads/side")
			c.eu.age()
			gate := gateIn(t, c.eu.repo(project), "pre-receive")
			gate.shut("")
			told := c.eu.startPush(child + ":refs/heads/x")
			gate.waits("")
			os.Remove(filepath.Join(c.eu.repo(project), "hooks/pre-receive"))
			c.eu.pushed(":refs/heads/side")
			c.passDays(15)
			if ruled {
				if m := c.eu.prunes(); m.Pruned == 0 {
					t.Errorf("nothing was pruned: %+v", m)
				}
			} else {
				c.eu.pruneAsGit()
			}
			gate.open("")
			p := told()
			if _, err := g.try(c.eu.repo(project), "fsck", "--connectivity-only"); (err == nil) != ruled {
				t.Errorf("the repository is whole: %v, %v", !ruled, err)
			}
			if !ruled {
				if !p.ok {
					t.Errorf("nothing was broken: %+v", p)
				}
				return
			}
			if p.ok || !strings.Contains(p.said, "were pruned in the meantime") {
				t.Errorf("the push relies on what was pruned: %+v", p)
			}
			c.eu.pushed(child + ":refs/heads/x")
			c.eu.whole()
		})
	}
}

func TestMaintenancePrunesWhatNobodyNeeds(t *testing.T) {
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	c := newCluster(t, g, design{h: newHistory(t, g, "sha1", 1, 1), extra: storing})
	c.us.manyPacks(c.h.leaves[0] + ":refs/heads/0")
	c.us.pushed(c.h.children[0][0]+":refs/heads/gone", c.h.tag+":refs/tags/gone")
	if m := c.us.prunes(); m.Packed != "all" || m.Kept != 0 || m.Pruned != 0 {
		t.Errorf("%+v", m)
	}
	c.us.pushed(":refs/heads/gone", ":refs/tags/gone")
	c.us.age()
	if m := c.us.prunes(); m.Kept != 2 || m.Pruned != 0 {
		t.Errorf("just deleted: %+v", m)
	}
	if out := g.run(t, c.h.dir, "ls-remote", "file://"+c.us.repo(project)); strings.Contains(out, "refs/refdb/") || !strings.Contains(out, "refs/heads/0") {
		t.Errorf("clients see %s", out)
	}
	if p := c.us.push(c.h.a + ":refs/refdb/kept/x"); p.ok || p.reason["refs/refdb/kept/x"] != "deny updating a hidden ref" {
		t.Errorf("a push to a hidden ref: %+v", p)
	}
	c.us.must("site", "check", project)
	c.passDays(15)
	c.eu.follows(project)
	c.eu.must("site", "store", "compact", project)
	if m := c.us.prunes(); m.Kept != 0 {
		t.Errorf("15 days later: %+v", m)
	}
	c.us.git("-c", "core.hooksPath=/dev/null", "repack", "-A", "-d", "-q") // makes loose what the packs have of it
	c.us.age()
	if m := c.us.prunes(); m.Pruned != 1 && m.Pruned != 2 {
		t.Errorf("15 days later, loose: %+v", m)
	}
	for _, gone := range []string{c.h.children[0][0], c.h.tag} {
		if c.us.has(gone) {
			t.Errorf("%s was not pruned", gone)
		}
	}
	c.us.whole()
	c.us.pushed(c.h.children[0][0] + ":refs/heads/again")
	c.eu.follows(project)
}

// slowGit is a git whose commands with some words wait while a test wants that.
func slowGit(t *testing.T, g *git) (slow *git, hold func(words string), held func(), release func()) {
	t.Helper()
	dir := shortDir(t)
	writeScript(t, filepath.Join(dir, "git"), fmt.Sprintf(`
dir=%q
if [ -e $dir/words ]; then
	words=$(cat $dir/words)
	case " $* " in *" $words "*)
		echo $$ >>$dir/held
		while [ -e $dir/words ]; do sleep 0.02; done
	esac
fi
exec %q "$@"
`, dir, filepath.Join(g.dir, "git")))
	copied := *g
	copied.env = append(append([]string{}, g.env...), "PATH="+dir+":"+g.dir+":"+os.Getenv("PATH"))
	return &copied,
		func(words string) {
			os.Remove(filepath.Join(dir, "held"))
			if err := os.WriteFile(filepath.Join(dir, "words"), []byte(words), 0o644); err != nil {
				t.Fatal(err)
			}
		},
		func() {
			eventually(t, "git to wait", func() error { _, err := os.Stat(filepath.Join(dir, "held")); return err })
		},
		func() { os.Remove(filepath.Join(dir, "words")) }
}

// A daemon that dies in the middle of maintenance keeps nobody out, but for as long as its prune goes on.
func TestADaemonKilledInMaintenanceBlocksNobody(t *testing.T) {
	t.Parallel()
	all, err := gits()
	real := must(t, all, err)[0]
	for _, step := range []string{"reflog expire", "pack-refs", "update-ref", "repack", "prune -n", "prune -v"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && step != "prune -v" {
				t.Skip("left out by -short: other steps of maintenance; make test-all runs it")
			}
			g, hold, held, release := slowGit(t, real)
			t.Cleanup(release)
			c := newCluster(t, g, design{h: newHistory(t, g, "sha1", 2, 1), extra: storing})
			c.us.manyPacks(c.h.leaves[1] + ":refs/heads/0")
			c.us.pushed(c.h.leaves[0]+":refs/heads/main", c.h.b+":refs/heads/b")
			c.us.pushed(":refs/heads/b")
			if step == "prune -v" {
				c.us.git("hash-object", "-w", "--stdin")
			}
			c.us.age()
			hold(step)
			asked := launch(t, c.us.command("site", "maintain", project))
			held()
			c.us.kill()
			if asked.wait(t) {
				t.Errorf("maintenance succeeded: %s", asked.out)
			}
			c.us.start()
			if step == "prune -v" {
				c.us.refusedInVain("is being pruned", c.h.children[0][0]+":refs/heads/main")
				time.AfterFunc(100*time.Millisecond, release) // the push waits by then, unless the machine is busy
			}
			c.us.pushed(c.h.children[0][0] + ":refs/heads/main")
			release()
			c.eu.follows(project)
			eventually(t, "the end of the orphan", func() error {
				if m := c.us.maintain(); m.Left != "" {
					return fmt.Errorf("%+v", m)
				}
				return nil
			})
			c.us.whole()
			c.us.follows(project)
			if !c.us.has(c.h.b) {
				t.Error("what the branch had is gone")
			}
		})
	}
}

// While a repository is pruned, pushes to it and syncs wait, and those to others go on.
func TestPushesWaitForAPrune(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: a prune that waits for those that share the repository, half a minute; make test-all runs it")
	}
	t.Parallel()
	all, err := gits()
	g, hold, held, release := slowGit(t, must(t, all, err)[0])
	c := newCluster(t, g, design{h: newHistory(t, g, "sha1", 2, 1), projects: []string{project, "team/other"}})
	c.eu.pushed(c.h.b + ":refs/heads/main")
	c.us.sync()
	c.us.git("hash-object", "-w", "--stdin")
	c.us.age()
	hold("prune -v")
	t.Cleanup(release)
	asked := launch(t, c.us.command("site", "maintain", project))
	held()
	c.us.refusedInVain("is being pruned", c.h.c+":refs/heads/side")
	if p := c.h.push(t, c.us.repo("team/other"), c.h.c+":refs/heads/side"); !p.ok {
		t.Errorf("a push to another repository: %+v", p)
	}
	told := c.us.startPush(c.h.c + ":refs/heads/side")
	sync := launch(t, c.us.command(syncArgs(c.eu, c.us, project)...))
	time.Sleep(time.Second) // a sync that does not wait ends within this time, unless the machine is busy
	select {
	case <-sync.ended:
		t.Errorf("a sync did not wait: %s", sync.out)
	default:
	}
	release()
	if !sync.wait(t) {
		t.Errorf("a sync that waited: %s", sync.out)
	}
	if p := told(); !p.ok {
		t.Errorf("a push that waited: %+v", p)
	}
	if !asked.wait(t) {
		t.Errorf("maintenance: %s", asked.out)
	}
	// A push that does not end is waited for, half a minute.
	gate := gateIn(t, c.us.repo(project), "reference-transaction")
	gate.shut("committed")
	stays := c.us.startPush(c.h.leaves[0] + ":refs/heads/stays")
	gate.waits("committed")
	c.us.git("hash-object", "-w", "--stdin")
	c.us.age()
	m := c.us.maintain()
	gate.open("committed")
	if !m.Busy || !strings.Contains(m.Left, "in progress") {
		t.Errorf("with a push under way: %+v", m)
	}
	stays()
	c.us.pushed(c.h.leaves[1]+":refs/heads/main", "--force")
	if m := c.us.prunes(); m.Pruned != 1 {
		t.Errorf("the empty blob: %+v", m)
	}
	if out := c.us.must("site", "maintain"); !strings.Contains(out, project) || !strings.Contains(out, "team/other") {
		t.Errorf("all repositories: %s", out)
	}
	c.us.whole()
}

func TestMaintenanceUnderPushesLosesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: repacking under pushes, some 10 s; make test-all runs it")
	}
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	c := newCluster(t, g, design{h: newHistory(t, g, "sha1", 12, 3), extra: storing})
	// Half of all values are unreachable and old at both sites, and no pack has them any more.
	var values []string
	c.eu.pushed(c.h.a + ":refs/heads/main")
	for i, leaf := range c.h.leaves {
		values = append(append(values, leaf), c.h.children[i]...)
		c.eu.pushed("--force", c.h.children[i][0]+":refs/heads/0", c.h.children[i][1]+":refs/heads/1", c.h.children[i][2]+":refs/heads/2")
	}
	c.us.follows(project)
	c.eu.must("site", "store", "compact", project)
	c.passDays(15)
	for _, s := range []*server{c.eu, c.us} {
		s.prunes() // unpacks the base
		s.age()
		s.git("-c", "core.hooksPath=/dev/null", "repack", "-A", "-d", "-q")
		s.age()
	}
	end := time.Now().Add(12 * time.Second)
	patient := time.Now().Add(patience)
	var unpruned atomic.Int32
	unpruned.Store(2)
	goesOn := func() bool {
		return time.Now().Before(end) || unpruned.Load() > 0 && time.Now().Before(patient)
	}
	var tasks sync.WaitGroup
	for i, s := range []*server{c.eu, c.us} {
		tasks.Go(func() {
			random := rand.New(rand.NewSource(int64(i)))
			for goesOn() {
				ref := fmt.Sprintf("refs/heads/%d", random.Intn(3))
				if random.Intn(4) == 0 {
					s.push(":" + ref)
				} else {
					s.push("--force", values[random.Intn(len(values))]+":"+ref)
				}
			}
		})
		tasks.Go(func() {
			runs, pruned := 0, false
			for ; goesOn(); runs++ {
				out, err := s.run("site", "maintain", "-o", "json", project)
				if err != nil {
					t.Error(err)
				}
				if !pruned && !strings.Contains(out, `"pruned": 0`) {
					pruned = true
					unpruned.Add(-1)
				}
			}
			if !pruned {
				t.Errorf("%d times, site %s pruned nothing", runs, s.name)
			}
		})
	}
	tasks.Wait()
	c.settled()
	c.eu.follows(project)
	c.us.follows(project)
}
