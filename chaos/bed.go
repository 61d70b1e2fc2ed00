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
	recorded "github.com/globalrefdb/globalrefdb/test/history"
)

// A bed is a database with sites on it, and the faults that may befall them.
type bed struct {
	name   string
	faults []fault
	*cluster
	disturbances

	// open opens the database as it is, with no network in between.
	open func(context.Context) (*refdb.DB, error)
	// lockRows counts the rows of the table of locks, markers too, with a connection of its own.
	lockRows func(context.Context) (int, error)
	// connections counts those of the sites, as the server sees them. nil: it doesn't.
	connections func(context.Context) (int, error)

	recoveries int // that were measured
	epoch      int // counts how often the data was lost
	journal    *journal
	steps      *recorded.Recorder // of the database's clock
	closers    []func() error
}

// A fault is done to a bed and undone again.
type fault struct {
	name string
	// inject returns what exactly was done, once the fault is over.
	inject func(context.Context, *rand.Rand) (detail string, err error)
}

// withDB opens the database for one use.
func (b *bed) withDB(ctx context.Context, use func(*refdb.DB) error) error {
	db, err := b.open(ctx)
	if err != nil {
		return err
	}
	return errors.Join(use(db), db.Close())
}

// openJournals opens the nemesis's own.
func (b *bed) openJournals() (err error) {
	if b.journal, err = openJournal(filepath.Join(b.dir, "nemesis.journal")); err != nil {
		return err
	}
	b.closers = append(b.closers, b.journal.close)
	f, err := os.Create(filepath.Join(b.dir, "nemesis.history"))
	if err != nil {
		return err
	}
	b.steps = recorded.NewRecorder(f)
	b.closers = append(b.closers, func() error { return errors.Join(b.steps.Err(), f.Close()) })
	return nil
}

// stepped steps the database's clock, and notes it.
func (b *bed) stepped(clock wallClock, by time.Duration, forward bool) error {
	b.steps.ClockStepped()
	s := span{from: now()}
	err := clock.step(by)
	s.to = now()
	if forward {
		b.forward = append(b.forward, s)
	}
	return err
}

// plant creates all refs, which the sites only move.
func (b *bed) plant(ctx context.Context) error {
	b.epoch++
	id := fmt.Sprintf("root-%d", b.epoch)
	var updates []refdb.Update
	var moves []move
	for i, ref := range allRefs() {
		value := fmt.Sprintf("%s#%d", id, i)
		updates = append(updates, refdb.Update{Ref: ref, New: refdb.Value(value)})
		moves = append(moves, move{Ref: ref, New: value})
	}
	return b.withDB(ctx, func(db *refdb.DB) error {
		b.journal.write(entry{Kind: asked, T: now(), ID: id, Moves: moves})
		err := db.Update(ctx, project, updates)
		if err == nil {
			b.journal.write(entry{Kind: answered, T: now(), ID: id, Outcome: accepted})
		}
		return err
	})
}

// values returns what all refs hold.
func (b *bed) values(ctx context.Context) (map[string]string, error) {
	values := make(map[string]string)
	err := b.withDB(ctx, func(db *refdb.DB) error {
		rows, err := db.GetAll(ctx, project, allRefs()...)
		for _, r := range rows {
			values[r.Name] = string(r.Value)
		}
		return err
	})
	return values, err
}

// some returns at least one of the sites, and now and then all.
func (b *bed) some(random *rand.Rand) []string {
	sites := slices.Clone(siteNames)
	random.Shuffle(len(sites), func(i, j int) { sites[i], sites[j] = sites[j], sites[i] })
	return sites[:1+random.IntN(len(sites))]
}

func (b *bed) close() error {
	b.cluster.close()
	var err error
	for _, c := range slices.Backward(b.closers) {
		err = errors.Join(err, c())
	}
	return err
}

// within returns a random time between two.
func within(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Int64N(int64(most-least)))
}
