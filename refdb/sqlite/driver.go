// Package sqlite is the refdb.Driver on one SQLite file, for a single machine:
// any number of its processes share the file, and its wall clock is the
// database's time.
//
// The file must be on a local file system. SQLite's write-ahead log is a piece of
// memory shared by all processes that have the file open, which no network
// file system offers; on one, locks would not exclude each other. The files that
// bear its name and -wal or -shm belong to it: to copy, move or delete
// one without the others, or while the file is in use, damages it.
//
// Writers take turns: within a process in the order in which they came, between
// processes by trying again and again. Writes use group commit: the requests that
// come in during one transaction share the next, and so one wait for the disk. A
// request that finds no other goes on at once. A process that is stopped, not killed,
// inside its write transaction stops all others until it continues or dies.
package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// readConns is how many reads can run at once. They don't wait for the writer.
const readConns = 4

// Driver is a refdb.Driver on one SQLite file.
type Driver struct {
	path string
	file fs.FileInfo // of the file that is open; path may name another one day

	turns   turns
	writer  *conn // the one connection that writes, used by the leader
	readers chan *conn

	busySince time.Time // since when the writer has hardly paused; used by the leader
	left      time.Time // when the writer last left the file to others; used by the leader

	contended atomic.Bool // the last claim was refused because of locks

	closed  chan struct{}
	closing sync.Once
	failure error // of closing

	clock    func() time.Time
	patience time.Duration // with other writers
}

var (
	_ refdb.Driver    = (*Driver)(nil)
	_ refdb.Diagnoser = (*Driver)(nil)
)

func newDriver(a address, file fs.FileInfo) (*Driver, error) {
	writing, err := a.connector("rw", 0) // Driver.insist waits
	if err != nil {
		return nil, err
	}
	reading, err := a.connector("rw", busyLimit, "_query_only=on")
	if err != nil {
		return nil, err
	}
	d := &Driver{
		path:     a.path,
		file:     file,
		writer:   &conn{connector: writing},
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
	if err := d.open(ctx); err != nil {
		return time.Time{}, explain(d.path, "read the time", err)
	}
	return timeOf(d.now()), nil
}

// now returns the time in microseconds since the epoch.
func (d *Driver) now() int64 { return d.clock().UnixMicro() }

// Close waits for the calls under way and closes the file. Calls that wait for
// their turn fail with refdb.ErrClosed, as later ones do.
func (d *Driver) Close() error {
	d.closing.Do(func() {
		close(d.closed)
		var errs []error
		for range readConns {
			errs = append(errs, (<-d.readers).close())
		}
		// The connection that is closed last copies the log into the file: it has
		// to be the one that may write.
		d.turns.take(&request{ctx: context.Background(), alone: true}, nil)
		errs = append(errs, d.writer.close())
		if err := errors.Join(errs...); err != nil {
			d.failure = explain(d.path, "close", err)
		}
	})
	return d.failure
}

// open returns an error if ctx or the driver has ended.
func (d *Driver) open(ctx context.Context) error {
	select {
	case <-d.closed:
		return refdb.ErrClosed
	default:
		return ctx.Err()
	}
}

// take borrows a connection that reads, first come, first served.
func (d *Driver) take(ctx context.Context) (*conn, error) {
	if err := d.open(ctx); err != nil {
		return nil, err
	}
	select {
	case c := <-d.readers:
		return c, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-d.closed:
		return nil, refdb.ErrClosed
	}
}

// standing returns an error if the path no longer leads to the file that is
// open: processes started since use another one, with other locks in it. It
// must not open the file: to close it again would drop the locks that SQLite
// holds on it in this process.
func (d *Driver) standing() error {
	file, err := os.Stat(d.path)
	if err == nil && !os.SameFile(file, d.file) {
		err = errors.New("another file has its name")
	}
	if err != nil {
		return fmt.Errorf("the file was removed or replaced while in use: restart this process: %w", err)
	}
	return nil
}
