package local

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite" // the driver's name for sql.Open

	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/sqlite"
	"github.com/globalrefdb/globalrefdb/test/dbtest/internal/testdb"
)

// SQLiteKind is that of SQLite files.
func SQLiteKind() Kind {
	return Kind{Dialect: migrations.SQLite, New: SQLite, Empty: emptySQLite, Driver: func(ctx context.Context, url string) (refdb.Driver, error) {
		return sqlite.Open(ctx, url)
	}}
}

// SQLite returns a new migrated database file, which goes with the test.
func SQLite(tb testing.TB) *Database {
	tb.Helper()
	template, err := migratedSQLite()
	if err != nil {
		tb.Fatalf("prepare a SQLite file: %v", err)
	}
	d, path := newSQLite(tb)
	if err := os.WriteFile(path, template, 0o644); err != nil {
		tb.Fatalf("copy a SQLite file: %v", err)
	}
	// The migrator records in the file where it is, before anybody uses it.
	m, err := sqlite.Migrator(testdb.Within(tb), d.URL())
	if err == nil {
		err = m.Close()
	}
	if err != nil {
		tb.Fatalf("record where a SQLite file is: %v", err)
	}
	return d
}

// migratedSQLite returns a migrated file. Its copies are databases of their own: the driver tells them apart by the file.
var migratedSQLite = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp(inMemory(), "dbtest-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(context.Background(), testdb.Timeout)
	defer cancel()
	path := filepath.Join(dir, "refdb.db")
	m, err := sqlite.Migrator(ctx, sqliteURL(path))
	if err := testdb.Up(ctx, m, err); err != nil {
		return nil, err
	}
	if _, err := os.Stat(path + "-wal"); err == nil {
		return nil, errors.New("a migrated file is not whole without its log, even after the last connection has ended")
	}
	return os.ReadFile(path)
})

func sqliteURL(path string) string { return "sqlite:" + strings.ReplaceAll(path, "%", "%25") }

// SQLiteEmpty returns the address of a file that isn't there yet.
func SQLiteEmpty(tb testing.TB) string {
	tb.Helper()
	return emptySQLite(tb).URL()
}

func emptySQLite(tb testing.TB) *Database {
	tb.Helper()
	d, _ := newSQLite(tb)
	return d
}

// newSQLite returns a database whose file, at path, isn't there yet.
func newSQLite(tb testing.TB) (d *Database, path string) {
	tb.Helper()
	testdb.ExplainFailure(tb, nil, testdb.EveryLine)
	dir, err := os.MkdirTemp(inMemory(), "dbtest-")
	if err != nil {
		tb.Fatalf("make a directory for a SQLite file: %v", err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	path = filepath.Join(dir, "sqlite", "refdb.db") // the directory's parent, too, is the test's own
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		tb.Fatalf("make a directory for a SQLite file: %v", err)
	}
	// Another connection than the driver's, with settings of its own.
	name := "file:" + (&url.URL{Path: path}).EscapedPath() + "?_pragma=busy_timeout(300000)&_txlock=immediate"
	db, err := sql.Open("sqlite", name)
	if err != nil {
		tb.Fatalf("open a SQLite file: %v", err)
	}
	return testdb.New(tb, SQLiteKind(), sqliteURL(path), sqliteRows{db}), path
}

// sqliteRows writes times as the driver does: in microseconds, by the machine's
// clock, which is SQLite's clock.
type sqliteRows struct {
	db *sql.DB
}

func (r sqliteRows) Close() { r.db.Close() }

func (r sqliteRows) Now(context.Context) (time.Time, error) {
	return time.Now().UTC().Truncate(time.Microsecond), nil
}

func (r sqliteRows) Age(ctx context.Context, project, ref string, d time.Duration) (int64, error) {
	result, err := r.db.ExecContext(ctx,
		`UPDATE locks SET heartbeat = heartbeat - ? WHERE project = ? AND ref = ?`, d.Microseconds(), project, ref)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (r sqliteRows) InsertLock(ctx context.Context, l refdb.LockInfo) error {
	now := time.Now()
	token := l.Token
	if token == 0 {
		token = driver.TokenOf(now)
	}
	return r.Exec(ctx, `INSERT INTO locks (project, ref, heartbeat, token, owner) VALUES (?, ?, ?, ?, ?)`,
		[]any{l.Project, l.Ref, now.Add(-l.Age).UnixMicro(), int64(token), l.Owner})
}

func (r sqliteRows) TakeOver(ctx context.Context, project, ref, owner string) error {
	now := time.Now().UnixMicro()
	return r.Exec(ctx, `UPDATE locks SET heartbeat = ?, token = max(?, token + 1), owner = ? WHERE project = ? AND ref = ?`,
		[]any{now, now, owner, project, ref})
}

func (r sqliteRows) InsertRef(ctx context.Context, project, ref string, v refdb.Value) error {
	return r.Exec(ctx,
		`INSERT INTO refs (project, ref, value, time) VALUES (?, ?, ?, ?)
			ON CONFLICT (project, ref) DO UPDATE SET value = excluded.value, time = excluded.time`,
		[]any{project, ref, string(v), time.Now().UnixMicro()})
}

func (r sqliteRows) Exec(ctx context.Context, query string, args []any) error {
	_, err := r.db.ExecContext(ctx, query, args...)
	return err
}

func (r sqliteRows) Lock(ctx context.Context, project, ref string) (refdb.LockInfo, bool, error) {
	l := refdb.LockInfo{Project: project, Ref: ref}
	var token, heartbeat, staleAfter *int64
	err := r.db.QueryRowContext(ctx,
		`SELECT owner, token, heartbeat, stale_after FROM locks WHERE project = ? AND ref = ?`,
		project, ref).Scan(&l.Owner, &token, &heartbeat, &staleAfter)
	if errors.Is(err, sql.ErrNoRows) {
		return refdb.LockInfo{}, false, nil
	}
	testdb.Fill(&l, fromMicro(token), fromMicro(heartbeat), staleAfter, time.Now())
	return l, err == nil, err
}

func fromMicro(us *int64) *time.Time {
	if us == nil {
		return nil
	}
	t := time.UnixMicro(*us)
	return &t
}
