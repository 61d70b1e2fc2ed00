package migrations

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"

	"github.com/golang-migrate/migrate/v4/database"
)

// sqlDriver runs migrations inside the one transaction that its Lock begins and
// its Unlock commits, or rolls back after an error: two processes exclude each
// other, no dirty mark is ever left behind, and a transaction pooler is no
// obstacle. golang-migrate's own drivers commit the mark before the step; its
// SQLite driver has no lock between processes and takes any error for "no
// version", and its PostgreSQL driver's lock belongs to a session.
type sqlDriver struct {
	ctx    context.Context
	db     *sql.DB
	words  words
	conn   *sql.Conn // between Lock and Unlock
	failed bool
}

// lockNotAvailable is the SQLSTATE of a lock_timeout.
const lockNotAvailable = "55P03"

// words is what differs between the dialects.
type words struct {
	begin  string
	lock   string // of the key $1; "" if begin locks
	limit  string // what keeps a step from stalling the beats of those who hold locks
	exists string
	create string
	insert string
}

func dialectWords(d Dialect) (words, bool) {
	switch d {
	case Postgres:
		return words{
			begin:  `BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE`,
			lock:   `SELECT pg_advisory_xact_lock($1)`,
			limit:  `SET LOCAL lock_timeout = '3s'`,
			exists: `SELECT EXISTS (SELECT FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'schema_migrations')`,
			create: `CREATE TABLE IF NOT EXISTS schema_migrations (version bigint NOT NULL PRIMARY KEY, dirty boolean NOT NULL)`,
			insert: `INSERT INTO schema_migrations (version, dirty) VALUES ($1, $2)`,
		}, true
	case SQLite:
		return words{
			begin:  `BEGIN IMMEDIATE`,
			exists: `SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'schema_migrations')`,
			create: `CREATE TABLE IF NOT EXISTS schema_migrations (version uint64, dirty bool);
				CREATE UNIQUE INDEX IF NOT EXISTS version_unique ON schema_migrations (version)`,
			insert: `INSERT INTO schema_migrations (version, dirty) VALUES (?, ?)`,
		}, true
	}
	return words{}, false
}

// Lock begins the transaction, as soon as no other process has one.
func (d *sqlDriver) Lock() error {
	ctx, cancel := context.WithTimeoutCause(d.ctx, lockWait, errors.New("another process has been migrating for too long"))
	defer cancel()
	conn, err := d.begin(ctx)
	for busy(err) {
		if err := pause(ctx, lockPoll); err != nil {
			return err
		}
		conn, err = d.begin(ctx)
	}
	if err == nil {
		err = d.prepare(ctx, conn)
	}
	if err != nil {
		discard(conn)
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	}
	d.conn = conn
	return nil
}

func (d *sqlDriver) begin(ctx context.Context) (*sql.Conn, error) {
	conn, err := d.db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	if _, err := conn.ExecContext(ctx, d.words.begin); err != nil {
		discard(conn)
		return nil, fmt.Errorf("begin: %w", err)
	}
	return conn, nil
}

// prepare takes the lock, if begin didn't, and makes sure that there is a table.
func (d *sqlDriver) prepare(ctx context.Context, conn *sql.Conn) error {
	if d.words.lock != "" {
		var name, schema string
		if err := conn.QueryRowContext(ctx, `SELECT current_database(), current_schema()`).Scan(&name, &schema); err != nil {
			return fmt.Errorf("find the schema: %w", err)
		}
		// The key that golang-migrate's command line uses too.
		key, err := database.GenerateAdvisoryLockId(name, schema, "schema_migrations")
		if err != nil {
			return err
		}
		if _, err := conn.ExecContext(ctx, d.words.lock, key); err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		if _, err := conn.ExecContext(ctx, d.words.limit); err != nil {
			return fmt.Errorf("limit the waiting: %w", err)
		}
	}
	if _, err := conn.ExecContext(ctx, d.words.create); err != nil {
		return fmt.Errorf("create schema_migrations: %w", err)
	}
	return nil
}

// Unlock ends the transaction.
func (d *sqlDriver) Unlock() error {
	conn := d.conn
	d.conn = nil
	end := "COMMIT"
	if d.failed {
		end = "ROLLBACK"
	}
	// What ended d.ctx is no reason to lose a finished step.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.ctx), lockWait)
	defer cancel()
	if _, err := conn.ExecContext(ctx, end); err != nil {
		discard(conn)
		return fmt.Errorf("%s: %w", end, err)
	}
	return conn.Close()
}

func (d *sqlDriver) Run(migration io.Reader) error {
	text, err := io.ReadAll(migration)
	if err != nil {
		return err
	}
	return d.exec(string(text))
}

func (d *sqlDriver) SetVersion(version int, dirty bool) error {
	if err := d.exec(`DELETE FROM schema_migrations`); err != nil {
		return err
	}
	if version < 0 && !dirty {
		return nil
	}
	return d.exec(d.words.insert, version, dirty)
}

// exec isn't ended by d.ctx: a step is finished or fails by itself.
func (d *sqlDriver) exec(query string, args ...any) error {
	if _, err := d.conn.ExecContext(context.WithoutCancel(d.ctx), query, args...); err != nil {
		d.failed = true
		var coded interface{ SQLState() string }
		if errors.As(err, &coded) && coded.SQLState() == lockNotAvailable {
			return fmt.Errorf("another transaction keeps a table: end it, or try again: %w", err)
		}
		return err
	}
	return nil
}

// Version works within and without Lock.
func (d *sqlDriver) Version() (version int, dirty bool, err error) {
	var q interface {
		QueryRowContext(context.Context, string, ...any) *sql.Row
	} = d.db
	if d.conn != nil {
		q = d.conn
	}
	var exists bool
	if err := q.QueryRowContext(d.ctx, d.words.exists).Scan(&exists); err != nil {
		return 0, false, err
	}
	if !exists {
		return database.NilVersion, false, nil
	}
	err = q.QueryRowContext(d.ctx, `SELECT version, dirty FROM schema_migrations`).Scan(&version, &dirty)
	if errors.Is(err, sql.ErrNoRows) {
		return database.NilVersion, false, nil
	}
	return version, dirty, err
}

// The rest of golang-migrate's interface, which a Migrator never calls.

func (d *sqlDriver) Open(string) (database.Driver, error) { return nil, errors.ErrUnsupported }
func (d *sqlDriver) Drop() error                          { return errors.ErrUnsupported }
func (d *sqlDriver) Close() error                         { return nil }

// discard closes the connection itself, with whatever transaction it is in.
func discard(conn *sql.Conn) {
	if conn == nil {
		return
	}
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
}

// busy reports whether err is SQLite's SQLITE_BUSY.
func busy(err error) bool {
	var coded interface{ Code() int }
	return errors.As(err, &coded) && coded.Code()&0xff == 5
}
