// Package spanner is a refdb driver on Cloud Spanner, GoogleSQL dialect.
//
// A writing operation is one read-write transaction: a query, which begins the transaction and
// reads the locks and refs concerned by their keys; a decision in this process; and a Commit that
// carries the mutations. That is two round trips. Spanner locks everything that the query reads
// until the Commit, including the gaps of keys without a row, so the transactions are serializable,
// and it orders commits by real time. Tokens, heartbeats and the times of refs are commit
// timestamps, which increase from each transaction that touches a row to the next.
//
// Every other operation is a single strong read, which sees everything that was committed before it
// began.
package spanner

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// requestTimeout bounds a request, whatever its caller's context: the client itself would repeat
// the request for an hour. Spanner answers within milliseconds, and ends a transaction that keeps
// others waiting for its locks for more than ten seconds.
const requestTimeout = 30 * time.Second

// A request describes the request of a method.
type request struct {
	tag     string        // in Spanner's statistics
	what    string        // in errors
	timeout time.Duration // 0 is requestTimeout
}

// Driver is a [driver.Driver] on one Cloud Spanner database. It is also a
// [driver.Diagnoser].
type Driver struct {
	connect       func() (*spanner.Client, error) // does not wait for the server
	name          string                          // projects/P/instances/I/databases/D
	emulator      string                          // the emulator's address, or "" on the service
	emulatorMutex emulatorMutex
	patience      time.Duration // extends each time limit: a test's emulator may take longer
	version       atomic.Uint64 // of the schema, at its last check
	refused       atomic.Bool   // the database was not the admitted one when the admission was last read

	mu     sync.Mutex
	client *client // the present one
	closed bool
	// work counts the in-flight requests and the background work, for which Close waits.
	work    sync.WaitGroup
	closing context.Context
	close   context.CancelFunc
}

var (
	_ driver.Driver        = (*Driver)(nil)
	_ driver.Diagnoser     = (*Driver)(nil)
	_ driver.SchemaChecker = (*Driver)(nil)
)

func newDriver(connect func() (*spanner.Client, error), name, emulator string) (*Driver, error) {
	first, err := connect()
	if err != nil {
		return nil, err
	}
	d := &Driver{connect: connect, client: countUsers(first), name: name, emulator: emulator, emulatorMutex: newEmulatorMutex(emulator != "")}
	d.closing, d.close = context.WithCancel(context.Background())
	return d, nil
}

// Close ends the in-flight requests, waits for them, and closes the connections.
func (d *Driver) Close() error {
	d.mu.Lock()
	closed := d.closed
	d.closed = true
	d.mu.Unlock()
	d.close()
	d.work.Wait()
	if !closed {
		d.client.release()
	}
	return nil
}

// begin starts a method's request. Its context ends with the caller's, with Close, or when the
// server stays unavailable, and the cause says which.
func (d *Driver) begin(ctx context.Context) (*call, context.Context, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	client, err := d.startWork()
	if err != nil {
		return nil, nil, err
	}
	c := &call{client: client, caller: ctx, patience: d.patience}
	ctx, c.cancel = context.WithCancelCause(context.WithValue(ctx, callKey{}, c))
	unwatch := context.AfterFunc(d.closing, func() { c.cancel(driver.ErrClosed) })
	c.end = func() {
		unwatch()
		c.cancel(nil)
		d.finishWork(c.client)
	}
	return c, ctx, nil
}

// read runs f, which makes one read-only request, and translates its error. It may run f a second
// time; f then discards what it has read.
func (d *Driver) read(ctx context.Context, r request, f func(context.Context, *client) error) error {
	c, ctx, err := d.begin(ctx)
	if err != nil {
		return failed(r.what, err)
	}
	defer c.end()
	ctx, cancel := context.WithTimeoutCause(ctx, cmp.Or(r.timeout, requestTimeout)+d.patience, errNoAnswer)
	defer cancel()
	if err = f(ctx, c.client); err != nil {
		if err = d.renewSession(c, err, false); err == nil {
			err = f(ctx, c.client)
		}
	}
	if err != nil {
		return d.translate(ctx, c, r.what, err, false)
	}
	return nil
}

// A part is one of the requests of a read.
type part func(context.Context, *spanner.ReadOnlyTransaction) *spanner.RowIterator

// query returns a part that executes a statement.
func (r request) query(s spanner.Statement) part {
	return func(ctx context.Context, txn *spanner.ReadOnlyTransaction) *spanner.RowIterator {
		return txn.QueryWithOptions(ctx, s, spanner.QueryOptions{RequestTag: r.tag})
	}
}

// readRows makes strong reads, all as of one time, and converts their rows with rowOf.
func readRows[T any](ctx context.Context, d *Driver, r request, rowOf func(*spanner.Row) (T, error), parts ...part) (rows []T, err error) {
	err = d.read(ctx, r, func(ctx context.Context, c *client) error {
		rows = nil
		txn := c.Single()
		if len(parts) > 1 {
			if err := d.emulatorMutex.lock(ctx); err != nil {
				return err
			}
			defer d.emulatorMutex.unlock()
			txn = c.ReadOnlyTransaction()
			defer txn.Close()
		}
		for _, part := range parts {
			if err := part(ctx, txn).Do(collect(&rows, rowOf)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return rows, nil
}

// collect returns a function that converts a row with rowOf and adds it to rows.
func collect[T any](rows *[]T, rowOf func(*spanner.Row) (T, error)) func(*spanner.Row) error {
	return func(r *spanner.Row) error {
		row, err := rowOf(r)
		*rows = append(*rows, row)
		return err
	}
}

// Now returns the server's time.
func (d *Driver) Now(ctx context.Context) (time.Time, error) {
	r := request{tag: "refdb.now", what: "read the time"}
	rows, err := readRows(ctx, d, r, column[time.Time], r.query(spanner.NewStatement(`SELECT CURRENT_TIMESTAMP()`)))
	if err != nil {
		return time.Time{}, err
	}
	return rows[0].UTC(), nil
}

// column returns the value of the only column of a row.
func column[T any](r *spanner.Row) (value T, err error) {
	err = r.Columns(&value)
	return value, err
}

var errNoAnswer = errors.New("no answer in time")
