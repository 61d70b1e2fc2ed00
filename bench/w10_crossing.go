package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/globalrefdb/globalrefdb/bench/internal/places"
)

const (
	// crossingTimes is how many times -d a measurement takes.
	crossingTimes = 30
	pushP50       = "push_p50_ms"
)

// A crossing measures how long a push takes to the other site.
type crossing struct {
	s        *servers
	programs string

	name   string
	places places.Places
	rate   int // pushes per second
}

// crossingWorkload is W10: from a push at one site to the other site.
func crossingWorkload(ctx context.Context, s *servers) (workload, error) {
	programs, gitVersion, err := s.needSites(ctx)
	if err != nil {
		return workload{}, err
	}
	w := workload{
		id:    "W10",
		title: "from a push at one site to the other site",
		setting: fmt.Sprintf("%s, files backend, core.fsync=all. PostgreSQL %s: %sboth sites and the database on this machine. Each push brings a commit with one file to an existing "+
			"branch of its pusher; sites take turns; pushes begin on schedule, whether or not others have ended. Latency is from the end of `git push` to the value in the branch's file at the other "+
			"site, which is read every ms, and from 100 ms on in steps of 1 %% of the time waited; 0 if it is there before. git fetch: at each site one loop over all repositories, over file://, without hooks; "+
			"a pass begins a second after the last began, or when that has ended. %s for each measurement, one round.",
			gitVersion, s.postgres.version, postgresSetting, crossingTimes*s.d),
		less:    true,
		atMost:  1,
		metrics: []metric{{p50, "p50 ms", 1}, {p99, "p99 ms", 1}, {slowest, "slowest ms", 1}, {pushP50, "push p50 ms", 1}},
	}
	for _, c := range []*crossing{
		{name: "50 repositories, 20 pushes/s", places: places.Places{Sites: 2, Repos: 50, Pushers: 20}, rate: 20},
		{name: "1 repository of 100,000 refs, 2 pushes/s", places: places.Places{Sites: 2, Repos: 1, Pushers: 20, Others: 100_000}, rate: 2},
	} {
		c.s, c.programs = s, programs
		w.cases = append(w.cases, benchCase{
			name: c.name, baseline: string(fetchCarrier),
			contestants: []contestant{
				{string(fetchCarrier), c.measureFetch},
				{string(refdbCarrier), c.measureRefdb},
			},
		})
	}
	return w, nil
}

// duration returns how long a measurement takes, and how long pushes are made before.
func (c *crossing) duration() (counted, before time.Duration) {
	return crossingTimes * c.s.d, crossingTimes * c.s.d / 5
}

func (c *crossing) pushes() []places.Push {
	counted, before := c.duration()
	n := int((counted + before).Seconds() * float64(c.rate))
	return c.places.RandomPushes(max(n, 1), c.rate)
}

func (c *crossing) measureRefdb(ctx context.Context) (sample, error) {
	return places.With(ctx, c.places, c.s.dir, c.pushes(), func(p *places.Places) (sample, error) {
		return c.s.postgres.withDatabase(ctx, migratedTemplate, func(url string) (sample, error) {
			sites, err := openSites(ctx, p, c.programs, url)
			if err != nil {
				return nil, err
			}
			defer closeSites(sites)
			result, err := c.push(ctx, p)
			return result, explainAll(err, sites)
		})
	})
}

func (c *crossing) measureFetch(ctx context.Context) (sample, error) {
	return places.With(ctx, c.places, c.s.dir, c.pushes(), func(p *places.Places) (result sample, err error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		both, running := errgroup.WithContext(ctx)
		both.Go(func() error { return fetchLoops(running, p) })
		both.Go(func() error {
			defer cancel()
			var err error
			result, err = c.push(running, p)
			return err
		})
		return result, both.Wait()
	})
}

// push makes the planned pushes on schedule, and returns how long those that count took to the other site.
func (c *crossing) push(ctx context.Context, p *places.Places) (sample, error) {
	counted, before := c.duration()
	ctx, cancel := context.WithTimeoutCause(ctx, counted+before+stuckAfter, errStuck)
	defer cancel()
	all := make([]crossed, len(p.Plan.Pushes))
	for n := range all {
		all[n].acknowledged = make(chan struct{})
	}
	start := time.Now()
	pushers, running := errgroup.WithContext(ctx)
	for n, w := range p.Plan.Pushes {
		time.Sleep(time.Until(start.Add(w.Due)))
		pushers.Go(func() error {
			if w.After >= 0 {
				// Seconds ago, unless the machine can't keep up.
				select {
				case <-all[w.After].acknowledged:
				case <-running.Done():
					return context.Cause(running)
				}
			}
			began := time.Now()
			if err := p.Push(running, n); err != nil {
				return err
			}
			pushed := time.Now()
			close(all[n].acknowledged)
			seen, err := p.AwaitAtOther(running, n)
			all[n].push, all[n].crossing = pushed.Sub(began), seen.Sub(pushed)
			return err
		})
	}
	if err := pushers.Wait(); err != nil {
		return nil, err
	}
	var pushes, crossings []time.Duration
	for n, w := range p.Plan.Pushes {
		if w.Due >= before {
			pushes, crossings = append(pushes, all[n].push), append(crossings, all[n].crossing)
		}
	}
	return sample{
		p50: milliseconds(percentile(crossings, 0.5)), p99: milliseconds(percentile(crossings, 0.99)), slowest: milliseconds(slices.Max(crossings)),
		pushP50: milliseconds(percentile(pushes, 0.5)),
	}, nil
}

// crossed is what became of a push.
type crossed struct {
	acknowledged   chan struct{} // closed when it was
	push, crossing time.Duration // how long git push took, and then the way to the other site
}
