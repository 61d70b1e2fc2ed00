package migrations

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/golang-migrate/migrate/v4/database"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// sqlDriver runs migrations in one transaction, which Lock begins and Unlock commits,
// or rolls back after an error. So two processes exclude each other, no dirty mark is
// left behind, and a transaction pooler does not matter. golang-migrate's own drivers
// commit the mark before the step; its SQLite driver has no lock between processes
// and takes any error for "no version", and its PostgreSQL driver's lock belongs to a
// session.
type sqlDriver struct {
	ctx        context.Context
	db         *sql.DB
	statements statements
	settle     func(context.Context, *sql.Conn) error // nil, or what each transaction begins with
	lockWait   time.Duration
	conn       *sql.Conn // between Lock and Unlock
	table      string    // of versions, between Lock and Unlock
	hadTable   bool      // Lock found that table, and did not make it
	failed     bool
}

// lockNotAvailable is the SQLSTATE of a lock_timeout.
const lockNotAvailable = "55P03"

// statements are the SQL that differs between the dialects.
type statements struct {
	dialect       Dialect
	begin         string
	beginRead     string // begins a transaction that only reads, or "" where each statement reads by itself
	advisoryLock  string // takes the key $1; "" if begin locks
	lockTimeout   string // keeps a step that waits for a table from stalling heartbeats
	lockTable     string // keeps all others from the table of locks; "" if begin does
	createTable   string // creates the table of versions
	insertVersion string // into the table %s
	setOldest     string // in our own table of versions
}

func statementsOf(d Dialect) (statements, bool) {
	switch d {
	case Postgres:
		return statements{
			dialect:       d,
			begin:         `BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE`,
			beginRead:     `BEGIN ISOLATION LEVEL READ COMMITTED`,
			advisoryLock:  `SELECT pg_advisory_xact_lock($1)`,
			lockTimeout:   `SET LOCAL lock_timeout = '3s'`,
			lockTable:     `LOCK TABLE locks IN ACCESS EXCLUSIVE MODE`,
			createTable:   `CREATE TABLE ` + Table + ` (version bigint NOT NULL PRIMARY KEY, dirty boolean NOT NULL, oldest bigint)`,
			insertVersion: `INSERT INTO %s (version, dirty) VALUES ($1, $2)`,
			setOldest:     `UPDATE ` + Table + ` SET oldest = $1`,
		}, true
	case SQLite:
		return statements{
			dialect:       d,
			begin:         `BEGIN IMMEDIATE`,
			createTable:   `CREATE TABLE ` + Table + ` (version INTEGER PRIMARY KEY, dirty INTEGER NOT NULL, oldest INTEGER)`,
			insertVersion: `INSERT INTO %s (version, dirty) VALUES (?, ?)`,
			setOldest:     `UPDATE ` + Table + ` SET oldest = ?`,
		}, true
	}
	return statements{}, false
}

// Lock begins the transaction, as soon as no other process has one.
func (d *sqlDriver) Lock() error {
	ctx, cancel := context.WithTimeoutCause(d.ctx, d.lockWait, errors.New("another process has been migrating for too long"))
	defer cancel()
	conn, err := d.begin(ctx, d.statements.begin)
	for busy(err) {
		if err := pause(ctx, lockPoll); err != nil {
			return err
		}
		conn, err = d.begin(ctx, d.statements.begin)
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

// begin begins a transaction, with the settings that it relies on.
func (d *sqlDriver) begin(ctx context.Context, begin string) (*sql.Conn, error) {
	conn, err := d.db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	_, err = conn.ExecContext(ctx, begin)
	if err == nil && d.settle != nil {
		err = d.settle(ctx, conn)
	}
	if err != nil {
		discard(conn)
		return nil, fmt.Errorf("begin: %w", err)
	}
	return conn, nil
}

// read reads, between Lock and Unlock or outside.
func (d *sqlDriver) read(do func(querier) error) error {
	switch {
	case d.conn != nil:
		return do(d.conn)
	case d.statements.beginRead == "":
		return do(d.db)
	}
	conn, err := d.begin(d.ctx, d.statements.beginRead)
	if err != nil {
		return err
	}
	defer func() {
		if _, err := conn.ExecContext(context.WithoutCancel(d.ctx), `ROLLBACK`); err != nil {
			discard(conn)
		} else {
			conn.Close()
		}
	}()
	return do(conn)
}

// prepare takes the lock, unless begin did, and makes sure that there is a table of versions.
func (d *sqlDriver) prepare(ctx context.Context, conn *sql.Conn) error {
	if d.statements.advisoryLock != "" {
		var name, schema sql.NullString
		if err := conn.QueryRowContext(ctx, `SELECT current_database(), current_schema()`).Scan(&name, &schema); err != nil {
			return fmt.Errorf("find the schema: %w", err)
		}
		// The key does not depend on the table's name, so that earlier programs are kept out too.
		key, err := database.GenerateAdvisoryLockId(name.String, schema.String, earlierTable(Postgres))
		if err != nil {
			return err
		}
		if _, err := conn.ExecContext(ctx, d.statements.advisoryLock, key); err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		if _, err := conn.ExecContext(ctx, d.statements.lockTimeout); err != nil {
			return fmt.Errorf("set the lock timeout: %w", err)
		}
	}
	if d.statements.dialect == Postgres {
		if err := requireOwner(ctx, conn); err != nil {
			return err
		}
	}
	c, err := d.readCatalogue(ctx, conn)
	if err != nil {
		return err
	}
	d.table = c.VersionTable()
	if d.hadTable = d.table != ""; d.hadTable {
		return nil
	}
	d.table = Table
	if _, err := conn.ExecContext(ctx, d.statements.createTable); err != nil {
		return fmt.Errorf("create %s: %w", Table, err)
	}
	return nil
}

// requireOwner fails if tables are there, and this user may not alter them.
func requireOwner(ctx context.Context, conn *sql.Conn) error {
	var user, owner string
	var owns bool
	err := conn.QueryRowContext(ctx, `SELECT current_user, pg_get_userbyid(relowner), pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = to_regclass('`+Table+`')`).
		Scan(&user, &owner, &owns)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return fmt.Errorf("find the owner of the tables: %w", err)
	case !owns:
		return fmt.Errorf("nothing was changed: migrate needs the owner of the tables, not the role %s: name %s in the database URL", user, owner)
	}
	return nil
}

// CheckFirst refuses to begin in a database whose tables are another application's.
func (d *sqlDriver) CheckFirst() error {
	c, err := d.readCatalogue(d.ctx, d.conn)
	if err == nil {
		_, err = c.Adoptable(d.hadTable)
	}
	d.failed = d.failed || err != nil
	return err
}

// CheckNewTables refuses to go on if a new table's name stands for something else.
func (d *sqlDriver) CheckNewTables(version uint) error {
	c, err := d.readCatalogue(d.ctx, d.conn)
	if err == nil {
		err = c.CheckNewTables(version)
	}
	d.failed = d.failed || err != nil
	return err
}

// CheckLocks checks the locks. No other lock can be taken until the transaction ends.
func (d *sqlDriver) CheckLocks(version uint, p LockPolicy) error {
	if d.statements.lockTable != "" {
		if err := d.exec(d.statements.lockTable); err != nil {
			return err
		}
	}
	locks, err := d.Held(version)
	if err == nil {
		err = p.Refuse(locks)
	}
	d.failed = d.failed || err != nil
	return err
}

// Held works both between Lock and Unlock and outside.
func (d *sqlDriver) Held(version uint) (locks []refdb.LockInfo, err error) {
	err = d.read(func(q querier) error {
		rows, err := q.QueryContext(d.ctx, HeldSQL(d.statements.dialect, version))
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			l, err := ScanHeld(rows.Scan)
			if err != nil {
				return err
			}
			locks = append(locks, l)
		}
		return rows.Err()
	})
	return locks, err
}

func (d *sqlDriver) Counts() (c Counts, err error) {
	err = d.read(func(q querier) error {
		return q.QueryRowContext(d.ctx, CountsSQL).Scan(&c.Refs, &c.Projects, &c.Locks, &c.Holders)
	})
	return c, err
}

// querier is a database or a connection.
type querier interface {
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
	QueryRowContext(context.Context, string, ...any) *sql.Row
}

// readCatalogue reads the catalogue.
func (d *sqlDriver) readCatalogue(ctx context.Context, q querier) (*Catalogue, error) {
	rows, err := q.QueryContext(ctx, CatalogueSQL(d.statements.dialect))
	if err != nil {
		return nil, fmt.Errorf("inspect the tables: %w", err)
	}
	defer rows.Close()
	c := NewCatalogue(d.statements.dialect)
	for rows.Next() {
		var table, part, name, detail string
		if err := rows.Scan(&table, &part, &name, &detail); err != nil {
			return nil, fmt.Errorf("inspect the tables: %w", err)
		}
		c.Add(table, part, name, detail)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("inspect the tables: %w", err)
	}
	return c, c.checkSearchPath()
}

// Unlock ends the transaction.
func (d *sqlDriver) Unlock() error {
	conn := d.conn
	d.conn = nil
	end := "COMMIT"
	if d.failed {
		end = "ROLLBACK"
	}
	// The end of d.ctx must not undo a finished step.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.ctx), d.lockWait)
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
	if err := d.exec(`DELETE FROM ` + d.table); err != nil {
		return err
	}
	if version < 0 && !dirty {
		return nil
	}
	if err := d.exec(fmt.Sprintf(d.statements.insertVersion, d.table), version, dirty); err != nil || d.table != Table {
		return err
	}
	return d.exec(d.statements.setOldest, OldestProgram(version))
}

// exec does not end with d.ctx: a step finishes or fails by itself.
func (d *sqlDriver) exec(query string, args ...any) error {
	if _, err := d.conn.ExecContext(context.WithoutCancel(d.ctx), query, args...); err != nil {
		d.failed = true
		var coded interface{ SQLState() string }
		if errors.As(err, &coded) && coded.SQLState() == lockNotAvailable {
			return fmt.Errorf("another transaction has locked a table: end it, or try again: %w", err)
		}
		return err
	}
	return nil
}

// Version works both between Lock and Unlock and outside.
func (d *sqlDriver) Version() (version int, dirty bool, err error) {
	err = d.read(func(q querier) error {
		table := d.table
		if d.conn == nil {
			c, err := d.readCatalogue(d.ctx, q)
			if err != nil {
				return err
			}
			table = c.VersionTable()
		}
		if table == "" {
			return sql.ErrNoRows
		}
		return q.QueryRowContext(d.ctx, `SELECT version, dirty FROM `+table).Scan(&version, &dirty)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return database.NilVersion, false, nil
	}
	return version, dirty, err
}

// The rest of golang-migrate's interface, which a Migrator never calls.

func (d *sqlDriver) Open(string) (database.Driver, error) { return nil, errors.ErrUnsupported }
func (d *sqlDriver) Drop() error                          { return errors.ErrUnsupported }
func (d *sqlDriver) Close() error                         { return nil }

// discard closes the connection, which ends its transaction, instead of returning it to the pool.
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
