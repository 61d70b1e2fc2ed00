// Package testdb is what the databases of tests have in common, whatever their kind.
package testdb

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// A Database belongs to one test. It opens drivers, and does what drivers can't:
// it lets time pass, writes as Gerrit's plugin does, and reads a single row.
type Database struct {
	kind Kind
	url  string
	rows Rows
}

// Rows is a connection to the tables that knows nothing of refdb's protocol.
type Rows interface {
	// Now returns the database's time.
	Now(ctx context.Context) (time.Time, error)
	Age(ctx context.Context, project, ref string, d time.Duration) (rows int64, err error)
	InsertLock(ctx context.Context, l refdb.LockInfo) error
	TakeOver(ctx context.Context, project, ref, owner string) error
	InsertRef(ctx context.Context, project, ref string, v refdb.Value) error
	Exec(ctx context.Context, sql string, args []any) error
	Lock(ctx context.Context, project, ref string) (l refdb.LockInfo, ok bool, err error)
	Close()
}

// New returns the database at url, which has those rows. They are closed at the test's end.
func New(tb testing.TB, k Kind, url string, r Rows) *Database {
	tb.Cleanup(r.Close)
	return &Database{kind: k, url: url, rows: r}
}

// URL returns the database's address, for Open and for other processes.
func (d *Database) URL() string { return d.url }

// Kind returns what kind of database it is.
func (d *Database) Kind() Kind { return d.kind }

// FutureTimes reports whether a row may hold a time in the future.
func (d *Database) FutureTimes() bool { return d.kind.Dialect != migrations.Spanner }

// Rounds returns how often a test repeats a race. The emulator runs one transaction
// at a time, and takes long to resolve collisions. There REFDB_TEST_LONG=1 makes it more often.
func (d *Database) Rounds() int {
	spanner := d.kind.Dialect == migrations.Spanner
	switch {
	case spanner && testing.Short():
		return 4
	case spanner && os.Getenv("REFDB_TEST_LONG") == "", testing.Short():
		return 10
	case spanner:
		return 40
	}
	return 100
}

// Open returns another driver on the database, as another process would have.
// It is closed at the test's end.
func (d *Database) Open(tb testing.TB) refdb.Driver {
	tb.Helper()
	driver, err := d.kind.Driver(Within(tb), d.url)
	if err != nil {
		tb.Fatalf("open the %s database: %v", d.kind.Dialect, err)
	}
	tb.Cleanup(func() {
		if err := driver.Close(); err != nil {
			tb.Errorf("close the %s driver: %v", d.kind.Dialect, err)
		}
	})
	return driver
}

// Age moves a lock's heartbeat back by that time, as if it had not been beaten
// for as much longer, or forward if it is negative.
func (d *Database) Age(tb testing.TB, project, ref string, by time.Duration) {
	tb.Helper()
	n, err := d.rows.Age(Within(tb), project, ref, by)
	if err != nil {
		tb.Fatalf("age the lock on %s %s: %v", project, ref, err)
	}
	if n != 1 {
		tb.Fatalf("age the lock on %s %s: there is none", project, ref)
	}
}

// InsertLock writes a lock as Gerrit's plugin does: project, ref, owner, a
// token (l.Token or, if that is 0, the database's now) and a heartbeat (the
// database's now − l.Age), and nothing else.
func (d *Database) InsertLock(tb testing.TB, l refdb.LockInfo) {
	tb.Helper()
	if err := d.rows.InsertLock(Within(tb), l); err != nil {
		tb.Fatalf("insert a lock on %s %s: %v", l.Project, l.Ref, err)
	}
}

// TakeOver takes a lock over as Gerrit's plugin does: it sets its heartbeat and
// its token to the database's now, and its owner, and nothing else.
func (d *Database) TakeOver(tb testing.TB, project, ref, owner string) {
	tb.Helper()
	if err := d.rows.TakeOver(Within(tb), project, ref, owner); err != nil {
		tb.Fatalf("take over the lock on %s %s: %v", project, ref, err)
	}
}

// InsertRef writes a ref as Gerrit's plugin does, over one that exists:
// project, ref, value and the database's time, and nothing else.
func (d *Database) InsertRef(tb testing.TB, project, ref string, v refdb.Value) {
	tb.Helper()
	if err := d.rows.InsertRef(Within(tb), project, ref, v); err != nil {
		tb.Fatalf("insert %s %s: %v", project, ref, err)
	}
}

// Exec executes a statement in the database's own SQL. Arguments are $1, $2,
// … on PostgreSQL, @p1, @p2, … on Spanner and ? on SQLite.
func (d *Database) Exec(tb testing.TB, sql string, args ...any) {
	tb.Helper()
	if err := d.rows.Exec(Within(tb), sql, args); err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
}

// Restart makes the database's server another one than the one that is admitted and that witnesses
// have compared, as a restart or a fail-over does.
func (d *Database) Restart(tb testing.TB) {
	tb.Helper()
	d.Exec(tb, "UPDATE admission SET server = 'another' WHERE id = 1")
	d.Exec(tb, "UPDATE witnesses SET server = 'another' WHERE true")
}

// RowLock reads the row of a lock, if there is one.
func (d *Database) RowLock(tb testing.TB, project, ref string) (l refdb.LockInfo, ok bool) {
	tb.Helper()
	l, ok, err := d.rows.Lock(Within(tb), project, ref)
	if err != nil {
		tb.Fatalf("read the lock on %s %s: %v", project, ref, err)
	}
	return l, ok
}

// Now returns the database's time.
func (d *Database) Now(tb testing.TB) time.Time {
	tb.Helper()
	t, err := d.rows.Now(Within(tb))
	if err != nil {
		tb.Fatalf("read the database's time: %v", err)
	}
	return t
}

// Fill sets what may be NULL in a row, as a driver reads it.
func Fill(l *refdb.LockInfo, token, heartbeat *time.Time, staleAfter *int64, now time.Time) {
	l.Heartbeat = time.Unix(0, 0).UTC()
	l.StaleAfter = refdb.DefaultStaleAfter
	if token != nil {
		l.Token = driver.TokenOf(*token)
	}
	if heartbeat != nil {
		l.Heartbeat = heartbeat.UTC()
	}
	if staleAfter != nil {
		l.StaleAfter = time.Duration(*staleAfter) * time.Microsecond
	}
	l.Age = now.Sub(l.Heartbeat)
}
