package refdb

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/globalrefdb/globalrefdb/heartbeat"
	"github.com/globalrefdb/globalrefdb/refdb/internal/engine"
)

// A DB is a global ref database: it holds the value of every ref of every
// project, and the locks on them. Its methods may be called concurrently.
type DB struct {
	engine  *engine.Engine
	channel string        // on which the driver wakes this process's waiters
	maxWait time.Duration // 0: no limit

	keeper        *heartbeat.Keeper[*Lock]
	queues        queues
	roundTrip     atomic.Int64 // how long the last refused Acquire took: a time.Duration
	notifications notifications
	feeds         feeds
}

// New returns a DB on d, which it owns from then on: [DB.Close] closes it. On
// an error, which wraps [ErrInvalid] if d is nil or an option can't work, d is left alone.
func New(d Driver, o Options) (*DB, error) {
	if v := reflect.ValueOf(d); d == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("%w driver: nil was given: open one, as with drivers.Open, and check its error", ErrInvalid)
	}
	return newDB(func(c engine.Config) *engine.Engine { return engine.New(d, c) }, o, nil)
}

// Open returns a DB on a database that may be down at first. It calls open until that succeeds, and
// returns after the first attempt or after a second, whichever comes first. Until the driver is
// open, every request fails with [ErrUnavailable] and the reason. The context of open lasts until
// the DB is closed. If an option can't work, the error wraps [ErrInvalid] and open is not called.
func Open(open func(context.Context) (Driver, error), o Options) (*DB, error) {
	return newDB(func(c engine.Config) *engine.Engine { return engine.Open(open, c) }, o, nil)
}

// newDB returns a DB on the engine that start returns. now is a clock for leases; nil is the
// system's clock that counts suspend.
func newDB(start func(engine.Config) *engine.Engine, o Options, now func() heartbeat.Instant) (*DB, error) {
	hostname, err := os.Hostname()
	if err != nil && o.Site == "" {
		return nil, fmt.Errorf("finding a name for this site: %w: set Options.Site", err)
	}
	o, err = o.resolve(hostname)
	if err != nil {
		return nil, err
	}
	if len(o.DigestKey) == 0 {
		o.DigestKey = []byte(rand.Text())
	}
	db := &DB{channel: rand.Text(), maxWait: o.MaxWait, feeds: feeds{turns: newReadTurns(readingAtOnce)}}
	db.keeper, err = heartbeat.New(heartbeat.Config{
		Interval:   o.Heartbeat,
		StaleAfter: o.StaleAfter,
		Now:        now,
	}, db.beat, func(l *Lock, _ error) { db.reportLost(l) })
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	db.engine = start(engine.Config{
		Site: o.Site,
		// The random part makes an owner unique even where two containers share
		// a host name and a process ID.
		Owner:      fmt.Sprintf("%s/%s:%d:%s", o.Site, hostname, os.Getpid(), rand.Text()[:8]),
		By:         o.By,
		StaleAfter: o.StaleAfter,
		Logger:     o.Logger,
		DigestKey:  o.DigestKey,
		Journal:    o.Journal,
		Observe:    o.Observe,
		Changed:    db.feeds.hint,
	})
	return db, nil
}

// Close ends the DB. Locks still held end with [ErrClosed]. They are not
// released, because the work they guard may still be going on; they go stale on
// their own. Close waits for background work, and closes the driver.
func (db *DB) Close() error { return db.engine.Close(db.keeper.Close) }

// Owner returns the name under which this DB holds locks: the site's name, a
// "/", and what makes the process unique.
func (db *DB) Owner() string { return db.engine.Owner }

// Now returns the database's time.
func (db *DB) Now(ctx context.Context) (time.Time, error) { return db.engine.Now(ctx) }
