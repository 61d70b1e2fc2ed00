// Package sqlite is the driver.Driver on one SQLite file, for a single machine: any number of its
// processes share the file, and its wall clock is the database's time.
//
// The file must be on a local file system. SQLite's write-ahead log uses memory shared by all
// processes that have the file open, which no network file system offers; on one, locks would not
// exclude each other.
//
// The files with its name and -wal or -shm belong to it. Copying, moving or deleting one of them
// alone, or while the file is in use, damages it. A process whose files were removed or replaced no
// longer writes or reads, and its locks are lost. A file that is in use can't be opened under
// another path, where it would have another log.
//
// Writers take turns: within a process in the order of their arrival, between processes by
// retrying. Writes use group commit: the requests that arrive during one transaction share the next
// one, and so one wait for the disk. A request that finds no other request proceeds at once. A
// process that is stopped, but not killed, inside its write transaction blocks all others until it
// continues or dies: all waiting requests then fail together with driver.ErrUnavailable.
package sqlite

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// readConns is the number of concurrent reads. They don't wait for the writer.
const readConns = 4

// Driver is a driver.Driver on one SQLite file.
type Driver struct {
	path     string
	location location
	files    *files
	server   string // its identity

	groups  groupCommit
	writer  *conn // the only connection that writes, used by the leader
	readers chan *conn

	// anchor is open from Open to Close, whatever happens to the other connections. While it is
	// open, the files and the location can't change. The leader truncates the log through it.
	anchor *conn

	// The leader's state:
	released     time.Time // when it last released the file to other processes
	busySince    time.Time // since when it has hardly paused
	stuck        bool      // the last request that waited for the file ran out of patience
	checkpointed time.Time // when it last tried to truncate the log
	blockedSize  int64     // the size of the log when readers prevented that, or 0

	contended atomic.Bool // the last request for locks was refused

	closed  chan struct{}
	closing sync.Once
	failure error // of closing

	clock    func() time.Time
	patience time.Duration // how long requests wait for other writers
}

var (
	_ driver.Driver        = (*Driver)(nil)
	_ driver.Diagnoser     = (*Driver)(nil)
	_ driver.SchemaChecker = (*Driver)(nil)
	_ driver.Meter         = (*Driver)(nil)
)

func newDriver(a address, l location) (*Driver, error) {
	limit := fmt.Sprintf("_pragma=journal_size_limit(%d)", logKept)
	writing, err := a.connector("rw", 0, limit) // no busy timeout, because retryBusy waits
	if err != nil {
		return nil, err
	}
	reading, err := a.connector("rw", busyLimit, "_query_only=on")
	if err != nil {
		return nil, err
	}
	anchor, err := a.connector("rw", logWait, limit)
	if err != nil {
		return nil, err
	}
	d := &Driver{
		path:     a.path,
		location: l,
		files:    new(files),
		writer:   &conn{connector: writing},
		anchor:   &conn{connector: anchor},
		readers:  make(chan *conn, readConns),
		closed:   make(chan struct{}),
		clock:    time.Now,
		patience: busyLimit,
	}
	for range readConns {
		d.readers <- &conn{connector: reading}
	}
	return d, nil
}

// Now returns this machine's time.
func (d *Driver) Now(ctx context.Context) (time.Time, error) {
	if err := d.checkOpen(ctx); err != nil {
		return time.Time{}, explain(d.path, "read the time", err)
	}
	return timeOf(d.now()), nil
}

// now returns the time in microseconds since the epoch.
func (d *Driver) now() int64 { return d.clock().UnixMicro() }

// Stats implements [driver.Meter]. Its batches are the groups that share a commit. There is no pool
// to wait for.
func (d *Driver) Stats() driver.DriverStats { return driver.DriverStats{Batches: d.groups.stats()} }

// Close waits for in-flight calls and closes the file. Calls that wait for their turn fail with
// driver.ErrClosed, as do later ones.
func (d *Driver) Close() error {
	d.closing.Do(func() {
		close(d.closed)
		var all []*conn
		for range readConns {
			all = append(all, <-d.readers)
		}
		d.groups.wait(&request{ctx: context.Background(), alone: true}, nil)
		if _, err := d.files.verify(); errors.Is(err, errGone) {
			// The last connection to be closed would copy a log into the file that no longer
			// belongs to the file. All connections stay open until the process ends.
			return
		}
		var errs []error
		for _, c := range append(all, d.writer, d.anchor) {
			errs = append(errs, c.close())
		}
		if err := errors.Join(errs...); err != nil {
			d.failure = explain(d.path, "close", err)
		}
	})
	return d.failure
}

// checkOpen returns an error if ctx has ended or the driver is closed.
func (d *Driver) checkOpen(ctx context.Context) error {
	select {
	case <-d.closed:
		return driver.ErrClosed
	default:
		return ctx.Err()
	}
}
