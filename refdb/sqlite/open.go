package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb"
)

// Open opens a database file that has the schema. It creates and changes
// nothing, except that it turns the write-ahead log on. The URL is
//
//	sqlite:PATH[?synchronous=full|normal]
//
// where PATH is the file's, absolute or relative to the working directory,
// with "%", "?" and "#" written as %25, %3F and %23; sqlite:///PATH is an absolute
// one too. With synchronous=normal a power failure may undo the last
// transactions, locks among them; full is the default.
//
// The error wraps refdb.ErrSchema if there is no such file, or if its schema is
// missing, older or newer than this program's.
func Open(ctx context.Context, url string) (*Driver, error) {
	a, err := parse(url)
	if err != nil {
		return nil, err
	}
	return open(ctx, a, busyLimit)
}

// open waits that long for other processes.
func open(ctx context.Context, a address, patience time.Duration) (*Driver, error) {
	err := stat(a.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, explain(a.path, "open", fmt.Errorf("%w: there is no such file: run `refdbctl migrate up`", refdb.ErrSchema))
	}
	if err != nil {
		return nil, explain(a.path, "open", err)
	}
	p, err := placeOf(a.path)
	if err == nil {
		err = p.settle(ctx, patience)
	}
	if err != nil {
		return nil, explain(a.path, "open", ended(ctx, err))
	}
	d, err := newDriver(a, p)
	if err != nil {
		return nil, explain(a.path, "open", err)
	}
	d.patience = patience
	if err := d.check(ctx); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// stat returns an error if there is no database file of that name, or can't be one.
func stat(path string) error {
	file, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		dir := filepath.Dir(path)
		if parent, err := os.Stat(dir); err != nil || !parent.IsDir() {
			return fmt.Errorf("there is no directory %s: create it", dir)
		}
		return err
	case err != nil:
		return err
	case file.IsDir():
		return errors.New("it is a directory: name a file")
	case !file.Mode().IsRegular():
		return errors.New("it is not a regular file: name another")
	}
	return nil
}

// check finds out whether the file can be worked with.
func (d *Driver) check(ctx context.Context) error {
	err := d.read(ctx, "open", func(c *conn) error {
		if err := checkSchema(ctx, c); err != nil {
			return err
		}
		return checkEncoding(ctx, c)
	})
	if err != nil {
		return err
	}
	err = d.checkWriter(ctx, d.writer)
	if err == nil {
		err = d.hold(ctx)
	}
	if err != nil {
		return explain(d.path, "open", ended(ctx, err))
	}
	return nil
}

// hold opens the anchor, and finds out what it holds.
func (d *Driver) hold(ctx context.Context) error {
	// With its first read it takes the lock on the file, and opens the log.
	if _, err := pragma(ctx, d.anchor, "schema_version"); err != nil {
		return err
	}
	if err := d.place.verify(ctx); err != nil {
		return err
	}
	files, err := openFiles(d.path, d.place)
	if err == nil {
		d.files = files
	}
	return err
}

func checkSchema(ctx context.Context, c *conn) error {
	var tables int64
	if err := c.query(ctx, func(r row) { tables = r.int(0) },
		`SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'schema_migrations'`); err != nil {
		return err
	}
	var version int64
	var dirty, exists bool
	if tables > 0 {
		if err := c.query(ctx, func(r row) { version, dirty, exists = r.int(0), r.int(1) != 0, true },
			`SELECT CAST(version AS integer), CAST(dirty AS integer) FROM schema_migrations`); err != nil {
			return err
		}
	}
	if err := migrations.Check(migrations.SQLite, uint(max(version, 0)), dirty, exists); err != nil {
		return fmt.Errorf("%w: %w", refdb.ErrSchema, err)
	}
	return nil
}

// checkEncoding refuses texts that aren't stored as UTF-8: they are compared as bytes.
func checkEncoding(ctx context.Context, c *conn) error {
	encoding, err := pragma(ctx, c, "encoding")
	if err == nil && encoding != "UTF-8" {
		err = fmt.Errorf("its encoding is %s: only UTF-8 sorts names by their bytes; create another file", encoding)
	}
	return err
}

// checkWriter turns the write-ahead log on. Without it readers and writers
// wait for each other. Migrations did it when they created the file.
func (d *Driver) checkWriter(ctx context.Context, c *conn) error {
	if err := d.insist(ctx, c, time.Now().Add(d.patience), "PRAGMA journal_mode(wal)"); err != nil {
		return err
	}
	mode, err := pragma(ctx, c, "journal_mode")
	if err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("it can't have a write-ahead log, its journal mode stays %s: move it to a local file system", mode)
	}
	// SQLite opens a file that it can't write to for reading, silently.
	readOnly, err := c.raw.(interface{ IsReadOnly(string) (bool, error) }).IsReadOnly("main")
	if err == nil && readOnly {
		err = errors.New("it can't be written to: " + needsAccess)
	}
	return err
}

// pragma returns the first value of a PRAGMA as text.
func pragma(ctx context.Context, c *conn, name string) (value string, err error) {
	err = c.query(ctx, func(r row) { value = fmt.Sprint(r[0]) }, "PRAGMA "+name)
	return value, err
}

// Migrator returns what brings the file's schema to a version. It creates the
// file if there is none. The URL is that of [Open].
func Migrator(ctx context.Context, url string) (*migrations.Migrator, error) {
	a, err := parse(url)
	if err != nil {
		return nil, err
	}
	if err := stat(a.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, explain(a.path, "migrate", err)
	}
	p, err := placeOf(a.path)
	if err == nil {
		err = p.found(ctx)
	}
	if err != nil {
		return nil, explain(a.path, "migrate", ended(ctx, err))
	}
	connector, err := a.connector("rwc", busyLimit, "_journal_mode=wal")
	if err != nil {
		return nil, explain(a.path, "migrate", err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(1)
	// Turning the log on fails at once if another process does so too.
	err = insist(ctx, nil, time.Now().Add(busyLimit), func() error { return db.PingContext(ctx) })
	if err == nil {
		err = p.verify(ctx)
	}
	if err != nil {
		return nil, errors.Join(explain(a.path, "migrate", ended(ctx, err)), db.Close())
	}
	return migrations.NewSQL(migrations.SQLite, db)
}
