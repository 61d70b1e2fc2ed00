// Package postgres is a refdb driver on PostgreSQL 13 or newer, through pgx.
//
// Every operation is one pipelined batch of statements followed by a single
// Sync: one round trip, and one implicit READ COMMITTED transaction that the
// server commits by itself, so that no client, however slow, ever sits inside
// one. The first statement of those that must exclude others takes advisory
// locks on the keys of the refs; the statements after it have snapshots taken
// under them, and see all that went before. One clever statement instead is
// not linearizable: what waits inside a statement decides on old data.
//
// Requests about a single ref go through a batcher. Its statements decide many
// requests at once and wait for nothing: what is locked by somebody else right
// now they leave undecided. That is for the statements that wait, which decide a
// request of any number of refs.
package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Driver is a [refdb.Driver] on one PostgreSQL database, with a pool of connections.
// It is also a [refdb.Notifier] and a [refdb.Diagnoser].
type Driver struct {
	pool   *pgxpool.Pool
	spares spares
	// pooled: something between us and the server hands out its connections,
	// such as PgBouncer.
	pooled bool

	renewal *renewal

	batcher batcher
	lag     *lag
	wakeups wakeups

	mu      sync.Mutex      // guards the start of what runs against the end of closing
	closing context.Context // ends with Close
	close   context.CancelFunc
	ending  context.Context // ends a moment later, and with it all requests under way
	end     context.CancelFunc
	running sync.WaitGroup // what Close waits for
}

var (
	_ refdb.Driver    = (*Driver)(nil)
	_ refdb.Notifier  = (*Driver)(nil)
	_ refdb.Diagnoser = (*Driver)(nil)
)

func newDriver(pool *pgxpool.Pool, spares spares, renewal *renewal, pooled bool) *Driver {
	d := &Driver{
		pool:    pool,
		spares:  spares,
		pooled:  pooled,
		renewal: renewal,
		lag:     newLag(),
		wakeups: wakeups{due: make(chan struct{}, 1)},
	}
	d.batcher.carryOut, d.batcher.disown = d.carryOut, d.disown
	d.batcher.begin, d.batcher.end = d.begin, d.running.Done
	d.closing, d.close = context.WithCancel(context.Background())
	d.ending, d.end = context.WithCancel(context.Background())
	d.running.Go(d.sendWakeups)
	return d
}

// closeGrace is how long Close lets requests under way go on.
const closeGrace = time.Second

// Close ends the connections and the driver's goroutines, and waits for them.
// Requests under way may finish; after a moment they end with an error.
func (d *Driver) Close() error {
	d.mu.Lock()
	d.close()
	d.mu.Unlock()
	grace := time.AfterFunc(closeGrace, d.end)
	d.running.Wait()
	d.pool.Close()
	d.spares.close()
	grace.Stop()
	d.end()
	return nil
}

// begin notes that something runs which Close has to wait for, or reports that
// Close was called.
func (d *Driver) begin() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closing.Err() != nil {
		return false
	}
	d.running.Add(1)
	return true
}

const nowSQL = `SELECT clock_timestamp()`

// Now returns the server's time.
func (d *Driver) Now(ctx context.Context) (time.Time, error) {
	var now time.Time
	err := d.do(ctx, roundTrip{what: "read the time"}.then(nowSQL, func(rows pgx.Rows) error {
		return one(rows, &now)
	}))
	return now.UTC(), err
}
