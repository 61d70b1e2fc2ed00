package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	recoveryCheck = "throughput recovers"

	// quietTime is between the recovery from one fault and the next. The rate in it is the one to recover to.
	quietTime = bucketsBefore*bucket + lateReports
	// leastRate is the share of their best rate that the sites must reach before the next fault.
	leastRate = 0.25
	// faultTime is about what a fault takes, with the quiet time before and the recovery after it.
	faultTime = quietTime + 5*time.Second
	// faultsBetweenChecks is how many faults there are between two pauses, in which everything is checked.
	faultsBetweenChecks = 5
)

// A nemesis injects a scenario's faults, one after the other.
type nemesis struct {
	*scenario
	*record
	random *rand.Rand
	best   float64 // rate of the sites in quiet times
	since  instant // when the quiet time began
}

// injectFaults injects faults for that long. Each fault comes once before any comes again.
func (n *nemesis) injectFaults(ctx context.Context, d time.Duration) error {
	end := now().add(d)
	for done := 0; ; {
		for _, i := range n.random.Perm(len(n.faults)) {
			if done > 0 && now().add(faultTime) > end {
				return nil
			}
			if err := n.inject(ctx, n.faults[i]); err != nil {
				return err
			}
			if done++; done%faultsBetweenChecks == 0 {
				if err := n.pauseAndCheck(ctx); err != nil {
					return err
				}
			}
		}
	}
}

// inject injects a fault and measures how long the sites take to recover.
func (n *nemesis) inject(ctx context.Context, f fault) error {
	before, err := n.awaitUsualRate(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		n.checked(n.name, recoveryCheck, n.recoveries, violationOf(err))
		return n.restart(ctx)
	}
	n.emit(event{Database: n.name, Event: "fault begins", Fault: f.name, Before: before})
	begin := now()
	detail, err := f.inject(ctx, n.random)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("inject the fault %q: %w", f.name, err)
	}
	end := now()
	n.emit(event{Database: n.name, Event: "fault ends", Fault: f.name, Detail: detail, Seconds: end.sub(begin).Seconds()})
	took, recovered := recovery(n.meter, before, end, func(t instant) bool {
		sleep(ctx, t.sub(now()))
		return ctx.Err() == nil
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	n.since = end.add(took)
	n.fault(n.name, f.name, took, recovered)
	var found []violation
	if !recovered {
		found = append(found, violation{Text: fmt.Sprintf("%s after the end of %q the sites do less than %.0f %% of the %.0f operations per second before it",
			recoveryLimit, f.name, 100*recoveryShare, before)})
	}
	n.recoveries++
	n.checked(n.name, recoveryCheck, n.recoveries, found)
	if !recovered {
		return n.restart(ctx)
	}
	return nil
}

// awaitUsualRate lets the sites work without faults until they nearly reach
// their usual rate, and returns the rate.
func (n *nemesis) awaitUsualRate(ctx context.Context) (before float64, err error) {
	sleep(ctx, n.since.add(quietTime).sub(now()))
	err = await(ctx, "the usual rate of work", func() error {
		before = n.meter.rateBefore(now())
		n.best = max(n.best, before)
		if before == 0 || before < leastRate*n.best {
			return fmt.Errorf("it is %.0f operations per second, and was up to %.0f", before, n.best)
		}
		return nil
	})
	return before, err
}

// restart kills and starts all sites. Those that have not recovered would say nothing about the next fault.
func (n *nemesis) restart(ctx context.Context) error {
	n.emit(event{Database: n.name, Event: "sites restarted"})
	for _, site := range siteNames {
		n.kill(site)
		if err := n.start(site); err != nil {
			return err
		}
	}
	err := n.running(ctx)
	n.since = now()
	return err
}

// pauseAndCheck pauses the sites, checks everything, and resumes them.
func (n *nemesis) pauseAndCheck(ctx context.Context) error {
	if err := n.pauseAll(ctx); err != nil {
		return err
	}
	if err := n.check(ctx); err != nil {
		return err
	}
	err := n.resumeAll(ctx)
	n.since = now()
	return err
}

// check checks the journals as they are, and what the sites use.
func (n *nemesis) check(ctx context.Context) error {
	h, err := readHistory(n.dir)
	if err != nil {
		return err
	}
	w := &checkInput{history: h, disturbances: n.disturbances}
	if w.final, err = n.values(ctx); err != nil {
		return err
	}
	for _, c := range checks {
		looked, found := c.do(w)
		n.checked(n.name, c.name, looked, found)
	}
	looked, found := checkLeaks(n.usages())
	n.checked(n.name, leakCheck, looked, found)
	if n.packs != nil {
		if looked, found, err = n.packs(ctx); err != nil {
			return err
		}
		n.checked(n.name, packsCheck, looked, found)
	}
	if n.connections == nil {
		return nil
	}
	connections, err := n.connections(ctx)
	if err != nil {
		return err
	}
	n.checked(n.name, connectionCheck, 1, checkConnections(connections, len(n.sites)))
	return nil
}

// finish kills one site, stops the others, and sees that nothing is left of them.
func (n *nemesis) finish(ctx context.Context) error {
	sleep(ctx, staleAfter) // for the victim to hold locks
	victim := siteNames[n.random.IntN(len(siteNames))]
	n.kill(victim)
	for site := range n.sites {
		if err := n.stop(ctx, site); err != nil {
			return err
		}
	}
	if err := n.check(ctx); err != nil {
		return err
	}
	if n.connections != nil {
		err := await(ctx, "the end of the sites' connections", func() error {
			c, err := n.connections(ctx)
			if err == nil && c > 0 {
				err = fmt.Errorf("there are %d", c)
			}
			return err
		})
		n.checked(n.name, connectionCheck, 1, violationOf(err))
	}
	looked, found, undecided, err := checkLinear(n.dir, &n.disturbances)
	if err != nil {
		return err
	}
	for _, u := range undecided {
		n.emit(event{Database: n.name, Event: "undecided whether linearizable", Detail: u})
	}
	n.checked(n.name, linearCheck, looked, found)
	looked, rewound, found, err := n.checkChanges(ctx)
	if err != nil {
		return err
	}
	if rewound {
		n.emit(event{Database: n.name, Event: "the follower was told that the database went back"})
	}
	n.checked(n.name, changesCheck, looked, found)
	if n.readers != nil {
		if looked, found, err = n.readers.check(ctx); err != nil {
			return err
		}
		n.checked(n.name, readersCheck, looked, found)
	}
	return n.purge(ctx)
}

// purges is how many purges it may take to remove everything. A purged lock is kept for its next
// waiter, which may have been killed, too.
const purges = 2

// purge removes what the killed site left behind once that is stale, and checks that nothing is left.
func (n *nemesis) purge(ctx context.Context) error {
	removed := 0
	var rows int
	for range purges {
		sleep(ctx, staleAfter+time.Second)
		gone, err := n.purgeOnce(ctx)
		if err != nil {
			return fmt.Errorf("purge what is left: %w", err)
		}
		removed += gone
		if rows, err = n.lockRows(ctx); err != nil {
			return err
		}
		if rows == 0 {
			break
		}
	}
	var found []violation
	if rows > 0 {
		found = append(found, violation{Text: fmt.Sprintf("%d rows are left in the table of locks after purges that removed %d", rows, removed)})
	}
	n.checked(n.name, "every orphan can be purged", removed, found)
	return nil
}

// purgeOnce purges what is stale and returns how many rows that were.
func (n *nemesis) purgeOnce(ctx context.Context) (removed int, err error) {
	err = n.withDB(ctx, func(db *refdb.DB) error {
		var left []refdb.LockInfo
		for l, err := range db.Locks(ctx, refdb.LockFilter{Stale: true}) {
			if err != nil {
				return err
			}
			left = append(left, l)
		}
		for l, err := range db.Operator().Orphans(ctx) {
			if err != nil {
				return err
			}
			left = append(left, l)
		}
		gone, err := db.Operator().Purge(ctx, left)
		removed = len(gone)
		return err
	})
	return removed, err
}

// usages returns what each start of a site used.
func (n *nemesis) usages() (all []usage) {
	for _, s := range n.ended {
		all = append(all, s.usage())
	}
	for _, s := range n.sites {
		all = append(all, s.usage())
	}
	return all
}

func violationOf(err error) []violation {
	if err == nil {
		return nil
	}
	return []violation{{Text: err.Error()}}
}
