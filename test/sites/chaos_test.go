//go:build linux

package sites

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// chaosSeed names the variable that repeats the random choices of a run.
const chaosSeed = "REFDB_TEST_SEED"

// A chaosSize is the size of a run.
type chaosSize struct {
	pushers, projects int
	syncs             int           // at a time, at each site
	rest              time.Duration // of a client, or of a sync, before its next one
	kills             int           // of git's processes, in one fault
	warm, load        time.Duration
	warmed            int // acknowledged refs at the end of the warm-up, at least
	hookLimit         time.Duration
	fault, freeze     [2]time.Duration // how long they last
	pause             [2]time.Duration // between two
}

var (
	shortChaos = chaosSize{
		pushers: 8, projects: 4, syncs: 2, kills: 3, warm: 2 * time.Second, warmed: 30, load: 10 * time.Second, hookLimit: 2 * time.Second,
		fault:  [2]time.Duration{100 * time.Millisecond, time.Second},
		freeze: [2]time.Duration{time.Second, 3 * time.Second},
		pause:  [2]time.Duration{50 * time.Millisecond, 200 * time.Millisecond},
	}
	longChaos = chaosSize{
		pushers: 50, projects: 20, syncs: 3, kills: 10, warm: 10 * time.Second, warmed: 500, load: 60 * time.Second, hookLimit: 5 * time.Second,
		fault:  [2]time.Duration{time.Second, 10 * time.Second},
		freeze: [2]time.Duration{time.Second, 8 * time.Second},
		pause:  [2]time.Duration{100 * time.Millisecond, time.Second},
	}
)

// distances are how far the sites are from the database. The delay gives things
// that must happen together the time to come apart.
var distances = map[string]time.Duration{"eu": 2 * time.Millisecond, "us": 10 * time.Millisecond}

// A chaos is two sites under load and faults.
type chaos struct {
	*cluster
	size      chaosSize
	postgres  *postgresServer
	links     map[string]*slowLink // by site
	sites     []*server
	projects  []string
	tree      string // of all commits
	journal   *journal
	leftLocks leftLocks
	meter     *meter
}

// Clients push to a few refs of a few repositories at two sites, single refs and
// several, atomically or not: they create, move, force and delete. The sites catch up
// with one another all the time, pack their refs, and clean up as an operator's
// cron does. Meanwhile one thing after the other fails. In the end
//
//   - nothing is pending, nothing is locked, and nobody had to decide anything;
//   - both sites have what the database has, and all of its objects;
//   - the values that each ref took form a single line, in the order of real time,
//     with every push on it that a client was told is done, and none that was refused;
//   - the daemons take no more memory and files than at the beginning;
//   - and after each fault, pushes were taken again.
//
// REFDB_TEST_LONG=1 makes it 50 clients, 20 repositories, and a minute.
func TestUnderChaosNothingIsLostAndNothingDiverges(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: pushes to two sites under faults, half a minute; make test-all runs it")
	}
	size := shortChaos
	if long() {
		size = longChaos
	}
	seed := seedOf(t)
	all, err := gits()
	c := newChaos(t, must(t, all, err)[0], size)

	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { stop(); running.Wait() }) // before the sites are taken down
	for i := range size.pushers {
		p := &pusher{c: c, number: i, random: rand.New(rand.NewPCG(seed, uint64(i)))}
		running.Go(func() { p.run(ctx) })
	}
	for i, s := range c.sites {
		for k := range size.syncs {
			random := rand.New(rand.NewPCG(seed, uint64(1000+10*i+k)))
			running.Go(func() { c.catchUp(ctx, s, random) })
		}
		running.Go(func() { c.maintain(ctx, s, rand.New(rand.NewPCG(seed, uint64(2000+i)))) })
		running.Go(func() { c.listen(ctx, s) })
	}
	time.Sleep(size.warm)
	c.acknowledges(size.warmed)
	for _, s := range c.sites {
		if err := c.meter.warmed(s); err != nil {
			t.Fatal(err)
		}
	}
	warm, warmFor := c.journal.acknowledged(), c.journal.now()
	n := &nemesis{chaos: c, random: rand.New(rand.NewPCG(seed, 3000)), struck: make(map[string]int)}
	n.run(size.load - size.warm)
	c.acknowledges(10)
	stop()
	running.Wait()
	c.report(n, warm, warmFor)
	c.settle()
	c.check()
	for _, s := range c.sites {
		if n := c.meter.goroutines(t, s); n > goroutineLimit {
			t.Errorf("the daemon of %s has %d goroutines when there is nothing to do: %s", s.name, n, s.daemon.out)
		}
	}
}

func newChaos(t *testing.T, g *git, size chaosSize) *chaos {
	t.Helper()
	c := &chaos{size: size, links: make(map[string]*slowLink), meter: newMeter(), leftLocks: leftLocks{known: make(map[string]bool)}}
	for i := range size.projects {
		c.projects = append(c.projects, fmt.Sprintf("team/app-%d", i))
	}
	c.cluster = newCluster(t, g.within(size.hookLimit), design{
		limits: usualLimits,
		database: func(t testing.TB) database {
			c.postgres = newPostgres(t)
			return c.postgres
		},
		url: func(site string, d database) string {
			c.links[site] = newSlowLink(t, d.URL(), distances[site])
			return c.links[site].url
		},
		projects: c.projects,
	})
	c.sites = []*server{c.eu, c.us}
	for _, s := range c.sites {
		c.meter.follow(s)
	}
	c.tree = c.g.run(t, c.h.dir, "rev-parse", c.h.a+"^{tree}")
	c.journal = newJournal()
	return c
}

// acknowledges waits until so many refs were acknowledged since the beginning.
func (c *chaos) acknowledges(want int) {
	c.Helper()
	eventually(c, fmt.Sprint(want, " acknowledged refs"), func() error {
		if c.journal.acknowledged() < want {
			return errPending
		}
		return nil
	})
}

// catchUp syncs a site from the other one, as its cron would. During a fault it may fail.
func (c *chaos) catchUp(ctx context.Context, s *server, random *rand.Rand) {
	for ctx.Err() == nil {
		_, err := s.run(syncArgs(s.other(), s, c.projects[random.IntN(len(c.projects))])...)
		c.journal.job("sync", err)
		pauseFor(ctx, c.size.rest)
	}
}

// maintain packs refs, collects garbage and cleans up.
func (c *chaos) maintain(ctx context.Context, s *server, random *rand.Rand) {
	for ctx.Err() == nil {
		project := c.projects[random.IntN(len(c.projects))]
		args := [][]string{
			{"pack-refs", "--all"},
			{"-c", "core.hooksPath=/dev/null", "pack-refs", "--all"},
			{"gc", "--quiet"},
		}[random.IntN(3)]
		_, err := c.g.try(s.repo(project), args...)
		c.journal.job(strings.Join(args[max(0, len(args)-2):], " "), err)
		_, err = s.run("site", "check", "--repair")
		c.journal.job("check", err)
		c.leftLocks.forget()
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// listen reads what the daemon asks an operator to do. It must ask for nothing, not
// even for a moment.
func (c *chaos) listen(ctx context.Context, s *server) {
	reported := make(map[string]bool)
	for ctx.Err() == nil {
		if status, err := s.status(); err == nil {
			for _, stuck := range status.Stuck {
				if text := fmt.Sprintf("%s of %s: %s", stuck.Ref, stuck.Project, stuck.Reason); !reported[text] {
					reported[text] = true
					c.Errorf("%s asks for an operator at %s: %s\nmoves:\n\t%s", s.name, c.journal.now(), text, c.journal.of(target{stuck.Project, stuck.Ref}))
				}
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (c *chaos) report(n *nemesis, warm int, warmFor time.Duration) {
	j := c.journal
	seconds := (j.now() - warmFor).Seconds()
	c.Logf("%d pushes; refs: %v; %.1f acknowledged per second in the warm-up, %.1f since; the slowest push took %s",
		j.pushes, j.count, float64(warm)/warmFor.Seconds(), float64(j.count[acknowledged]-warm)/seconds, j.slowest.Round(time.Millisecond))
	c.Logf("refusals: %v", j.why)
	c.Logf("%d lock files were in the way, %d are now", c.leftLocks.seen, c.leftLocks.forget())
	c.Logf("besides: %v", j.jobs)
	c.Logf("faults: %v; longest recovery %s", n.struck, slices.Max(n.recoveries).Round(time.Millisecond))
}

// settle cleans up and syncs until there is nothing to do.
func (c *chaos) settle() {
	c.Helper()
	began := time.Now()
	for {
		err := c.cleanUp()
		if err == nil {
			err = c.syncAll()
		}
		if err == nil {
			err = c.clean()
		}
		if err == nil {
			c.Logf("settled within %s", time.Since(began).Round(time.Millisecond))
			return
		}
		if time.Since(began) > patience {
			c.Errorf("it does not settle within %s: %v", patience, err)
			return
		}
		time.Sleep(500 * time.Millisecond)
	}
}

// cleanUp removes the lock files that killed processes of git have left, once they
// are old enough. Until then others wait for them in vain.
func (c *chaos) cleanUp() error {
	var left []error
	for _, s := range c.sites {
		_, _ = s.run("site", "check", "--repair") // its findings are checked later
		err := filepath.WalkDir(s.root, func(path string, _ fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".lock") {
				err = fmt.Errorf("%s is left", path)
			}
			return err
		})
		left = append(left, err)
	}
	return errors.Join(left...)
}

func (c *chaos) syncAll() error {
	var failures []error
	for _, s := range c.sites {
		for _, project := range c.projects {
			_, err := s.run(syncArgs(s.other(), s, project)...)
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

// clean returns what checks find.
func (c *chaos) clean() error {
	var findings []error
	for _, s := range c.sites {
		_, err := s.run("site", "check")
		findings = append(findings, err)
	}
	return errors.Join(findings...)
}

func (c *chaos) check() {
	c.Helper()
	c.settled()
	for i, err := range c.db.Intents().All(c.Context(), driver.IntentFilter{Decided: true}) {
		// What daemons resolve by themselves stays for a while.
		if err != nil || i.Decision != driver.Revoked {
			c.Errorf("somebody had to decide: %+v, %v", i, err)
		}
	}
	for l, err := range c.db.Locks(c.Context(), refdb.LockFilter{}) {
		if err != nil || l.Project != "refdb/sites" {
			c.Errorf("a lock is left: %+v, %v", l, err)
		}
	}
	for _, s := range c.sites {
		status, err := s.status()
		if err != nil || !status.OK() || len(status.Pushes) > 0 || status.Counters.Alarms > 0 {
			c.Errorf("%s: %+v, %v", s.name, status, err)
		}
		report, err := c.meter.flat(s)
		if err != nil {
			c.Error(err)
		}
		c.Log(report)
	}
	for _, project := range c.projects {
		global := c.global(project)
		for _, s := range c.sites {
			sameRefs(c, s.name+" in "+project, s.refs(project), global)
			if out, err := c.g.try(s.repo(project), "fsck", "--connectivity-only", "--no-dangling", "--no-progress"); err != nil || out != "" {
				c.Errorf("%s in %s: %v: %s", s.name, project, err, out)
			}
		}
		for _, ref := range chaosRefs {
			at := target{project, ref}
			if err := findLine(c.journal.moves[at], global[ref]); err != nil {
				c.Errorf("%s in %s: %v\nall of its moves:\n\t%s", ref, project, err, c.journal.of(at))
			}
		}
	}
	if c.journal.acknowledged() < 10 {
		c.Error("too few pushes were acknowledged to prove anything")
	}
}
