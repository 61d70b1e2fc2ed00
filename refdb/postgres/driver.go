// Package postgres is a refdb driver on PostgreSQL 14 or newer, through pgx.
//
// Every operation is one pipeline of statements with a single Sync at its end: one round trip, and
// one implicit READ COMMITTED transaction. The server itself commits it, so no transaction ever
// waits for a slow client. An operation that must exclude others begins with a statement that takes
// advisory locks on the keys of the refs. The following statements have snapshots taken under these
// locks, and see all earlier commits. A single statement that did everything would not be
// linearizable: a statement that waits decides on data from before its wait.
//
// Requests about a single ref go through a batcher. Its statements decide many requests at once and
// never wait: a request that needs a locked row stays undecided. The driver then sends that request
// by itself, with statements that wait and that serve any number of refs.
//
// The parts: internal/roundtrip manages connections and sends pipelines, internal/groupcommit
// batches requests, internal/waitqueue notifies waiters of their turns, internal/dburl parses the
// URL, internal/schema checks the tables. The files here contain the statements: refs_*, locks_*,
// intents_*, beat*.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/groupcommit"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/waitqueue"
)

// Driver is a [driver.Driver] on one PostgreSQL database, with a pool of connections.
// It is also a [driver.Notifier] and a [driver.Diagnoser].
type Driver struct {
	pools    *roundtrip.Pools
	batcher  groupcommit.Batcher[refName, call]
	lag      *lag
	notifier *waitqueue.Notifier

	mu      sync.Mutex      // makes begin's check of closing and its addition to running atomic
	closing context.Context // ends with Close
	close   context.CancelFunc
	running sync.WaitGroup // requests and goroutines that Close waits for
}

var (
	_ driver.Driver        = (*Driver)(nil)
	_ driver.Notifier      = (*Driver)(nil)
	_ driver.Diagnoser     = (*Driver)(nil)
	_ driver.RightsChecker = (*Driver)(nil)
	_ driver.SchemaChecker = (*Driver)(nil)
	_ driver.AddressReader = (*Driver)(nil)
	_ driver.Meter         = (*Driver)(nil)
)

func newDriver(pools *roundtrip.Pools) *Driver {
	d := &Driver{
		pools:    pools,
		lag:      newLag(),
		notifier: waitqueue.New(pools),
	}
	d.batcher.Send, d.batcher.GiveBack = d.sendBatch, d.giveBack
	d.batcher.Begin, d.batcher.End = d.begin, d.running.Done
	d.batcher.AnswerLimit = roundtrip.AnswerLimit
	d.closing, d.close = context.WithCancel(context.Background())
	d.running.Go(func() { d.notifier.Run(d.closing) })
	return d
}

// closeGrace is how long Close waits for in-flight requests before it interrupts them.
const closeGrace = time.Second

// Close ends the connections and the driver's goroutines, and waits for them. In-flight requests
// may finish within closeGrace; after that they end with an error.
func (d *Driver) Close() error {
	d.mu.Lock()
	d.close()
	d.mu.Unlock()
	grace := time.AfterFunc(closeGrace, d.pools.Interrupt)
	d.running.Wait()
	d.pools.Close()
	grace.Stop()
	return nil
}

// begin reports whether the driver is still open. If so, Close waits for a call of running.Done.
func (d *Driver) begin() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closing.Err() != nil {
		return false
	}
	d.running.Add(1)
	return true
}

// Listen implements [driver.Notifier], on a connection of its own.
func (d *Driver) Listen(ctx context.Context, channel string, started func(), wake func(driver.Wakeup)) error {
	if !d.begin() {
		return fmt.Errorf("listen: %w", driver.ErrClosed)
	}
	defer d.running.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(d.closing, func() { cancel(driver.ErrClosed) })()

	err := d.notifier.Listen(ctx, channel, started, wake)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return fmt.Errorf("listen: %w", err)
	case ctx.Err() != nil:
		return fmt.Errorf("listen: %w", context.Cause(ctx))
	default:
		return roundtrip.Failure(ctx, "listen", roundtrip.Connecting, err)
	}
}

// Stats implements [driver.Meter]. Its batches are those of requests about single refs.
func (d *Driver) Stats() driver.DriverStats {
	return driver.DriverStats{Pools: d.pools.Stats(), Batches: d.batcher.Stats()}
}

const nowSQL = `SELECT clock_timestamp()`

// Now returns the server's time.
func (d *Driver) Now(ctx context.Context) (time.Time, error) {
	var now time.Time
	err := d.pools.Do(ctx, roundtrip.Read("read the time").Query(nowSQL, func(rows pgx.Rows) error {
		return one(rows, &now)
	}))
	return now.UTC(), err
}

// one reads the first row, and returns pgx.ErrNoRows if there is none.
func one(rows pgx.Rows, into ...any) error {
	if !rows.Next() {
		if err := rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	return rows.Scan(into...)
}

// listenConns is the maximum number of connections of a driver beyond those of its pools.
const listenConns = 1
