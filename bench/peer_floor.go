package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// floorTables have the columns that the protocol needs, the product's
// fillfactor, the keys that a ref's history and a feed of all or of one project need, and nothing else.
const floorTables = `
CREATE TABLE floor_locks (
    project   text COLLATE "C" NOT NULL,
    ref       text COLLATE "C" NOT NULL,
    heartbeat timestamptz NOT NULL,
    token     timestamptz NOT NULL,
    owner     text COLLATE "C" NOT NULL,
    PRIMARY KEY (project, ref)
) WITH (fillfactor = 50);
CREATE TABLE floor_refs (
    project text COLLATE "C" NOT NULL,
    ref     text COLLATE "C" NOT NULL,
    value   text COLLATE "C" NOT NULL,
    time    timestamptz,
    PRIMARY KEY (project, ref)
) WITH (fillfactor = 80);
CREATE TABLE floor_history (
    project  text COLLATE "C" NOT NULL,
    ref      text COLLATE "C" NOT NULL,
    position bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
    old      text COLLATE "C" NOT NULL,
    new      text COLLATE "C" NOT NULL,
    time     timestamptz NOT NULL,
    PRIMARY KEY (project, ref, position)
);
CREATE INDEX ON floor_history (position, project, ref);
CREATE INDEX ON floor_history (project, position, ref)`

const (
	floorLockSQL = `INSERT INTO floor_locks (project, ref, heartbeat, token, owner)
		VALUES ($1, $2, clock_timestamp(), clock_timestamp(), $3) ON CONFLICT DO NOTHING RETURNING token`
	floorReleaseSQL = `DELETE FROM floor_locks WHERE project = $1 AND ref = $2 AND token = $3`
	floorPutSQL     = `UPDATE floor_refs SET value = $4, time = clock_timestamp() WHERE project = $1 AND ref = $2 AND value = $3`

	// The value and the row of its history, in one statement.
	floorRecordSQL = `WITH changed AS (` + floorPutSQL + ` RETURNING time)
		INSERT INTO floor_history (project, ref, old, new, time) SELECT $1, $2, $3, $4, time FROM changed`
)

var errTaken = errors.New("somebody else holds it")

// A floor is the least that a durable lock or compare-and-put costs on
// PostgreSQL: one prepared statement, which is its own transaction. It does not
// check for others, wake up waiters, or resolve lost replies.
type floor struct {
	db querier
}

// A querier is a pool, or one of its connections.
type querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// openFloor creates the tables in the database at url. It also returns what closes
// the connections.
func openFloor(ctx context.Context, url string) (*floor, func(), error) {
	pool, err := floorPool(ctx, url)
	if err != nil {
		return nil, nil, err
	}
	if _, err := pool.Exec(ctx, floorTables, pgx.QueryExecModeSimpleProtocol); err != nil {
		pool.Close()
		return nil, nil, fmt.Errorf("create the floor's tables: %w", err)
	}
	return &floor{pool}, pool.Close, nil
}

// floorPool has the size and the planner's settings of the product's driver.
func floorPool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = poolSize()
	for name, value := range map[string]string{"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "jit": "off"} {
		config.ConnConfig.RuntimeParams[name] = value
	}
	return pgxpool.NewWithConfig(ctx, config)
}

// poolSize is the product's default for PostgreSQL.
func poolSize() int32 { return int32(max(16, 2*runtime.NumCPU())) }

func (f *floor) lock(ctx context.Context, ref string) (token time.Time, err error) {
	err = f.db.QueryRow(ctx, floorLockSQL, project, ref, owner).Scan(&token)
	if errors.Is(err, pgx.ErrNoRows) {
		err = errTaken
	}
	return token, err
}

func (f *floor) release(ctx context.Context, ref string, token time.Time) error {
	return one(f.db.Exec(ctx, floorReleaseSQL, project, ref, token))
}

func (f *floor) get(ctx context.Context, ref string) (value string, err error) {
	err = f.db.QueryRow(ctx, `SELECT value FROM floor_refs WHERE project = $1 AND ref = $2`, project, ref).Scan(&value)
	return value, err
}

func (f *floor) put(ctx context.Context, ref, old, new string) error {
	return one(f.db.Exec(ctx, floorPutSQL, project, ref, old, new))
}

// record is put with a row of history.
func (f *floor) record(ctx context.Context, ref, old, new string) error {
	return one(f.db.Exec(ctx, floorRecordSQL, project, ref, old, new))
}

// seed inserts refs that hold the value.
func (f *floor) seed(ctx context.Context, refs []string, value string) error {
	_, err := f.db.Exec(ctx, `INSERT INTO floor_refs (project, ref, value, time)
		SELECT $1, ref, $3, clock_timestamp() FROM unnest($2::text[]) AS ref`, project, refs, value)
	return err
}

// one returns an error unless exactly one row was affected.
func one(tag pgconn.CommandTag, err error) error {
	if err == nil && tag.RowsAffected() != 1 {
		err = fmt.Errorf("%d rows were affected, not one", tag.RowsAffected())
	}
	return err
}
