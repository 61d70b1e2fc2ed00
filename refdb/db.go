package refdb

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/globalrefdb/globalrefdb/heartbeat"
)

// A DB is a global ref database: it holds the value of every ref of every
// project, and the locks on them. Its methods may be called concurrently.
type DB struct {
	driver  *opening
	opts    Options
	owner   string
	channel string // on which the driver wakes this process's waiters

	keeper        *heartbeat.Keeper[*Lock]
	queues        queues
	roundTrip     atomic.Int64 // how long the last refused Acquire took: a time.Duration
	notifications notifications
	feeds         feeds
	journal       Journal
	comparisons   comparisons
	schemaErr     atomic.Pointer[error] // why the schema no longer fits; nil if it does

	// closing ends when Close is called; ctx ends later, when background work must
	// end too.
	closing, ctx  context.Context
	close, cancel context.CancelFunc
	closeOnce     sync.Once
	closeErr      error

	mu         sync.Mutex // no background work starts after Close was called
	background sync.WaitGroup
}

// New returns a DB on d, which it owns from then on: [DB.Close] closes it. On
// an error, which wraps [ErrInvalid] if d is nil or an option can't work, d is left alone.
func New(d Driver, o Options) (*DB, error) {
	if v := reflect.ValueOf(d); d == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("%w driver: nil was given: open one, as with drivers.Open, and check its error", ErrInvalid)
	}
	return newDB(opened(d), o, nil)
}

// Open returns a DB on a database that may be down at first. It calls open until that succeeds, and
// returns after the first attempt or after a second, whichever comes first. Until the driver is
// open, every request fails with [ErrUnavailable] and the reason. The context of open lasts until
// the DB is closed. If an option can't work, the error wraps [ErrInvalid] and open is not called.
func Open(open func(context.Context) (Driver, error), o Options) (*DB, error) {
	return newDB(&opening{open: open}, o, nil)
}

// newDB starts the opening of d, and returns a DB on it. now is a clock for leases; nil is the
// system's clock that counts suspend.
func newDB(d *opening, o Options, now func() heartbeat.Instant) (*DB, error) {
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
	db := &DB{
		driver: d,
		opts:   o,
		// The random part makes an owner unique even where two containers share
		// a host name and a process ID.
		owner:   fmt.Sprintf("%s/%s:%d:%s", o.Site, hostname, os.Getpid(), rand.Text()[:8]),
		channel: rand.Text(),
		journal: o.Journal,
	}
	db.comparisons.turn = make(chan struct{}, 1)
	if db.journal == nil {
		db.journal = &recent{}
	}
	db.ctx, db.cancel = context.WithCancel(context.Background())
	db.closing, db.close = context.WithCancel(db.ctx)
	db.keeper, err = heartbeat.New(heartbeat.Config{
		Interval:   o.Heartbeat,
		StaleAfter: o.StaleAfter,
		Now:        now,
	}, db.beat, func(l *Lock, _ error) { db.reportLost(l) })
	if err != nil {
		db.cancel()
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	d.start(o.Logger)
	if _, ok, err := roleOf[SchemaChecker](d); ok || err != nil {
		db.inBackground(db.watchSchema)
	}
	return db, nil
}

// Close ends the DB. Locks still held end with [ErrClosed]. They are not
// released, because the work they guard may still be going on; they go stale on
// their own. Close waits for background work, and closes the driver.
func (db *DB) Close() error {
	db.closeOnce.Do(func() {
		db.mu.Lock()
		db.close()
		db.mu.Unlock()
		db.keeper.Close()
		// Cleaning up after abandoned requests may take this long.
		grace := time.AfterFunc(gracePeriod, db.cancel)
		db.background.Wait()
		grace.Stop()
		db.cancel()
		db.closeErr = db.driver.close()
	})
	return db.closeErr
}

// inBackground runs f in a goroutine that Close waits for. It returns false if
// Close was called already.
func (db *DB) inBackground(f func()) bool {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closing.Err() != nil {
		return false
	}
	db.background.Go(f)
	return true
}

// inBackgroundOrNow is inBackground, but once Close was called it runs f at
// once: Close may still wait for the caller.
func (db *DB) inBackgroundOrNow(f func()) {
	if !db.inBackground(f) {
		f()
	}
}

// Owner returns the name under which this DB holds locks: the site's name, a
// "/", and what makes the process unique.
func (db *DB) Owner() string { return db.owner }

// Now returns the database's time.
func (db *DB) Now(ctx context.Context) (time.Time, error) {
	return retry(ctx, db, func(d Driver) (time.Time, error) { return d.Now(ctx) })
}

// Diagnose checks the settings of the database that this package's promises
// rest on. It returns nothing for a driver that has none to check.
func (db *DB) Diagnose(ctx context.Context) ([]Diagnosis, error) {
	d, ok, err := roleOf[Diagnoser](db.driver)
	if !ok {
		return nil, err
	}
	return d.Diagnose(ctx)
}

// CheckRights returns an error if the database is known to refuse this user a step of a command of refdbctl. A command of several
// steps asks before its first one.
func (db *DB) CheckRights(ctx context.Context, command string) error {
	c, ok, err := roleOf[RightsChecker](db.driver)
	if ok {
		err = c.CheckRights(ctx, command)
	}
	if err != nil {
		return fmt.Errorf("nothing was done: %w", err)
	}
	return nil
}

// digest stands for a lock, or a set of refs, in logs.
func (db *DB) digest(project string, refs []string) string {
	return Digest(db.opts.DigestKey, project, refs[0])
}

// schemaPoll is how often a DB checks whether the schema still fits.
const schemaPoll = 5 * time.Second

// A SchemaChecker is a Driver that can check the schema again after it opened the database:
// while this program runs others may migrate it, restore a table without its triggers, or disable them.
type SchemaChecker interface {
	// CheckSchema returns an error wrapping ErrSchema if this program doesn't work with
	// the schema that the database has now, or if a table, key or trigger is missing without which writes succeed and are wrong.
	CheckSchema(ctx context.Context) error
}

// watchSchema checks the schema until the DB is closed. While it does not fit nothing new is
// begun: rows that this program writes might lack what a newer schema requires, or be in no history.
func (db *DB) watchSchema() {
	for sleep(db.closing, schemaPoll); db.closing.Err() == nil; sleep(db.closing, schemaPoll) {
		c, ok, err := roleOf[SchemaChecker](db.driver)
		if ok {
			ctx, cancel := db.attemptContext(db.closing)
			err = c.CheckSchema(ctx)
			cancel()
		}
		switch unfit := errors.Is(err, ErrSchema); {
		case unfit:
			if db.schemaErr.Swap(&err) == nil {
				db.opts.Logger.Error("the schema no longer fits: nothing is locked or written until it does", "reason", err.Error())
			}
		case err == nil:
			if db.schemaErr.Swap(nil) != nil {
				db.opts.Logger.Info("the schema fits again")
			}
		}
	}
}

// schemaError returns nil while the schema fits, else an error that wraps ErrSchema.
func (db *DB) schemaError() error {
	if err := db.schemaErr.Load(); err != nil {
		return *err
	}
	return nil
}
