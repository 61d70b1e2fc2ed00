package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

// dropPackSQL waits for preparations that use the pack, and then looks again. Parts go by their foreign key.
const dropPackSQL = `DELETE FROM packs WHERE id = $1 AND position IS NULL`

// dropPacksSQL deletes packs, which it locks first: a preparation that uses one keeps it. The order is that of an index. Packs
// that were not used are locked in the order of their IDs, as a preparation locks them.
//
//	$1 how many  $2 bytes, unless a single one has more
func dropPacksSQL(order, selected string) string {
	return `
WITH locked AS MATERIALIZED (
  SELECT id, size, position FROM packs WHERE ` + selected + ` ORDER BY ` + order + ` LIMIT $1 FOR UPDATE
), gone AS MATERIALIZED (
  SELECT id FROM (SELECT id, size, sum(size) OVER (ORDER BY position, id) AS total FROM locked) AS counted WHERE total <= $2 OR total = size
), deleted AS (
  DELETE FROM packs USING gone WHERE packs.id = gone.id RETURNING packs.id
)
SELECT count(*) FROM deleted`
}

var (
	dropAbandonedSQL  = dropPacksSQL(`id`, `position IS NULL AND time < (SELECT clock_timestamp()) - $3 * interval '1 microsecond'`)
	dropSupersededSQL = dropPacksSQL(`position, id`, `project = $3 AND position IS NOT NULL AND (position, id) < `+latestBase("$3"))
	removePacksSQL    = dropPacksSQL(`position, id`, `project = $3`)
)

// DropPack takes one round trip.
func (d *Driver) DropPack(ctx context.Context, id string) error {
	return d.optional(ctx, roundtrip.Write("drop a pack").Then(roundtrip.GuardStatement()).Exec(dropPackSQL, id))
}

// DropAbandonedPacks takes one round trip.
func (d *Driver) DropAbandonedPacks(ctx context.Context, olderThan time.Duration, limit int) (int, error) {
	return d.dropPacks(ctx, "drop abandoned packs", dropAbandonedSQL, limit, olderThan.Microseconds())
}

// DropSupersededPacks takes one round trip.
func (d *Driver) DropSupersededPacks(ctx context.Context, project string, limit int) (int, error) {
	return d.dropPacks(ctx, "drop superseded packs", dropSupersededSQL, limit, project)
}

// RemovePacks takes one round trip.
func (d *Driver) RemovePacks(ctx context.Context, project string, limit int) (int, error) {
	return d.dropPacks(ctx, "remove packs", removePacksSQL, limit, project)
}

func (d *Driver) dropPacks(ctx context.Context, what, sql string, limit int, arg any) (n int, err error) {
	err = d.optional(ctx, roundtrip.Write(what).Then(roundtrip.GuardStatement()).Query(sql, func(rows pgx.Rows) (err error) {
		n, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
		return err
	}, limit, rules.DropBytes, arg))
	if err != nil {
		return 0, err
	}
	return n, nil
}
