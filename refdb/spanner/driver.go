// Package spanner is a refdb driver on Cloud Spanner, GoogleSQL dialect.
//
// A writing operation is one read-write transaction: one query, which begins it
// and reads the locks and refs concerned by their keys, a decision here, and a
// Commit that carries the mutations. That is two round trips. Spanner locks what
// the query reads until the Commit, the gaps of keys that have no row included,
// so the transactions are serializable; and Spanner makes the order of commits
// that of real time. Tokens, heartbeats and the times of refs are the commit
// timestamp, which for transactions that touch the same row always increases.
//
// Every other operation is a single strong read: it sees all that was
// committed before it began.
package spanner

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// patience bounds a request, whatever its caller's context: the client itself
// would repeat it for an hour. Spanner answers within milliseconds, and lets
// nobody keep a lock that others wait for over ten seconds.
const patience = 30 * time.Second

// A request is what a method asks for.
type request struct {
	tag    string        // in Spanner's statistics
	what   string        // in errors
	within time.Duration // bounds it; 0 is patience
}

// Driver is a [refdb.Driver] on one Cloud Spanner database. It is also a
// [refdb.Diagnoser].
type Driver struct {
	client   *spanner.Client
	name     string // projects/P/instances/I/databases/D
	emulator string // the emulator's address, or "" on the service
	gate     gate

	mu     sync.Mutex
	closed bool
	// work is the requests and background work under way: the client must not
	// be closed under them.
	work    sync.WaitGroup
	closing context.Context
	close   context.CancelFunc
}

var (
	_ refdb.Driver    = (*Driver)(nil)
	_ refdb.Diagnoser = (*Driver)(nil)
)

func newDriver(client *spanner.Client, name, emulator string) *Driver {
	d := &Driver{client: client, name: name, emulator: emulator, gate: newGate(emulator != "")}
	d.closing, d.close = context.WithCancel(context.Background())
	return d
}

// Close ends what is under way, waits for it, and closes the connections.
func (d *Driver) Close() error {
	d.mu.Lock()
	closed := d.closed
	d.closed = true
	d.mu.Unlock()
	d.close()
	d.work.Wait()
	if !closed {
		d.client.Close()
	}
	return nil
}

// start registers work that Close waits for; its end must be told to d.work.
func (d *Driver) start() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return refdb.ErrClosed
	}
	d.work.Add(1)
	return nil
}

// begin starts a method's request. Its context ends with the caller's, with
// Close, or when the server stays away, and its cause tells which.
func (d *Driver) begin(ctx context.Context) (*call, context.Context, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	if err := d.start(); err != nil {
		return nil, nil, err
	}
	c := &call{caller: ctx}
	ctx, c.cancel = context.WithCancelCause(context.WithValue(ctx, callKey{}, c))
	unwatch := context.AfterFunc(d.closing, func() { c.cancel(refdb.ErrClosed) })
	c.end = func() {
		unwatch()
		c.cancel(nil)
		d.work.Done()
	}
	return c, ctx, nil
}

// read runs f, which makes one read-only request, and tells its error in
// refdb's terms.
func (d *Driver) read(ctx context.Context, r request, f func(context.Context) error) error {
	c, ctx, err := d.begin(ctx)
	if err != nil {
		return failed(r.what, err)
	}
	defer c.end()
	ctx, cancel := context.WithTimeoutCause(ctx, cmp.Or(r.within, patience), errNoAnswer)
	defer cancel()
	if err := f(ctx); err != nil {
		return d.judge(ctx, c, r.what, err, false)
	}
	return nil
}

// query runs a strong query of its own and passes its rows to each.
func (d *Driver) query(ctx context.Context, r request, s spanner.Statement, each func(*spanner.Row) error) error {
	return d.read(ctx, r, func(ctx context.Context) error {
		return d.client.Single().QueryWithOptions(ctx, s, spanner.QueryOptions{RequestTag: r.tag}).Do(each)
	})
}

// Now returns the server's time.
func (d *Driver) Now(ctx context.Context) (time.Time, error) {
	var now time.Time
	r := request{tag: "refdb.now", what: "read the time"}
	err := d.query(ctx, r, spanner.NewStatement(`SELECT CURRENT_TIMESTAMP()`), func(row *spanner.Row) error {
		return row.Columns(&now)
	})
	return now.UTC(), err
}

var errNoAnswer = errors.New("no answer in time")
