package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/test/linearizability"
)

// A scenario is a database with sites on it, and the faults that may happen to them.
type scenario struct {
	name   string
	faults []fault
	*cluster
	disturbances

	// open opens the database as it is, with no network in between.
	open func(context.Context) (*refdb.DB, error)
	// lockRows counts the rows of the table of locks, markers too, with a connection of its own.
	lockRows func(context.Context) (int, error)
	// connections counts the sites' connections, as the server sees them. nil: the server can't tell.
	connections func(context.Context) (int, error)
	// packs checks the order of packs. nil: there are none.
	packs func(context.Context) (looked int, found []violation, err error)

	// losesUnconfirmed: a commit that others see before it is confirmed may be lost.
	losesUnconfirmed bool

	recoveries  int // how many were measured
	epoch       int // how often the refs were created: once, and after each loss of all data
	journal     *journal
	steps       *linearizability.Recorder // notes steps of the database's clock
	follower    *linearizability.Follower // of all changes since the refs were created
	endFollower context.CancelFunc
	readers     *readers // nil: the follower is the only one
	closers     []func() error
}

// A fault is done to a scenario and undone again.
type fault struct {
	name string
	// inject returns what exactly was done, once the fault is over.
	inject func(context.Context, *rand.Rand) (detail string, err error)
}

// withDB opens the database for one use.
func (sc *scenario) withDB(ctx context.Context, use func(*refdb.DB) error) error {
	db, err := sc.open(ctx)
	if err != nil {
		return err
	}
	return errors.Join(use(db), db.Close())
}

// openJournals opens the nemesis's own journal and history.
func (sc *scenario) openJournals() (err error) {
	if sc.journal, err = openJournal(filepath.Join(sc.dir, "nemesis.journal")); err != nil {
		return err
	}
	sc.closers = append(sc.closers, sc.journal.close)
	f, err := os.Create(filepath.Join(sc.dir, "nemesis.history"))
	if err != nil {
		return err
	}
	sc.steps = linearizability.NewRecorder(f)
	sc.closers = append(sc.closers, func() error { return errors.Join(sc.steps.Err(), f.Close()) })
	return nil
}

// stepped steps the database's clock and notes the step.
func (sc *scenario) stepped(clock wallClock, by time.Duration, forward bool) error {
	sc.steps.ClockStepped()
	s := span{from: now()}
	err := clock.step(by)
	s.to = now()
	if forward {
		sc.forward = append(sc.forward, s)
	}
	return err
}

// createRefs creates all refs, and follows what becomes of them. The sites only move them.
func (sc *scenario) createRefs(ctx context.Context) error {
	if err := sc.follow(ctx); err != nil {
		return err
	}
	sc.epoch++
	id := fmt.Sprintf("root-%d", sc.epoch)
	var updates []refdb.Update
	var moves []move
	for i, ref := range allRefs() {
		value := fmt.Sprintf("%s#%d", id, i)
		updates = append(updates, refdb.Update{Ref: ref, New: refdb.Value(value)})
		moves = append(moves, move{Ref: ref, New: value})
	}
	return sc.withDB(ctx, func(db *refdb.DB) error {
		sc.journal.write(entry{Kind: asked, T: now(), ID: id, Moves: moves})
		var err error
		// A site may have locked one before it is there.
		if locked := await(ctx, "a moment without locks", func() error {
			if err = db.Update(ctx, project, updates); errors.Is(err, refdb.ErrLocked) {
				return err
			}
			return nil
		}); locked != nil {
			return locked
		}
		if err == nil {
			sc.journal.write(entry{Kind: answered, T: now(), ID: id, Outcome: accepted})
		}
		return err
	})
}

// values returns what all refs hold.
func (sc *scenario) values(ctx context.Context) (map[string]string, error) {
	values := make(map[string]string)
	err := sc.withDB(ctx, func(db *refdb.DB) error {
		rows, err := db.GetAll(ctx, project, allRefs()...)
		for _, r := range rows {
			values[r.Name] = string(r.Value)
		}
		return err
	})
	return values, err
}

// someSites returns at least one of the sites, and now and then all.
func (sc *scenario) someSites(random *rand.Rand) []string {
	sites := slices.Clone(siteNames)
	random.Shuffle(len(sites), func(i, j int) { sites[i], sites[j] = sites[j], sites[i] })
	return sites[:1+random.IntN(len(sites))]
}

func (sc *scenario) close() error {
	sc.cluster.close()
	var err error
	for _, c := range slices.Backward(sc.closers) {
		err = errors.Join(err, c())
	}
	return err
}

// randomDuration returns one between least and most.
func randomDuration(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Int64N(int64(most-least)))
}

// A scenarioKind says how to make a scenario.
type scenarioKind struct {
	name   string
	weight int // its share of the time
	// think is about how long each worker pauses between two operations.
	think time.Duration
	make  func(ctx context.Context, sc *scenario, stepLibrary string) error
}

var scenarioKinds = []scenarioKind{
	{"postgres", 4, 30 * time.Millisecond, newPostgresScenario},
	{"settings", 3, 30 * time.Millisecond, newSettingsScenario},
	{"neighbour", 5, 30 * time.Millisecond, newNeighbourScenario},
	{"failover", 2, 30 * time.Millisecond, newFailoverScenario},
	{"restore", 2, 30 * time.Millisecond, newRestoreScenario},
	{"spanner", 3, 250 * time.Millisecond, newSpannerScenario},
	{"sqlite", 2, 30 * time.Millisecond, newSQLiteScenario},
}

func kindNames() (names []string) {
	for _, k := range scenarioKinds {
		names = append(names, k.name)
	}
	return names
}

// runScenarios runs the selected scenarios, one after the other.
func runScenarios(ctx context.Context, o options, dir string, r *record) error {
	r.emit(event{Event: "build", Detail: "the sites, with a clock that can be stepped"})
	program, err := buildSite(ctx, dir)
	if err != nil {
		return err
	}
	library, err := buildStepLibrary(ctx, dir)
	if err != nil {
		return err
	}
	for i, k := range o.kinds {
		sc := &scenario{
			name:         k.name,
			disturbances: disturbances{frozen: make(map[string][]span)},
			cluster: &cluster{
				program: program, dir: filepath.Join(dir, k.name), pause: k.think, seed: o.seed,
				meter: newMeter(), sites: make(map[string]*siteProcess), starts: make(map[string]int),
			},
		}
		sc.clock = func(site string) wallClock { return wallClock{filepath.Join(sc.dir, site+".clock")} }
		n := &nemesis{scenario: sc, record: r, random: rand.New(rand.NewPCG(o.seed, uint64(i)))}
		err := k.run(ctx, n, library, o)
		if err = errors.Join(err, sc.close()); err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
	}
	return nil
}

// time returns a scenario's share of the time.
func (o options) time(k scenarioKind) time.Duration {
	var weights int
	for _, other := range o.kinds {
		weights += other.weight
	}
	return o.duration * time.Duration(k.weight) / time.Duration(weights)
}

// run makes the scenario, injects faults, and checks everything in the end.
func (k scenarioKind) run(ctx context.Context, n *nemesis, library string, o options) error {
	if err := os.Mkdir(n.dir, 0o755); err != nil {
		return err
	}
	for _, site := range siteNames {
		if _, err := newWallClock(n.clock(site).path); err != nil {
			return err
		}
	}
	if err := n.openJournals(); err != nil {
		return err
	}
	if err := k.make(ctx, n.scenario, library); err != nil {
		return err
	}
	n.faults = slices.DeleteFunc(n.faults, func(f fault) bool { return !o.only.MatchString(f.name) })
	if len(n.faults) == 0 {
		return fmt.Errorf("no fault matches %q", o.only)
	}
	if err := n.createRefs(ctx); err != nil {
		return err
	}
	for _, site := range siteNames {
		if err := n.start(site); err != nil {
			return err
		}
	}
	if err := n.running(ctx); err != nil {
		return err
	}
	begin := now()
	n.emit(event{Database: n.name, Event: "sites work"})
	sleep(ctx, staleAfter) // pools fill, statements are prepared
	if err := n.pauseAndCheck(ctx); err != nil {
		return err
	}
	if err := n.injectFaults(ctx, o.time(k)); err != nil {
		return err
	}
	if err := n.pauseAndCheck(ctx); err != nil {
		return err
	}
	n.done(n.name, n.meter.total(), now().sub(begin))
	return n.finish(ctx)
}

// freezeServer stops all processes of a server for a while. freeze looks for the
// server when it is called: another may have taken its place.
func freezeServer(name string, freeze func() (thaw func(), err error)) fault {
	return fault{name + " frozen", func(ctx context.Context, random *rand.Rand) (string, error) {
		thaw, err := freeze()
		if err != nil {
			return "", err
		}
		length := randomDuration(random, shortest, longest)
		sleep(ctx, length)
		thaw()
		return "for " + length.Round(time.Millisecond).String(), nil
	}}
}
