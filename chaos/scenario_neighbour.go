package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	neighbourDatabase = "neighbour"
	// crashesAtOnce is how often the server crashes in one fault.
	crashesAtOnce = 20
	// rareProjects have no changes but those that the nemesis makes between two crashes.
	rareProjects = 2
	rareChanges  = 3
)

// newNeighbourScenario makes a PostgreSQL server with another database, whose program uses up IDs of transactions that it does not wait
// for. A crash of the server hands many of them out again.
func newNeighbourScenario(ctx context.Context, sc *scenario, stepLibrary string) error {
	server, err := makePostgresScenario(ctx, sc, stepLibrary)
	if err != nil {
		return err
	}
	if err := server.Exec(ctx, "postgres", "CREATE DATABASE "+neighbourDatabase); err != nil {
		return err
	}
	neighbour, end := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for neighbour.Err() == nil {
			_ = server.Connect(neighbour, neighbourDatabase, useIDs(neighbour)) // the server crashes
			sleep(neighbour, 20*time.Millisecond)
		}
	}()
	sc.closers = append(sc.closers, func() error { end(); <-ended; return nil })
	queries := map[string]refdb.ChangeQuery{"all": {}, "the sites' project": {Project: project}}
	for i := range rareProjects {
		queries[rareProject(i)] = refdb.ChangeQuery{Project: rareProject(i)}
	}
	sc.readers = startReaders(ctx, sc.open, sc.seed, queries)
	sc.closers = append(sc.closers, func() error { sc.readers.end(); return nil })
	w := &rareWriter{open: sc.open}
	sc.faults = []fault{
		{"crashes of PostgreSQL beside a busy neighbour, under load", func(ctx context.Context, random *rand.Rand) (string, error) {
			return crashAgainAndAgain(ctx, random, server, sc.readers, w)
		}},
		{"crashes of PostgreSQL beside a busy neighbour, while the sites pause", func(ctx context.Context, random *rand.Rand) (detail string, err error) {
			if err := sc.pauseAll(ctx); err != nil {
				return "", err
			}
			detail, err = crashAgainAndAgain(ctx, random, server, sc.readers, w)
			return detail, errors.Join(err, sc.resumeAll(ctx))
		}},
	}
	return nil
}

func rareProject(i int) string { return fmt.Sprintf("chaos/rare-%d", i) }

// useIDs takes an ID for each of many transactions that change nothing.
func useIDs(ctx context.Context) func(*pgx.Conn) error {
	return func(c *pgx.Conn) error {
		for {
			for range 10 {
				if _, err := c.Exec(ctx, "SELECT pg_current_xact_id()"); err != nil {
					return err
				}
			}
			sleep(ctx, 2*time.Millisecond)
		}
	}
}

// crashAgainAndAgain crashes the server in different ways. In between, the projects without other changes get some, readers
// read them, and then nothing changes for a moment but the neighbour's IDs.
func crashAgainAndAgain(ctx context.Context, random *rand.Rand, server *postgresServer, rs *readers, w *rareWriter) (string, error) {
	again := func(end func() error) func() error {
		return func() error { return errors.Join(end(), server.Start(ctx)) }
	}
	ways := []func() error{
		again(server.Stop), // at once, as pg_ctl stop -m immediate
		again(server.Kill),
		func() error { return server.KillOneProcess(ctx) },
	}
	reused, most := 0, int64(0)
	for n := range crashesAtOnce {
		at, err := w.write(ctx)
		if err != nil {
			return "", err
		}
		// A reader between two starts, or one that has failed, is not waited for.
		_ = await(ctx, "a reader of what was written", func() error {
			if _, read := rs.positions(); read < at {
				return fmt.Errorf("they have read up to %d of %d", read, at)
			}
			return nil
		})
		sleep(ctx, randomDuration(random, 0, 300*time.Millisecond))
		before, err := server.NextID(ctx)
		if err != nil {
			return "", err
		}
		if err := ways[random.IntN(len(ways))](); err != nil {
			return "", err
		}
		after, err := server.NextID(ctx)
		if err != nil {
			return "", err
		}
		if after < before {
			reused, most = reused+1, max(most, before-after)
		}
		if ctx.Err() != nil {
			return fmt.Sprintf("%d crashes", n+1), ctx.Err()
		}
	}
	return fmt.Sprintf("%d crashes; after %d of them the server used IDs again, up to %d", crashesAtOnce, reused, most), nil
}

// A rareWriter changes refs of the rare projects.
type rareWriter struct {
	open   func(context.Context) (*refdb.DB, error)
	values map[string]refdb.Value
	number int
}

// write makes some changes, and returns a position up to which readers read once they have them.
func (w *rareWriter) write(ctx context.Context) (at refdb.Position, err error) {
	db, err := w.open(ctx)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	if w.values == nil {
		w.values = make(map[string]refdb.Value)
	}
	for range rareChanges {
		w.number++
		p, to := rareProject(w.number%rareProjects), refdb.Value(fmt.Sprintf("rare#%d", w.number))
		if err := db.Update(ctx, p, []refdb.Update{{Ref: rareRef, Old: w.values[p], New: to}}); err != nil {
			return 0, err
		}
		w.values[p] = to
		for c, err := range db.History(ctx, p, rareRef) {
			if err != nil {
				return 0, err
			}
			at = c.Position
			break
		}
	}
	return at, nil
}

const rareRef = "refs/heads/rare"
