package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// A carrierKind is a way from one site's repositories to the other's, a contestant of W10.
type carrierKind string

const (
	fetchCarrier carrierKind = "git fetch every second"
	refdbCarrier carrierKind = "refdb"
)

// fetchEvery is how often a site's loop of fetches begins, if the pass before has ended.
const fetchEvery = time.Second

// openSites starts a daemon for each site, and puts all repositories under guard. The database keeps their objects.
func openSites(ctx context.Context, p *places, programs, url string) (sites []*site, err error) {
	for i, name := range siteNames {
		sites = append(sites, &site{name: name, dir: p.siteDir(i), programs: programs, url: url})
	}
	defer func() {
		if err != nil {
			closeSites(sites)
		}
	}()
	for _, s := range sites {
		if err := errors.Join(s.configure(storeAll), s.start(ctx)); err != nil {
			return nil, err
		}
		if err := s.ready(ctx); err != nil {
			return nil, err
		}
		if err := s.enable(ctx, "--all"); err != nil {
			return nil, err
		}
	}
	return sites, nil
}

// closeSites stops the daemons.
func closeSites(sites []*site) {
	for _, s := range sites {
		s.stop()
	}
}

// explainAll adds what the daemons have said to an error.
func explainAll(err error, sites []*site) error {
	for _, s := range sites {
		err = s.explain(err)
	}
	return err
}

// fetchLoops fetches at both sites until ctx ends: in each a loop over all repositories, as cron would run it.
func fetchLoops(ctx context.Context, p *places) error {
	loops, looping := errgroup.WithContext(ctx)
	for to := range siteNames {
		loops.Go(func() error {
			for {
				began := time.Now()
				if err := fetchAll(looping, p, to); err != nil {
					return err
				}
				select {
				case <-looping.Done():
					return nil
				case <-time.After(time.Until(began.Add(fetchEvery))):
				}
			}
		})
	}
	err := loops.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// fetchAll fetches into each repository of a site what the other site's pushers have pushed.
func fetchAll(ctx context.Context, p *places, to int) error {
	from := other(to)
	branches := fmt.Sprintf("+refs/heads/%s/*:refs/heads/%[1]s/*", siteNames[from])
	for n := range p.repos {
		if _, err := git(ctx, "--git-dir", p.repo(to, n), "fetch", "--quiet", "file://"+p.repo(from, n), branches); err != nil {
			return err
		}
	}
	return nil
}
