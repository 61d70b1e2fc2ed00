// Package postgres is a refdb driver on PostgreSQL 13 or newer, through pgx.
//
// Every operation is one pipelined batch of statements followed by a single
// Sync: one round trip, and one implicit READ COMMITTED transaction that the
// server commits by itself, so that no client, however slow, ever sits inside
// one. The first statement of those that must exclude others takes advisory
// locks on the keys of the refs; the statements after it have snapshots taken
// under them, and see all that went before. One clever statement instead is
// not linearizable: what waits inside a statement decides on old data.
package postgres

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Driver is a [refdb.Driver] on one PostgreSQL database, with a pool of connections.
// It is also a [refdb.Notifier] and a [refdb.Diagnoser].
type Driver struct {
	pool *pgxpool.Pool
	// pooled: something between us and the server hands out its connections,
	// such as PgBouncer.
	pooled bool
	// prepares: statements are prepared, once on each connection.
	prepares bool
	// channel is the notification channel of this driver alone.
	channel string
	// listening: what is sent to channel arrives.
	listening atomic.Bool

	lane lane
	lag  *lag

	wakeups  wakeups
	inherits inheritances

	mu      sync.Mutex      // guards the start of what runs against the end of closing
	closing context.Context // ends with Close
	close   context.CancelFunc
	running sync.WaitGroup // what Close waits for
}

var (
	_ refdb.Driver    = (*Driver)(nil)
	_ refdb.Notifier  = (*Driver)(nil)
	_ refdb.Diagnoser = (*Driver)(nil)
)

func newDriver(pool *pgxpool.Pool, pooled bool) *Driver {
	var name [channelDigits / 2]byte
	rand.Read(name[:]) // never fails
	d := &Driver{
		pool:     pool,
		pooled:   pooled,
		prepares: pool.Config().ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement,
		channel:  channelPrefix + hex.EncodeToString(name[:]),
		lag:      newLag(),
		wakeups:  wakeups{due: make(chan struct{}, 1)},
	}
	d.lane.share, d.lane.begin, d.lane.end = d.share, d.enter, d.running.Done
	d.closing, d.close = context.WithCancel(context.Background())
	d.running.Go(d.sendWakeups)
	return d
}

// Close ends the connections and the driver's goroutines, and waits for them.
func (d *Driver) Close() error {
	d.mu.Lock()
	d.close()
	d.mu.Unlock()
	d.running.Wait()
	d.pool.Close()
	return nil
}

// enter notes that something runs which Close has to wait for, or reports that
// Close was called.
func (d *Driver) enter() bool {
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
	err := d.do(ctx, trip{what: "read the time"}.then(nowSQL, func(rows pgx.Rows) error {
		return one(rows, &now)
	}))
	return now.UTC(), err
}
