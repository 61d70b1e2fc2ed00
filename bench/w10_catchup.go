package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/globalrefdb/globalrefdb/bench/internal/places"
)

const (
	missedPushes       = 500
	missedRepositories = 50
	// missedAtOnce is how many of them are made at the same time.
	missedAtOnce = 4

	untilAll = "until_all_ms"
)

// catchUpWorkload is W10's second part: a site that was away.
func catchUpWorkload(ctx context.Context, s *servers) (workload, error) {
	programs, _, err := s.needSites(ctx)
	if err != nil {
		return workload{}, err
	}
	return workload{
		id:    "W10",
		title: "a site that was away catches up",
		setting: fmt.Sprintf("PostgreSQL %s: %sas before. While a site's daemon did not run, %d pushes of a commit each were made at the other site. The time is from the start of the daemon's process until all "+
			"are in the branches' files. git fetch: one pass over all repositories, one after the other.",
			s.postgres.version, postgresSetting, missedPushes),
		metrics: []metric{{perSecond, "pushes/s", 0}, {untilAll, "until all ms", 0}},
		atMost:  1,
		cases: []benchCase{{
			name: fmt.Sprintf("%d pushes to %d repositories", missedPushes, missedRepositories), baseline: "git fetch, one pass",
			contestants: []contestant{
				{"git fetch, one pass", s.catchUpByFetch},
				{string(refdbCarrier), func(ctx context.Context) (sample, error) { return s.catchUpByRefdb(ctx, programs) }},
			},
		}},
	}, nil
}

// missedPlaces returns repositories, and pushes at the first site: one to each repository, which the other site gets at
// once, and then those that it misses.
func missedPlaces() (places.Places, []places.Push) {
	p := places.Places{Sites: 2, Repos: missedRepositories, Pushers: 20}
	pushes := p.RandomPushes(missedRepositories+missedPushes, 1)
	for n := range pushes {
		pushes[n].Site, pushes[n].Branch = 0, places.PusherBranch(0, n%p.Pushers)
	}
	for n := range missedRepositories {
		pushes[n].Repo = n
	}
	return p, pushes
}

func (s *servers) catchUpByRefdb(ctx context.Context, programs string) (sample, error) {
	at, pushes := missedPlaces()
	return places.With(ctx, at, s.dir, pushes, func(p *places.Places) (sample, error) {
		return s.postgres.withDatabase(ctx, migratedTemplate, func(url string) (sample, error) {
			sites, err := openSites(ctx, p, programs, url)
			if err != nil {
				return nil, err
			}
			defer closeSites(sites)
			if err := pushAll(ctx, p, 0, missedRepositories); err != nil {
				return nil, explainAll(err, sites)
			}
			if err := awaitAll(ctx, p, 0, missedRepositories); err != nil {
				return nil, explainAll(err, sites)
			}
			away := sites[places.Other(0)]
			away.Stop()
			if err := pushAll(ctx, p, missedRepositories, len(p.Plan.Pushes)); err != nil {
				return nil, explainAll(err, sites)
			}
			start := time.Now()
			if err := away.Start(ctx); err != nil {
				return nil, err
			}
			err = awaitAll(ctx, p, missedRepositories, len(p.Plan.Pushes))
			return caughtUp(time.Since(start)), explainAll(err, sites)
		})
	})
}

func (s *servers) catchUpByFetch(ctx context.Context) (sample, error) {
	at, pushes := missedPlaces()
	return places.With(ctx, at, s.dir, pushes, func(p *places.Places) (sample, error) {
		if err := pushAll(ctx, p, 0, missedRepositories); err != nil {
			return nil, err
		}
		if err := places.FetchAll(ctx, p, places.Other(0)); err != nil {
			return nil, err
		}
		if err := pushAll(ctx, p, missedRepositories, len(p.Plan.Pushes)); err != nil {
			return nil, err
		}
		start := time.Now()
		err := errors.Join(places.FetchAll(ctx, p, places.Other(0)), awaitAll(ctx, p, missedRepositories, len(p.Plan.Pushes)))
		return caughtUp(time.Since(start)), err
	})
}

func caughtUp(took time.Duration) sample {
	return sample{perSecond: missedPushes / took.Seconds(), untilAll: milliseconds(took)}
}

// pushAll makes planned pushes, some at the same time, those of a branch one after the other.
func pushAll(ctx context.Context, p *places.Places, from, to int) error {
	byRepo := map[int][]int{}
	for n := from; n < to; n++ {
		repo := p.Plan.Pushes[n].Repo
		byRepo[repo] = append(byRepo[repo], n)
	}
	pushers, running := errgroup.WithContext(ctx)
	pushers.SetLimit(missedAtOnce)
	for _, pushes := range byRepo {
		pushers.Go(func() error {
			for _, n := range pushes {
				if err := p.Push(running, n); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return pushers.Wait()
}

// awaitAll waits until the other site has planned pushes.
func awaitAll(ctx context.Context, p *places.Places, from, to int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, stuckAfter, errStuck)
	defer cancel()
	for n := from; n < to; n++ {
		if _, err := p.AwaitAtOther(ctx, n); err != nil {
			return err
		}
	}
	return nil
}
