package sqlite

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"modernc.org/sqlite"

	"github.com/globalrefdb/globalrefdb/refdb/sqlite/internal/filesystem"
)

const (
	// createLimit is how long the migration waits for processes that use a file without a record.
	createLimit = time.Second

	// recordPause is the pause between attempts to record a location. Each attempt briefly keeps
	// other processes from opening the file.
	recordPause = 20 * time.Millisecond
)

// A location is the directory and the name under which a file is used. In another location (a hard
// link, a mount of the file alone), the same file has another log, with other locks in it. So the
// file's header records the location, and all users share it:
//   - While the log is on, SQLite holds a shared lock on the inode, whatever path
//     it was opened by, until the last connection closes or the process dies.
//   - The record is replaced under the exclusive lock, when no process uses the file.
//     So a record left by a crash, a move or a restore excludes no process.
//   - A process that opens the file takes the shared lock and keeps it, and then reads the record.
type location struct {
	file string // its path without symbolic links, as SQLite resolves it
	id   int32  // 0 if directories have no identity here
}

// unrecorded is the record of a file that was created before locations were recorded.
const unrecorded = 0

var errElsewhere = errors.New("it is in use under another path, a hard link or a mount of the file alone: " +
	"open it under that path, or mount its directory")

// locationOf returns the location of a file, which need not exist.
func locationOf(path string) (location, error) {
	file, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		var dir string
		dir, err = filepath.EvalSymlinks(filepath.Dir(path))
		file = filepath.Join(dir, filepath.Base(path))
	}
	if err != nil {
		return location{}, err
	}
	dir, err := os.Stat(filepath.Dir(file))
	if err != nil {
		return location{}, err
	}
	device, inode, ok := filesystem.Identity(dir)
	if !ok {
		return location{file: file}, nil
	}
	h := fnv.New32a()
	fmt.Fprintf(h, "%d/%d/%s", device, inode, filepath.Base(file))
	return location{file: file, id: max(1, int32(h.Sum32()&0x7fffffff))}, nil
}

// prepareOpen checks, before the log is opened, that the file is not in use in another location.
func (l location) prepareOpen(ctx context.Context, patience time.Duration) error {
	recorded, err := l.recorded(ctx)
	if err != nil || recorded == l.id || recorded == unrecorded {
		return err
	}
	if err := l.recordWithin(ctx, "rw", patience); !busy(err) {
		return err
	}
	return errElsewhere
}

// prepareCreate is prepareOpen for a file that may be new, or have no record. If other processes
// use a file without a record, it gets none.
func (l location) prepareCreate(ctx context.Context) error {
	if l.id == unrecorded {
		return nil
	}
	_, err := os.Stat(l.file)
	if err == nil {
		var recorded int32
		if recorded, err = l.recorded(ctx); err == nil && recorded != unrecorded {
			return l.prepareOpen(ctx, busyLimit)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := l.recordWithin(ctx, "rwc", createLimit); !busy(err) {
		return err
	}
	return nil
}

// verify checks the record. Its caller holds the shared lock.
func (l location) verify(ctx context.Context) error {
	recorded, err := l.recorded(ctx)
	if err == nil && recorded != l.id && recorded != unrecorded {
		err = errElsewhere
	}
	return err
}

// recordWithin is record, repeated while other processes use the file. After patience, it returns
// the error of a busy file.
func (l location) recordWithin(ctx context.Context, mode string, patience time.Duration) error {
	for start := time.Now(); ; {
		err := l.record(ctx, mode)
		if !busy(err) {
			return err
		}
		if recorded, err := l.recorded(ctx); err == nil && recorded == l.id {
			return nil // recorded by another process that opens the file here
		}
		if time.Since(start) > patience {
			return err
		}
		select {
		case <-time.After(recordPause/2 + rand.N(recordPause)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// record writes the record, under the exclusive lock, and copies the log into the file.
func (l location) record(ctx context.Context, mode string) (err error) {
	c, err := l.connect(url.Values{"mode": {mode}, "_busy_timeout": {"0"}, "_synchronous": {"full"}, "_pragma": {"locking_mode(exclusive)"}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if _, err := c.exec(ctx, fmt.Sprintf("PRAGMA user_version = %d", l.id)); err != nil {
		return err
	}
	return c.query(ctx, func(row) {}, "PRAGMA wal_checkpoint(TRUNCATE)")
}

// recorded returns the record in the file itself, which may be newer than a record in the log.
// "immutable" makes SQLite ignore locks and the log, and writable_schema prevents it from checking
// the file's size, which another process may be changing. The file must not be opened without
// SQLite: closing it would drop the locks that SQLite holds on it in this process.
func (l location) recorded(ctx context.Context) (id int32, err error) {
	if l.id == unrecorded {
		return unrecorded, nil
	}
	c, err := l.connect(url.Values{"mode": {"ro"}, "immutable": {"1"}, "_pragma": {"writable_schema(1)"}, "_error_rc": {"1"}})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	err = c.query(ctx, func(r row) { id = int32(r.int(0)) }, "PRAGMA user_version")
	return id, err
}

func (l location) connect(settings url.Values) (*conn, error) {
	u := url.URL{Scheme: "file", Path: l.file, RawQuery: settings.Encode()}
	connector, err := sqlite.NewConnector(u.String())
	if err != nil {
		return nil, err
	}
	return &conn{connector: connector}, nil
}

// files are the files that a driver has open: the database, its log, and the log's index in shared
// memory. The path of each may lead to another file later: processes started since then have other
// locks.
type files struct {
	paths []string
	seen  []fs.FileInfo
	gone  atomic.Pointer[error] // names the file that was replaced; stays, even if the file is restored
}

// errGone is wrapped by all errors that report a removed or replaced file.
var errGone = errors.New("removed or replaced while in use")

// openFiles returns the files of a database whose log is open.
func openFiles(path string, l location) (*files, error) {
	f := &files{paths: []string{path, l.file + "-wal", l.file + "-shm"}}
	for _, path := range f.paths {
		seen, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		f.seen = append(f.seen, seen)
	}
	return f, nil
}

// verify returns the size of the log, or an error if a path leads to another file. It must not open
// any file: closing it would drop the locks that SQLite holds on it in this process.
func (f *files) verify() (logSize int64, err error) {
	if gone := f.gone.Load(); gone != nil {
		return 0, *gone
	}
	for i, path := range f.paths {
		now, err := os.Stat(path)
		switch {
		case err == nil && os.SameFile(now, f.seen[i]):
			if i == 1 {
				logSize = now.Size()
			}
			continue
		case err == nil:
			err = errors.New("another file has its name")
		case !errors.Is(err, fs.ErrNotExist):
			return 0, err
		}
		if i == 0 {
			err = fmt.Errorf("the file was %w: restart this process: %w", errGone, err)
		} else {
			err = fmt.Errorf("the file's log was %w: earlier locks and writes may be lost: "+
				"stop all processes that use the file, then start them again: %s: %w", errGone, path, err)
		}
		f.gone.CompareAndSwap(nil, &err)
		return 0, *f.gone.Load()
	}
	return logSize, nil
}
