package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	slowest = "slowest_ms"
	// distanceTimes is how many pushes a measurement times, after some uncounted ones.
	distanceTimes  = 10
	distanceWarmUp = 2
)

// distanceWorkload is W5: a client far from its database.
func distanceWorkload(ctx context.Context, s *servers) (workload, error) {
	if err := s.needPostgres(ctx); err != nil {
		return workload{}, err
	}
	w := workload{
		id:    "W5",
		title: "lock, update, release, far from the database",
		setting: fmt.Sprintf("PostgreSQL %s: %sa proxy in between delays each way by half of the round-trip time, whatever the amount. One worker, %d times. "+
			"Gerrit's way: lock, is it up to date?, compare-and-put, release, one after the other. Statements and trips per operation are counted by the proxy.",
			s.postgres.version, postgresSetting, distanceTimes),
		less:    true,
		metrics: []metric{{p50, "p50 ms", 1}, {slowest, "slowest ms", 1}, {trips, "round trips", 0}, {statements, "statements", 0}},
	}
	for _, roundTrip := range []time.Duration{20 * time.Millisecond, 80 * time.Millisecond} {
		w.cases = append(w.cases, benchCase{
			name: fmt.Sprintf("%d ms", roundTrip.Milliseconds()), baseline: "Gerrit's way, plain SQL",
			contestants: []contestant{
				{"Gerrit's way, plain SQL", func(ctx context.Context) (sample, error) { return s.farFloor(ctx, roundTrip) }},
				{"Gerrit's way, refdb", func(ctx context.Context) (sample, error) { return s.farRefdb(ctx, roundTrip, fourTrips) }},
				{"refdb", func(ctx context.Context) (sample, error) { return s.farRefdb(ctx, roundTrip, twoTrips) }},
			},
		})
	}
	return w, nil
}

// A push moves ref from old to new, under its lock.
type push func(ctx context.Context, db *refdb.DB, ref string, old, new refdb.Value) error

// fourTrips does what Gerrit does through its refdb plugins, in four requests. Its
// compare-and-put does not know the lock.
func fourTrips(ctx context.Context, db *refdb.DB, ref string, old, new refdb.Value) error {
	lock, err := db.TryLock(ctx, project, ref)
	if err != nil {
		return err
	}
	current, err := db.IsUpToDate(ctx, project, ref, old)
	if err == nil && !current {
		err = fmt.Errorf("%s does not hold %s", ref, old)
	}
	if err == nil {
		err = db.Update(ctx, project, []refdb.Update{{Ref: ref, Old: old, New: new}}, refdb.Advisory())
	}
	return errors.Join(err, lock.Release(ctx))
}

// twoTrips uses the value that comes with the lock, and updates with a fence.
func twoTrips(ctx context.Context, db *refdb.DB, ref string, old, new refdb.Value) error {
	lock, err := db.TryLock(ctx, project, ref)
	if err != nil {
		return err
	}
	if value, err := lock.Value(ref); err != nil || value != old {
		return errors.Join(fmt.Errorf("%s does not hold %s", ref, old), err, lock.Release(ctx))
	}
	return lock.UpdateAndRelease(ctx, []refdb.Update{{Ref: ref, Old: old, New: new}})
}

func (s *servers) farRefdb(ctx context.Context, roundTrip time.Duration, do push) (sample, error) {
	const ref = "refs/heads/main"
	return s.postgres.withDatabase(ctx, migratedTemplate, func(url string) (_ sample, err error) {
		if err := seedRefdbAt(ctx, url, []string{ref}); err != nil {
			return nil, err
		}
		l, err := s.postgres.openSlowLink(roundTrip)
		if err != nil {
			return nil, err
		}
		defer l.Close()
		db, err := openRefdb(ctx, s.postgres.through(l, url), nil)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, db.Close()) }()
		return timeFar(ctx, l, func(ctx context.Context, n int) error {
			return do(ctx, db, ref, refdb.Value(objectID(n)), refdb.Value(objectID(n+1)))
		})
	})
}

func (s *servers) farFloor(ctx context.Context, roundTrip time.Duration) (sample, error) {
	const ref = "refs/heads/main"
	return s.postgres.withDatabase(ctx, emptyTemplate, func(url string) (sample, error) {
		near, closeFloor, err := openFloor(ctx, url)
		if err != nil {
			return nil, err
		}
		defer closeFloor()
		if err := near.seed(ctx, []string{ref}, objectID(0)); err != nil {
			return nil, err
		}
		l, err := s.postgres.openSlowLink(roundTrip)
		if err != nil {
			return nil, err
		}
		defer l.Close()
		pool, err := floorPool(ctx, s.postgres.through(l, url))
		if err != nil {
			return nil, err
		}
		defer pool.Close()
		far := &floor{pool}
		return timeFar(ctx, l, func(ctx context.Context, n int) error {
			token, err := far.lock(ctx, ref)
			if err != nil {
				return err
			}
			value, err := far.get(ctx, ref)
			if err == nil && value != objectID(n) {
				err = fmt.Errorf("%s holds %s", ref, value)
			}
			if err == nil {
				err = far.put(ctx, ref, objectID(n), objectID(n+1))
			}
			return errors.Join(err, far.release(ctx, ref, token))
		})
	})
}

// timeFar calls do(0), do(1), …, and counts what goes over the link.
func timeFar(ctx context.Context, l *slowLink, do func(ctx context.Context, n int) error) (sample, error) {
	for n := range distanceWarmUp {
		if err := do(ctx, n); err != nil {
			return nil, err
		}
	}
	sent, waited := l.Statements.Load(), l.RoundTrips.Load()
	var took []time.Duration
	for n := range distanceTimes {
		start := time.Now()
		if err := do(ctx, distanceWarmUp+n); err != nil {
			return nil, err
		}
		took = append(took, time.Since(start))
	}
	return sample{
		p50:        milliseconds(percentile(took, 0.5)),
		slowest:    milliseconds(slices.Max(took)),
		statements: float64(l.Statements.Load()-sent) / distanceTimes,
		trips:      float64(l.RoundTrips.Load()-waited) / distanceTimes,
	}, nil
}
