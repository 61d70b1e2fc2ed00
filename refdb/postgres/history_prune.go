package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

// pruneSQL examines a number of changes, deletes those that may be pruned, and raises the mark. It
// returns how many changes it examined and deleted, and the last one that it examined.
//
//	$1 last position to prune  $2 last one to prune unread  $3 how many of each ref stay  $4 to $6 where to begin  $7 how many to examine
const pruneSQL = `
WITH bound AS MATERIALIZED (
  SELECT greatest(least($1::bigint, (SELECT min(read) FROM followers)), least($1, $2::bigint)) AS upto
), looked AS MATERIALIZED (
  SELECT ctid AS tid, project, ref, position FROM history
  WHERE position >= $4 AND position <= $1 AND (position, project, ref) > ($4::bigint, $5::text, $6::text)
  ORDER BY position, project, ref LIMIT $7
), gone AS (
  DELETE FROM history WHERE ctid = ANY (ARRAY(
    SELECT tid FROM looked, bound WHERE position <= upto AND $3 = (
      SELECT count(*) FROM (
        SELECT FROM history AS newer WHERE newer.project = looked.project AND newer.ref = looked.ref AND newer.position > looked.position LIMIT $3
      ) AS kept
    )
  )) RETURNING position, time
), raised AS (
  UPDATE history_state SET pruned = greatest(pruned, (SELECT max(position) + 1 FROM gone)), pruned_time = greatest(pruned_time, (SELECT max(time) FROM gone))
  WHERE id = 1 AND EXISTS (SELECT FROM gone)
)
SELECT (SELECT count(*) FROM looked), (SELECT count(*) FROM gone), position, project, ref
FROM (SELECT) AS one_row LEFT JOIN (SELECT * FROM looked ORDER BY position DESC, project DESC, ref DESC LIMIT 1) AS last ON true`

// Prune takes one round trip.
func (d *Driver) Prune(ctx context.Context, r driver.PruneRequest) (p driver.Pruned, err error) {
	work := roundtrip.Write("prune the history").Exec(requireAdmissionSQL)
	err = d.pools.Do(ctx, work.Query(pruneSQL, func(rows pgx.Rows) error {
		p = driver.Pruned{}
		var looked int
		var position *int64
		var project, ref *string
		_, err := pgx.ForEachRow(rows, []any{&looked, &p.Deleted, &position, &project, &ref}, func() error {
			if looked == r.Limit {
				p.Next = driver.ChangeKey{Position: driver.Position(*position), Project: *project, Ref: *ref}
			}
			return nil
		})
		return err
	}, int64(r.Upto), int64(r.EvenUnread), int64(r.Keep), int64(r.After.Position), r.After.Project, r.After.Ref, int64(r.Limit)))
	if err != nil {
		return driver.Pruned{}, err
	}
	return p, nil
}

// Followers reads all followers in one statement.
func (d *Driver) Followers(ctx context.Context) (all []driver.Follower, err error) {
	const sql = `SELECT name, cursor, read, seen, clock_timestamp() FROM followers ORDER BY name`
	err = d.pools.Do(ctx, roundtrip.Read("list followers").Query(sql, func(rows pgx.Rows) (err error) {
		all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (f driver.Follower, err error) {
			var now time.Time
			err = row.Scan(&f.Name, &f.Cursor, &f.Read, &f.Seen, &now)
			f.Seen, f.Age = f.Seen.UTC(), now.Sub(f.Seen)
			return f, err
		})
		return err
	}))
	return all, err
}

// PutFollower writes one row.
func (d *Driver) PutFollower(ctx context.Context, f driver.Follower) error {
	const sql = `
INSERT INTO followers (name, cursor, read, seen) VALUES ($1, $2, $3, clock_timestamp())
ON CONFLICT (name) DO UPDATE SET cursor = excluded.cursor, read = excluded.read, seen = excluded.seen`
	return d.pools.Do(ctx, roundtrip.Write("write a follower").Then(roundtrip.Exec(sql, f.Name, f.Cursor, int64(f.Read))))
}

// RemoveFollower deletes one row.
func (d *Driver) RemoveFollower(ctx context.Context, name string) (found bool, err error) {
	const sql = `DELETE FROM followers WHERE name = $1`
	err = d.pools.Do(ctx, roundtrip.Write("remove a follower").Query(sql, func(rows pgx.Rows) error {
		rows.Close()
		found = rows.CommandTag().RowsAffected() > 0
		return rows.Err()
	}, name))
	return found, err
}
