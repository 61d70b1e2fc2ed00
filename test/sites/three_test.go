//go:build linux

package sites

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// chaosTime names the variable that says how long the load lasts, such as 10m.
const chaosTime = "REFDB_TEST_TIME"

// hookLimit is how long a hook waits for the daemon.
const hookLimit = 4 * time.Second

// A trioSize is the size of a run with three sites.
type trioSize struct {
	more              []string // sites beside eu and us
	extra             string   // lines of the sites' configuration
	pushers, projects int
	load, rewind      time.Duration    // how long faults are injected; where the database goes back, too
	plain             bool             // nobody maintains the repositories, or stores bases
	rest              time.Duration    // of a client between two pushes
	largest           int              // bytes of a push
	fault, freeze     [2]time.Duration // how long they last
	pause             [2]time.Duration // between two at a site
	restarts          [2]time.Duration // between two restarts of the database
}

var (
	shortTrio = trioSize{
		more: []string{"ap"}, pushers: 6, projects: 5, load: 15 * time.Second, rewind: 8 * time.Second, rest: 100 * time.Millisecond, largest: 4 << 20,
		fault:    [2]time.Duration{100 * time.Millisecond, time.Second},
		freeze:   [2]time.Duration{500 * time.Millisecond, 2 * time.Second},
		pause:    [2]time.Duration{200 * time.Millisecond, time.Second},
		restarts: [2]time.Duration{4 * time.Second, 8 * time.Second},
	}
	longTrio = trioSize{
		more: []string{"ap"}, pushers: 12, projects: 20, load: 8 * time.Minute, rewind: 2 * time.Minute, largest: 20 << 20,
		fault:    [2]time.Duration{time.Second, 10 * time.Second},
		freeze:   [2]time.Duration{time.Second, 8 * time.Second},
		pause:    [2]time.Duration{200 * time.Millisecond, 3 * time.Second},
		restarts: [2]time.Duration{15 * time.Second, 60 * time.Second},
	}
)

// Clients push to three sites whose database has all objects: branches and tags of 1 byte to 20 MB, moved,
// forced, deleted, and built upon by others. All sites are maintained, and the packs compacted, also at several
// sites at once. Meanwhile clients, gits, hooks, daemons and the database are killed, sites are cut off, and
// disks are lost with the repositories and the site's state: their sites are cloned anew. In the end
//
//   - each acknowledged push is in the history, and the values of each ref form a single line, in the order of real time;
//   - all sites have what the database has, with all objects, and the database alone has all objects, too;
//   - nothing is pending, locked, stuck or behind, and no check finds anything;
//   - no table, lock file or process is left that has no reason to be there.
//
// REFDB_TEST_LONG=1 makes it 20 repositories and eight minutes; REFDB_TEST_TIME is another time.
func TestThreeSitesKeepWhatWasAcknowledgedWhateverIsLost(t *testing.T) {
	size := trioSizeOf(t)
	for _, database := range []string{"postgres", "sqlite"} {
		t.Run(database, func(t *testing.T) {
			t.Parallel()
			x := newTrio(t, size, database)
			x.run(func() { x.strikes(size.load) })
			x.check()
		})
	}
}

func trioSizeOf(t *testing.T) trioSize {
	t.Helper()
	if testing.Short() {
		t.Skip("left out by -short: pushes to three sites under faults, a minute; make test-all runs it")
	}
	size := shortTrio
	if long() {
		size = longTrio
	}
	if given := os.Getenv(chaosTime); given != "" {
		var err error
		if size.load, err = time.ParseDuration(given); err != nil {
			t.Fatalf("%s: %v", chaosTime, err)
		}
		size.rewind = size.load
	}
	return size
}

// seedOf returns the seed that the environment gives, or a new one.
func seedOf(t testing.TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if given := os.Getenv(chaosSeed); given != "" {
		var err error
		if seed, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatalf("%s: %v", chaosSeed, err)
		}
	}
	t.Logf("%s=%d repeats the random choices", chaosSeed, seed)
	return seed
}

// A trio is three sites under load, whose database has all objects.
type trio struct {
	*cluster
	size      trioSize
	seed      uint64
	shared    database
	extra     string          // lines of the sites' configuration
	url       string          // of the database
	postgres  *postgresServer // nil on SQLite
	sites     []*trioSite
	silent    *trioSite     // whose daemon does not run, or stands still; nil if there is none
	ages      bool          // the lock on the name of such a site is made stale
	missing   int           // acknowledged pushes that are not in the history
	recovered time.Duration // when the last refdbctl recover had ended
	projects  []string
	journal   *journal
	locks     leftLocks

	commands sync.RWMutex // held for writing while no command may use the database

	mu       sync.Mutex
	values   map[string][]string // by project: what was pushed lately, whatever became of it
	pushing  map[int]bool        // process groups of clients
	doubtful map[move]bool       // without times: intents of a site whose disk is lost
	bases    int                 // that were stored, or not
	failures map[string]string   // by job: why it failed the last time
}

// newTrio starts the sites on a database of that kind.
func newTrio(t *testing.T, size trioSize, kind string) *trio {
	t.Helper()
	switch kind {
	case "postgres":
		server := newPostgres(t)
		return newTrioOn(t, size, func(testing.TB) database { return server })
	case "sqlite":
		return newTrioOn(t, size, onSQLite)
	}
	t.Fatal(kind)
	return nil
}

// newTrioOn starts the sites on a database: the first has the repositories, the others clone them.
func newTrioOn(t *testing.T, size trioSize, on func(testing.TB) database) *trio {
	t.Helper()
	x := &trio{size: size, seed: seedOf(t), locks: leftLocks{known: make(map[string]bool)},
		values: make(map[string][]string), pushing: make(map[int]bool), doubtful: make(map[move]bool), failures: make(map[string]string)}
	x.start(t, on)
	x.journal = newJournal()
	return x
}

// start starts the sites, with their repositories.
func (x *trio) start(t *testing.T, on func(testing.TB) database) {
	t.Helper()
	all, err := gits()
	g := must(t, all, err)[0].within(hookLimit)
	for i := range x.size.projects {
		x.projects = append(x.projects, fmt.Sprintf("team/app-%d", i))
	}
	d := design{storage: files, extra: storing + x.size.extra, projects: []string{}, h: newHistory(t, g, "sha1", 0, 0), limits: usualLimits}
	d.database = func(t testing.TB) database {
		x.shared = on(t)
		x.postgres, _ = x.shared.(*postgresServer)
		if strings.HasPrefix(x.shared.URL(), "spanner:") {
			g.env = append(g.env, emulatorVariable+"="+os.Getenv(emulatorVariable))
		}
		return x.shared
	}
	links := make(map[string]*slowLink)
	d.url = func(site string, d database) string {
		if x.postgres == nil {
			return d.URL()
		}
		links[site] = newSlowLink(t, d.URL(), 2*time.Millisecond)
		return links[site].url
	}
	x.cluster = newCluster(t, g, d)
	x.extra = d.extra
	x.url = x.shared.URL()
	sites := []*server{x.eu, x.us}
	for _, name := range x.size.more {
		sites = append(sites, x.newServer(name, d.url(name, x.shared), d))
	}
	for i, s := range sites {
		x.sites = append(x.sites, &trioSite{server: s, trio: x, link: links[s.name], number: i})
	}
	for _, p := range x.projects {
		repo := x.eu.repo(p)
		if err := os.MkdirAll(x.eu.root+"/team", 0o755); err != nil {
			t.Fatal(err)
		}
		x.g.initBare(t, repo, files)
	}
	x.eu.must("site", "enable", "--all", "--new")
	for _, s := range x.sites[1:] {
		s.must("site", "clone", "--all")
	}
}

// run lets clients push, and the sites be maintained, until faults returns.
func (x *trio) run(faults func()) {
	ctx, stop := context.WithCancel(x.Context())
	var running sync.WaitGroup
	defer func() { stop(); running.Wait() }() // before the sites are taken down
	for i := range x.size.pushers {
		p := &trioPusher{x: x, number: i, random: x.random(i)}
		running.Go(func() { p.run(ctx) })
	}
	for i, s := range x.sites {
		if !x.size.plain {
			running.Go(func() { s.maintains(ctx, x.random(1000+i)) })
		}
		running.Go(func() { s.listens(ctx) })
	}
	if !x.size.plain {
		running.Go(func() { x.compacts(ctx, x.random(2000)) })
	}
	faults()
	eventually(x, "enough acknowledged pushes", func() error {
		if x.journal.acknowledged() < 10 {
			return errPending
		}
		return nil
	})
}

// strikes injects faults, except those that are left out, for that long.
func (x *trio) strikes(long time.Duration, without ...string) {
	ctx, cancel := context.WithTimeout(x.Context(), long)
	defer cancel()
	n := &trioNemesis{trio: x, struck: make(map[string]int), without: without}
	n.run(ctx)
}

// served returns the sites whose daemons run.
func (x *trio) served() []*trioSite {
	return slices.DeleteFunc(slices.Clone(x.sites), func(s *trioSite) bool { return s == x.silent })
}

func (x *trio) random(stream int) *rand.Rand { return rand.New(rand.NewPCG(x.seed, uint64(stream))) }

// pauseFor reports false if ctx ended first.
func pauseFor(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
