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
	"time"

	"modernc.org/sqlite"
)

const (
	// settleLimit is how long a file without a record is waited for.
	settleLimit = time.Second

	// claimPause is the pause between tries to record a place. Each try keeps
	// others from opening the file for a moment.
	claimPause = 20 * time.Millisecond
)

// A place is the directory and the name under which a file is used. At another (a
// hard link, a mount of the file alone) the same file has another log, with other
// locks in it. So the file's header records the place, and all users share it:
//   - With the log on, SQLite holds a shared lock on the inode, by whatever path
//     it was opened, until the last connection closes or the process dies.
//   - The record is replaced under the exclusive lock, when nobody uses the file:
//     one left by a crash, a move or a restore keeps nobody out.
//   - Whoever opens the file takes the shared lock and keeps it, and then reads the record.
type place struct {
	file string // its path without symbolic links, as SQLite resolves it
	id   int32  // 0 if directories have no identity here
}

// unrecorded is the record of a file from before there were any.
const unrecorded = 0

var errElsewhere = errors.New("it is in use under another path, a hard link or a mount of the file alone: " +
	"open it under that path, or mount its directory")

// placeOf returns the place of a file, which need not exist.
func placeOf(path string) (place, error) {
	file, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		var dir string
		dir, err = filepath.EvalSymlinks(filepath.Dir(path))
		file = filepath.Join(dir, filepath.Base(path))
	}
	if err != nil {
		return place{}, err
	}
	dir, err := os.Stat(filepath.Dir(file))
	if err != nil {
		return place{}, err
	}
	device, inode, ok := identity(dir)
	if !ok {
		return place{file: file}, nil
	}
	h := fnv.New32a()
	fmt.Fprintf(h, "%d/%d/%s", device, inode, filepath.Base(file))
	return place{file: file, id: max(1, int32(h.Sum32()&0x7fffffff))}, nil
}

// settle makes sure, before the log is opened, that the file is not in use at
// another place.
func (p place) settle(ctx context.Context, patience time.Duration) error {
	recorded, err := p.recorded(ctx)
	if err != nil || recorded == p.id || recorded == unrecorded {
		return err
	}
	if err := p.claim(ctx, "rw", patience); !busy(err) {
		return err
	}
	return errElsewhere
}

// found is settle for a file that may be new, or have no record. If others use a
// file without one, it stays so.
func (p place) found(ctx context.Context) error {
	if p.id == unrecorded {
		return nil
	}
	_, err := os.Stat(p.file)
	if err == nil {
		var recorded int32
		if recorded, err = p.recorded(ctx); err == nil && recorded != unrecorded {
			return p.settle(ctx, busyLimit)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := p.claim(ctx, "rwc", settleLimit); !busy(err) {
		return err
	}
	return nil
}

// verify is to be called while the shared lock is held.
func (p place) verify(ctx context.Context) error {
	recorded, err := p.recorded(ctx)
	if err == nil && recorded != p.id && recorded != unrecorded {
		err = errElsewhere
	}
	return err
}

// claim records the place. The error is that of a busy file as long as others use it.
func (p place) claim(ctx context.Context, mode string, patience time.Duration) error {
	for start := time.Now(); ; {
		err := p.record(ctx, mode)
		if !busy(err) {
			return err
		}
		if recorded, err := p.recorded(ctx); err == nil && recorded == p.id {
			return nil // by another process that opens the file here
		}
		if time.Since(start) > patience {
			return err
		}
		select {
		case <-time.After(claimPause/2 + rand.N(claimPause)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// record writes the record, under the exclusive lock, and copies the log into the file.
func (p place) record(ctx context.Context, mode string) (err error) {
	c, err := p.connect(url.Values{"mode": {mode}, "_busy_timeout": {"0"}, "_synchronous": {"full"}, "_pragma": {"locking_mode(exclusive)"}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if _, err := c.exec(ctx, fmt.Sprintf("PRAGMA user_version = %d", p.id)); err != nil {
		return err
	}
	return c.query(ctx, func(row) {}, "PRAGMA wal_checkpoint(TRUNCATE)")
}

// recorded returns the record in the file itself, which may be newer than one in
// the log. "immutable" makes SQLite look at neither locks nor log, and
// writable_schema keeps it from comparing the file's size, which another process may
// be changing. The file must not be opened without SQLite: to close it again would
// drop the locks that SQLite holds on it in this process.
func (p place) recorded(ctx context.Context) (id int32, err error) {
	if p.id == unrecorded {
		return unrecorded, nil
	}
	c, err := p.connect(url.Values{"mode": {"ro"}, "immutable": {"1"}, "_pragma": {"writable_schema(1)"}, "_error_rc": {"1"}})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	err = c.query(ctx, func(r row) { id = int32(r.int(0)) }, "PRAGMA user_version")
	return id, err
}

func (p place) connect(settings url.Values) (*conn, error) {
	u := url.URL{Scheme: "file", Path: p.file, RawQuery: settings.Encode()}
	connector, err := sqlite.NewConnector(u.String())
	if err != nil {
		return nil, err
	}
	return &conn{connector: connector}, nil
}
