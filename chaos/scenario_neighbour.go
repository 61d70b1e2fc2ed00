package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	neighbourDatabase = "neighbour"
	// crashesAtOnce is how often the server crashes in one fault. A run of ten minutes has more than a hundred.
	crashesAtOnce = 30
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
	n := startNeighbour(ctx, server)
	sc.closers = append(sc.closers, func() error { n.end(); return nil })
	queries := map[string]refdb.ChangeQuery{"all": {}, "the sites' project": {Project: project}}
	for i := range rareProjects {
		queries[rareProject(i)] = refdb.ChangeQuery{Project: rareProject(i)}
	}
	sc.readers = startReaders(ctx, sc.open, sc.seed, queries)
	sc.closers = append(sc.closers, func() error { sc.readers.end(); return nil })
	b := &crashBed{server: server, neighbour: n, readers: sc.readers, open: sc.open, values: make(map[string]refdb.Value)}
	sc.faults = []fault{
		{"crashes of PostgreSQL beside a busy neighbour, under load", b.crash},
		{"crashes of PostgreSQL beside a busy neighbour, while the sites pause", func(ctx context.Context, random *rand.Rand) (detail string, err error) {
			if err := sc.pauseAll(ctx); err != nil {
				return "", err
			}
			detail, err = b.crash(ctx, random)
			return detail, errors.Join(err, sc.resumeAll(ctx))
		}},
	}
	return nil
}

func rareProject(i int) string { return fmt.Sprintf("chaos/rare-%d", i) }

// A neighbour is a program that works in another database of the server.
type neighbour struct {
	cancel context.CancelFunc
	ended  chan struct{}
	quiet  atomic.Bool // it pauses
}

func startNeighbour(ctx context.Context, server *postgresServer) *neighbour {
	n := &neighbour{ended: make(chan struct{})}
	ctx, n.cancel = context.WithCancel(ctx)
	go func() {
		defer close(n.ended)
		for ; ctx.Err() == nil; sleep(ctx, 20*time.Millisecond) {
			if !n.quiet.Load() {
				_ = server.Connect(ctx, neighbourDatabase, func(c *pgx.Conn) error { return n.useIDs(ctx, c) }) // until the server crashes
			}
		}
	}()
	return n
}

func (n *neighbour) end() {
	n.cancel()
	<-n.ended
}

// useIDs takes an ID for each of many transactions that change nothing.
func (n *neighbour) useIDs(ctx context.Context, c *pgx.Conn) error {
	for !n.quiet.Load() {
		for range 10 {
			if _, err := c.Exec(ctx, "SELECT pg_current_xact_id()"); err != nil {
				return err
			}
		}
		sleep(ctx, 2*time.Millisecond)
	}
	return nil
}

// A crashBed crashes a server beside a busy neighbour.
type crashBed struct {
	server    *postgresServer
	neighbour *neighbour
	readers   *readers
	open      func(context.Context) (*refdb.DB, error)

	values map[string]refdb.Value // of the rare projects' refs
	number int
}

// crash crashes the server again and again, in different ways. In between, the projects without other changes get some, readers
// read them, and then nothing changes there for a moment, while the neighbour uses IDs.
func (b *crashBed) crash(ctx context.Context, random *rand.Rand) (string, error) {
	again := func(end func() error) func(context.Context) error {
		return func(ctx context.Context) error { return errors.Join(end(), b.server.Start(ctx)) }
	}
	ways := []func(context.Context) error{
		again(b.server.Stop), // at once, as pg_ctl stop -m immediate
		again(b.server.Kill),
		b.server.KillOneProcess,
	}
	reused, most := 0, int64(0)
	for range crashesAtOnce {
		at, err := b.write(ctx)
		if err != nil {
			return "", err
		}
		err = await(ctx, "a reader of what was written", func() error {
			if _, read := b.readers.positions(); read < at {
				return fmt.Errorf("they have read up to %d of %d", read, at)
			}
			return nil
		})
		if ctx.Err() != nil {
			return "", err
		} // readers that have failed are found in the end
		sleep(ctx, randomDuration(random, 0, 300*time.Millisecond))
		before, err := b.server.NextID(ctx)
		if err != nil {
			return "", err
		}
		b.neighbour.quiet.Store(true)
		if err := ways[random.IntN(len(ways))](ctx); err != nil {
			return "", err
		}
		after, err := b.server.NextID(ctx)
		if err != nil {
			return "", err
		}
		b.neighbour.quiet.Store(false)
		if after < before {
			reused, most = reused+1, max(most, before-after)
		}
	}
	return fmt.Sprintf("%d crashes; after at least %d of them the server used IDs again, up to %d", crashesAtOnce, reused, most), nil
}

const rareRef = "refs/heads/rare"

// write makes some changes of rare projects, and returns the position of the last.
func (b *crashBed) write(ctx context.Context) (at refdb.Position, err error) {
	db, err := b.open(ctx)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	for range rareChanges {
		b.number++
		p, to := rareProject(b.number%rareProjects), refdb.Value(fmt.Sprintf("rare#%d", b.number))
		if err := db.Update(ctx, p, []refdb.Update{{Ref: rareRef, Old: b.values[p], New: to}}); err != nil {
			return 0, err
		}
		b.values[p] = to
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
