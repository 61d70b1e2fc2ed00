package main

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/globalrefdb/globalrefdb/bench/internal/places"
	"github.com/globalrefdb/globalrefdb/bench/internal/site"
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
func openSites(ctx context.Context, p *places.Places, programs, url string) (sites []*site.Site, err error) {
	for i, name := range places.SiteNames {
		sites = append(sites, &site.Site{Name: name, Dir: p.SiteDir(i), Programs: programs, URL: url})
	}
	defer func() {
		if err != nil {
			closeSites(sites)
		}
	}()
	for i, s := range sites {
		if err := errors.Join(s.Configure(site.StoreAll), s.Start(ctx)); err != nil {
			return nil, err
		}
		if err := s.Ready(ctx); err != nil {
			return nil, err
		}
		enable := s.Enable
		if i > 0 {
			enable = s.EnableCopies
		}
		if err := enable(ctx, "--all"); err != nil {
			return nil, err
		}
	}
	return sites, nil
}

// closeSites stops the daemons.
func closeSites(sites []*site.Site) {
	for _, s := range sites {
		s.Stop()
	}
}

// explainAll adds what the daemons have said to an error.
func explainAll(err error, sites []*site.Site) error {
	for _, s := range sites {
		err = s.Explain(err)
	}
	return err
}

// fetchLoops fetches at both sites until ctx ends: in each a loop over all repositories, as cron would run it.
func fetchLoops(ctx context.Context, p *places.Places) error {
	loops, looping := errgroup.WithContext(ctx)
	for to := range places.SiteNames {
		loops.Go(func() error {
			for {
				began := time.Now()
				if err := places.FetchAll(looping, p, to); err != nil {
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
