package local

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/test/dbtest/internal/testdb"
)

type postgresRows struct {
	pool *pgxpool.Pool
}

func (r postgresRows) Close() { r.pool.Close() }

func (r postgresRows) Now(ctx context.Context) (t time.Time, err error) {
	err = r.pool.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&t)
	return t.UTC(), err
}

func (r postgresRows) Age(ctx context.Context, project, ref string, d time.Duration) (int64, error) {
	tag, err := r.pool.Exec(ctx,
		`UPDATE locks SET heartbeat = heartbeat - $3 * interval '1 microsecond' WHERE project = $1 AND ref = $2`,
		project, ref, d.Microseconds())
	return tag.RowsAffected(), err
}

func (r postgresRows) InsertLock(ctx context.Context, l refdb.LockInfo) error {
	var token any
	if l.Token != 0 {
		token = l.Token.Time()
	}
	_, err := r.pool.Exec(ctx,
		`INSERT INTO locks (project, ref, heartbeat, token, owner)
			SELECT $1, $2, now - $3 * interval '1 microsecond', coalesce($4::timestamptz, now), $5 FROM clock_timestamp() now`,
		l.Project, l.Ref, l.Age.Microseconds(), token, l.Owner)
	return err
}

func (r postgresRows) TakeOver(ctx context.Context, project, ref, owner string) error {
	_, err := r.pool.Exec(ctx,
		`UPDATE locks SET heartbeat = now, token = greatest(now, token + interval '1 microsecond'), owner = $3 FROM clock_timestamp() now WHERE project = $1 AND ref = $2`,
		project, ref, owner)
	return err
}

func (r postgresRows) InsertRef(ctx context.Context, project, ref string, v refdb.Value) error {
	_, err := r.pool.Exec(ctx,
		`INSERT INTO refs (project, ref, value, time) VALUES ($1, $2, $3, clock_timestamp())
			ON CONFLICT (project, ref) DO UPDATE SET value = excluded.value, time = excluded.time`,
		project, ref, string(v))
	return err
}

func (r postgresRows) Exec(ctx context.Context, sql string, args []any) error {
	_, err := r.pool.Exec(ctx, sql, args...)
	return err
}

func (r postgresRows) Lock(ctx context.Context, project, ref string) (refdb.LockInfo, bool, error) {
	l := refdb.LockInfo{Project: project, Ref: ref}
	var heartbeat, token *time.Time
	var now time.Time
	var staleAfter *int64
	err := r.pool.QueryRow(ctx,
		`SELECT owner, token, heartbeat, stale_after, clock_timestamp() FROM locks WHERE project = $1 AND ref = $2`,
		project, ref).Scan(&l.Owner, &token, &heartbeat, &staleAfter, &now)
	if errors.Is(err, pgx.ErrNoRows) {
		return refdb.LockInfo{}, false, nil
	}
	testdb.Fill(&l, token, heartbeat, staleAfter, now)
	return l, err == nil, err
}
