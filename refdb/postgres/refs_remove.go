package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/operation"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

// lockProjectRowsSQL excludes beats and releases of the project's locks.
const lockProjectRowsSQL = `SELECT 1 FROM locks WHERE project = $1 ORDER BY ref FOR UPDATE`

// nameOperationSQL names the operation that removes refs, for the trigger that records removals.
const nameOperationSQL = `SELECT set_config('refdb.op', $1, true)`

// removeSQL removes the first $2 refs and, if no more are left, the locks. If $3, only locks that
// stand for intents are in the way. It returns a row with the number of removed refs, and one more
// row for each lock that was removed or is in the way.
var removeSQL = `
WITH clock AS MATERIALIZED (
  SELECT clock_timestamp() AS now
), verdict AS MATERIALIZED (
  SELECT NOT EXISTS (
    SELECT FROM locks, clock WHERE project = $1 AND ` + inTheWay("$3::boolean") + `
  ) AS free
), page AS MATERIALIZED (
  SELECT ctid AS tid FROM refs WHERE project = $1 AND (SELECT free FROM verdict) ORDER BY ref LIMIT $2::bigint + 1
), gone AS (
  DELETE FROM refs WHERE ctid = ANY (ARRAY(SELECT tid FROM page LIMIT $2)) RETURNING 1
), unlocked AS (
  DELETE FROM locks WHERE project = $1 AND (SELECT free AND (SELECT count(*) FROM page) <= $2 FROM verdict)
  RETURNING ref, waiting
)
SELECT free, (SELECT count(*) FROM gone), now, NULL AS ref, NULL AS owner, NULL::timestamptz AS token,
       NULL::timestamptz AS heartbeat, NULL::bigint AS stale_after, NULL::text[] AS waiting
FROM verdict, clock
UNION ALL
SELECT free, 0, now, ref, owner, token, heartbeat, stale_after, NULL FROM locks, verdict, clock WHERE project = $1 AND NOT free
UNION ALL
SELECT free, 0, now, ref, NULL, NULL, NULL, NULL, waiting FROM unlocked, verdict, clock WHERE waiting IS NOT NULL`

// Remove deletes a chunk in one round trip, and meanwhile excludes all other requests for the
// project.
func (d *Driver) Remove(ctx context.Context, r driver.RemoveRequest) (int, error) {
	var (
		removed int
		free    bool
		waiters map[string][]string // of the locks that were removed with the refs
		holders []driver.LockInfo
	)
	err := d.pools.Do(ctx, roundtrip.Write("remove refs").
		Then(lockProject(r.Project)).
		Exec(lockProjectRowsSQL, r.Project).
		Exec(nameOperationSQL, operation.Text(r.Origin)).
		Query(removeSQL, func(rows pgx.Rows) error {
			removed, waiters, holders = 0, map[string][]string{}, nil
			for rows.Next() {
				var n int
				var now time.Time
				var ref *string
				var lock lockColumns
				var waiting []string
				if err := rows.Scan(&free, &n, &now, &ref, &lock.owner, &lock.token, &lock.heartbeat, &lock.staleAfter, &waiting); err != nil {
					return err
				}
				removed += n
				switch {
				case ref == nil:
				case free:
					waiters[*ref] = waiting
				default:
					holders = append(holders, lock.info(r.Project, *ref, now))
				}
			}
			return rows.Err()
		}, r.Project, r.Limit, r.Locks == driver.AdvisoryLocks))
	if err != nil {
		return 0, err
	}
	if !free {
		byRef(holders)
		return 0, &driver.LockedError{Holders: slices.DeleteFunc(holders, driver.LockInfo.Idle)}
	}
	for ref, waiting := range waiters {
		d.notifier.NotifyFirst(r.Project, ref, waiting)
	}
	return removed, nil
}

const (
	isOldTombstone = `value IN ` + zeroIDs + `
AND clock_timestamp() - coalesce(time, 'epoch') >= $2::bigint * interval '1 microsecond'`

	findTombstonesSQL = `SELECT ref FROM refs WHERE project = $1 AND ` + isOldTombstone + ` ORDER BY ref LIMIT $3`

	removeTombstonesSQL = `
DELETE FROM refs WHERE ctid = ANY (ARRAY(
  SELECT tid FROM unnest($3::text[]) AS asked (ref), LATERAL (` + refOfAsked + `) AS refs WHERE ` + isOldTombstone + `
))`
)

// PurgeTombstones finds the tombstones first, which can take a while among many refs, and only then
// excludes other requests.
func (d *Driver) PurgeTombstones(ctx context.Context, r driver.TombstoneRequest) (int, error) {
	var found []string
	err := d.pools.Do(ctx, roundtrip.Read("find deleted refs").Query(findTombstonesSQL, func(rows pgx.Rows) (err error) {
		found, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	}, r.Project, r.OlderThan.Microseconds(), r.Limit))
	if err != nil || len(found) == 0 {
		return 0, err
	}
	var removed int
	err = d.pools.Do(ctx, roundtrip.Write("remove deleted refs").
		Then(lockRefs(r.Project, found)).
		Query(removeTombstonesSQL, func(rows pgx.Rows) error {
			rows.Close()
			removed = int(rows.CommandTag().RowsAffected())
			return rows.Err()
		}, r.Project, r.OlderThan.Microseconds(), found))
	if err != nil {
		return 0, err
	}
	return removed, nil
}
