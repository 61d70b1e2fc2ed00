package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite" // the engine that the product uses

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/drivers/schema"
)

// sqliteCases returns a case for each number of workers and each durability. With
// NORMAL a power failure may undo the last commits.
func sqliteCases(contestants func(workers int, synchronous string) []contestant) []benchCase {
	var cases []benchCase
	for _, synchronous := range []string{"full", "normal"} {
		for _, n := range []int{1, 16} {
			cases = append(cases, benchCase{
				name: fmt.Sprintf("%s, synchronous %s", workerCount(n), synchronous), baseline: "floor",
				contestants: contestants(n, synchronous),
			})
		}
	}
	return cases
}

const (
	sqliteSetting        = "modernc.org/sqlite, write-ahead log. The floor: two prepared statements, one by one, on the one writing connection. "
	sqliteUpdatesSetting = "modernc.org/sqlite, write-ahead log. The floor: a prepared statement, one by one, on the one writing connection; a trigger writes a row of history. "
)

func sqliteLocksWorkload(_ context.Context, s *servers) (workload, error) {
	return workload{
		id: "SQLITE", title: "W1 on SQLite: lock + release, distinct keys", setting: sqliteSetting, metrics: rateMetrics("ops/s"),
		cases: sqliteCases(func(n int, synchronous string) []contestant {
			return []contestant{
				{"floor", func(ctx context.Context) (sample, error) {
					return s.sqliteFloor(ctx, synchronous, func(f *fileFloor) (sample, error) {
						return load(ctx, s.d, inTurns(n, f.lockAndRelease))
					})
				}},
				{"refdb", func(ctx context.Context) (sample, error) {
					return s.sqliteRefdb(ctx, synchronous, func(db *refdb.DB) (sample, error) { return loadRefdbLocks(ctx, s, db, n) })
				}},
			}
		}),
	}, nil
}

func sqliteUpdatesWorkload(_ context.Context, s *servers) (workload, error) {
	return workload{
		id: "SQLITE", title: "W4 on SQLite: compare-and-put of one ref, distinct refs", setting: sqliteUpdatesSetting, metrics: rateMetrics("updates/s"),
		cases: sqliteCases(func(n int, synchronous string) []contestant {
			return []contestant{
				{"floor", func(ctx context.Context) (sample, error) {
					return s.sqliteFloor(ctx, synchronous, func(f *fileFloor) (sample, error) {
						return f.loadUpdates(ctx, s, n, fileFloorHistory)
					})
				}},
				{"no history", func(ctx context.Context) (sample, error) {
					return s.sqliteFloor(ctx, synchronous, func(f *fileFloor) (sample, error) {
						return f.loadUpdates(ctx, s, n, "")
					})
				}},
				{"refdb", func(ctx context.Context) (sample, error) {
					return s.sqliteRefdb(ctx, synchronous, func(db *refdb.DB) (sample, error) { return loadRefdbUpdates(ctx, s, db, n) })
				}},
			}
		}),
	}, nil
}

// withFile calls do with the path of a file that isn't there yet.
func (s *servers) withFile(do func(path string) (sample, error)) (_ sample, err error) {
	dir, err := os.MkdirTemp(s.dir, "sqlite-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	return do(filepath.Join(dir, "refdb.db"))
}

func (s *servers) sqliteRefdb(ctx context.Context, synchronous string, do func(*refdb.DB) (sample, error)) (sample, error) {
	return s.withFile(func(path string) (_ sample, err error) {
		address := "sqlite:" + (&url.URL{Path: path}).EscapedPath() + "?synchronous=" + synchronous
		if err := schema.Up(ctx, address); err != nil {
			return nil, err
		}
		db, err := openRefdb(ctx, address, nil)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, db.Close()) }()
		return do(db)
	})
}

const fileFloorTables = `
CREATE TABLE floor_locks (
    project TEXT NOT NULL, ref TEXT NOT NULL, heartbeat INTEGER NOT NULL, token INTEGER NOT NULL, owner TEXT NOT NULL,
    PRIMARY KEY (project, ref)
) STRICT, WITHOUT ROWID;
CREATE TABLE floor_refs (
    project TEXT NOT NULL, ref TEXT NOT NULL, value TEXT NOT NULL, time INTEGER,
    PRIMARY KEY (project, ref)
) STRICT, WITHOUT ROWID`

// fileFloorHistory has the keys of floor_history on PostgreSQL. The statement that updates writes it, too.
const fileFloorHistory = `
CREATE TABLE floor_history (
    project TEXT NOT NULL, ref TEXT NOT NULL, position INTEGER NOT NULL, old TEXT NOT NULL, new TEXT NOT NULL, time INTEGER NOT NULL,
    PRIMARY KEY (project, ref, position)
) STRICT, WITHOUT ROWID;
CREATE INDEX floor_history_position ON floor_history (position, project, ref);
CREATE INDEX floor_history_project ON floor_history (project, position, ref);
CREATE TRIGGER floor_changed AFTER UPDATE OF value ON floor_refs BEGIN
    INSERT INTO floor_history SELECT new.project, new.ref, coalesce(max(position), 0) + 1, old.value, new.value, new.time FROM floor_history;
END`

// A fileFloor is a [floor] on SQLite.
type fileFloor struct {
	db                     *sql.DB
	insert, delete, update *sql.Stmt
}

func (s *servers) sqliteFloor(ctx context.Context, synchronous string, do func(*fileFloor) (sample, error)) (sample, error) {
	return s.withFile(func(path string) (_ sample, err error) {
		query := url.Values{"_pragma": {"journal_mode(wal)", "synchronous(" + synchronous + ")"}}
		db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?"+query.Encode())
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, db.Close()) }()
		db.SetMaxOpenConns(1)
		if _, err := db.ExecContext(ctx, fileFloorTables); err != nil {
			return nil, err
		}
		f := &fileFloor{db: db}
		for _, p := range []struct {
			stmt **sql.Stmt
			sql  string
		}{
			{&f.insert, `INSERT INTO floor_locks (project, ref, heartbeat, token, owner) VALUES (?1, ?2, ?3, ?3, ?4) ON CONFLICT DO NOTHING RETURNING token`},
			{&f.delete, `DELETE FROM floor_locks WHERE project = ? AND ref = ? AND token = ?`},
			{&f.update, `UPDATE floor_refs SET value = ?4, time = ?5 WHERE project = ?1 AND ref = ?2 AND value = ?3`},
		} {
			if *p.stmt, err = db.PrepareContext(ctx, p.sql); err != nil {
				return nil, err
			}
		}
		return do(f)
	})
}

func (f *fileFloor) lockAndRelease(ctx context.Context, ref string) error {
	var token int64
	err := f.insert.QueryRowContext(ctx, project, ref, time.Now().UnixMicro(), owner).Scan(&token)
	if errors.Is(err, sql.ErrNoRows) {
		return errTaken
	}
	if err != nil {
		return err
	}
	return oneRow(f.delete.ExecContext(ctx, project, ref, token))
}

func (f *fileFloor) put(ctx context.Context, ref, old, new string) error {
	return oneRow(f.update.ExecContext(ctx, project, ref, old, new, time.Now().UnixMicro()))
}

// loadUpdates updates refs of n workers. The statements in ddl come before.
func (f *fileFloor) loadUpdates(ctx context.Context, s *servers, n int, ddl string) (sample, error) {
	if _, err := f.db.ExecContext(ctx, ddl); err != nil {
		return nil, err
	}
	if err := f.seed(ctx, allKeys(n), objectID(0)); err != nil {
		return nil, err
	}
	return load(ctx, s.d, putInTurns(n, f.put))
}

func (f *fileFloor) seed(ctx context.Context, refs []string, value string) error {
	tx, err := f.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	for _, ref := range refs {
		if _, err := tx.ExecContext(ctx, `INSERT INTO floor_refs (project, ref, value) VALUES (?, ?, ?)`, project, ref, value); err != nil {
			return errors.Join(err, tx.Rollback())
		}
	}
	return tx.Commit()
}

// oneRow returns an error unless exactly one row was affected.
func oneRow(result sql.Result, err error) error {
	if err != nil {
		return err
	}
	n, err := result.RowsAffected()
	if err == nil && n != 1 {
		err = fmt.Errorf("%d rows were affected, not one", n)
	}
	return err
}
