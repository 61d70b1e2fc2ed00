package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// databaseStep is how far the database's clock is stepped.
const databaseStep = time.Minute

// stepDatabase steps the database's clock and, after a while, back.
func stepDatabase(sc *scenario, clock wallClock, by time.Duration) fault {
	return fault{fmt.Sprintf("database's clock stepped by %+.0f s and back", by.Seconds()), func(ctx context.Context, random *rand.Rand) (string, error) {
		if err := sc.step(ctx, clock, by, by > 0); err != nil {
			return "", err
		}
		length := randomDuration(random, shortest, longest)
		sleep(ctx, length)
		return fmt.Sprintf("for %s", length.Round(time.Millisecond)), sc.step(ctx, clock, 0, by < 0)
	}}
}

// step steps the clock, notes the step if it goes forward, and checks that the database tells the new time.
func (sc *scenario) step(ctx context.Context, clock wallClock, by time.Duration, forward bool) error {
	if err := sc.stepped(clock, by, forward); err != nil {
		return err
	}
	return sc.withDB(ctx, func(db *refdb.DB) error {
		tells, err := db.Now(ctx)
		if off := time.Until(tells) - by; err == nil && off.Abs() > 5*time.Second {
			err = fmt.Errorf("the database's clock was to be off by %s, but by %s it is", by, off+by)
		}
		return err
	})
}

// stepSite steps the clock of one site by hours, then by hours in the other
// direction, then back. The database and the other sites have other clocks.
func stepSite(sc *scenario) fault {
	return fault{"a client's clock stepped by hours", func(ctx context.Context, random *rand.Rand) (string, error) {
		site := siteNames[random.IntN(len(siteNames))]
		clock, s := sc.clock(site), sc.sites[site]
		var steps []time.Duration
		for _, sign := range []time.Duration{1, -1} {
			steps = append(steps, sign*randomDuration(random, time.Hour, 48*time.Hour).Truncate(time.Second))
		}
		for _, by := range append(steps, 0) {
			if err := clock.step(by); err != nil {
				return "", err
			}
			if err := s.waitForClock(ctx, by); err != nil {
				return "", err
			}
			if by != 0 {
				sleep(ctx, randomDuration(random, shortest, staleAfter))
			}
		}
		return fmt.Sprintf("%s by %s, then %s", site, steps[0], steps[1]), nil
	}}
}

// waitForClock waits until the site's clock is off by that much.
func (s *siteProcess) waitForClock(ctx context.Context, by time.Duration) error {
	return await(ctx, "the step of site "+s.name+"'s clock", func() error {
		if off := time.Until(time.Unix(s.report().Wall, 0)) - by; off.Abs() > 5*time.Second {
			return fmt.Errorf("it is off by %s", off+by)
		}
		return nil
	})
}
