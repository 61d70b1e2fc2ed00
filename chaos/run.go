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
)

// A bedKind is a kind of database and what befalls it.
type bedKind struct {
	name   string
	weight int // its part of the time
	// think is the pause that each worker makes between two operations, about.
	think time.Duration
	make  func(ctx context.Context, b *bed, stepLibrary string) error
}

var bedKinds = []bedKind{
	{"postgres", 4, 30 * time.Millisecond, newPostgresBed},
	{"failover", 2, 30 * time.Millisecond, newFailoverBed},
	{"spanner", 3, 250 * time.Millisecond, newSpannerBed},
	{"sqlite", 2, 30 * time.Millisecond, newSQLiteBed},
}

func kindNames() (names []string) {
	for _, k := range bedKinds {
		names = append(names, k.name)
	}
	return names
}

// tormentAll torments one database after the other.
func tormentAll(ctx context.Context, o options, dir string, r *record) error {
	r.tell(event{Event: "build", Detail: "the sites, with a clock that can be stepped"})
	program, err := buildSite(ctx, dir)
	if err != nil {
		return err
	}
	library, err := buildStepLibrary(ctx, dir)
	if err != nil {
		return err
	}
	for i, k := range o.beds {
		b := &bed{
			name:         k.name,
			disturbances: disturbances{frozen: make(map[string][]span)},
			cluster: &cluster{
				program: program, dir: filepath.Join(dir, k.name), pause: k.think, seed: o.seed,
				meter: newMeter(), sites: make(map[string]*siteProcess), starts: make(map[string]int),
			},
		}
		b.clock = func(site string) wallClock { return wallClock{filepath.Join(b.dir, site+".clock")} }
		n := &nemesis{bed: b, record: r, random: rand.New(rand.NewPCG(o.seed, uint64(i)))}
		err := k.torment(ctx, n, library, o)
		if err = errors.Join(err, b.close()); err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
	}
	return nil
}

// time returns a database's part of the time.
func (o options) time(k bedKind) time.Duration {
	var weights int
	for _, other := range o.beds {
		weights += other.weight
	}
	return o.lasts * time.Duration(k.weight) / time.Duration(weights)
}

// torment sets the bed up, and ends it with everything checked.
func (k bedKind) torment(ctx context.Context, n *nemesis, library string, o options) error {
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
	if err := k.make(ctx, n.bed, library); err != nil {
		return err
	}
	n.faults = slices.DeleteFunc(n.faults, func(f fault) bool { return !o.only.MatchString(f.name) })
	if len(n.faults) == 0 {
		return fmt.Errorf("no fault matches %q", o.only)
	}
	if err := n.plant(ctx); err != nil {
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
	n.tell(event{Database: n.name, Event: "sites work"})
	rest(ctx, staleAfter) // pools fill, statements are prepared
	if err := n.look(ctx); err != nil {
		return err
	}
	if err := n.torment(ctx, o.time(k)); err != nil {
		return err
	}
	if err := n.look(ctx); err != nil {
		return err
	}
	n.done(n.name, n.meter.total(), now().sub(begin))
	return n.finish(ctx)
}
