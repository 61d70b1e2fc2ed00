package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

var _ driver.PackStore = (*Driver)(nil)

const (
	beginPackSQL = `
INSERT INTO packs (id, project, owner, bases, tips, base, parts, size, sum, time)
VALUES ($1, $2, $3, $4, $5, $6, 0, 0, '', clock_timestamp()) ON CONFLICT (id) DO NOTHING`

	// lockPackSQL is a separate statement, so that the next one sees all changes that were made to
	// the pack before it was locked.
	lockPackSQL = `SELECT FROM packs WHERE id = $1 FOR UPDATE`

	// storePartSQL decides as rules.StorePart does, and returns the values that it decided on.
	//
	//	$1 pack  $2 number  $3 data  $4 whether it is the last  $5 size and $6 sum of the whole pack  $7 position, if it is a base
	storePartSQL = `
WITH found AS MATERIALIZED (
  SELECT *, NOT complete AND NOT stored AND below = CASE WHEN $4 THEN $2 ELSE 0 END AS fits
  FROM (
    SELECT project, parts > 0 AS complete, EXISTS (SELECT FROM pack_parts WHERE pack = $1 AND number = $2) AS stored,
           CASE WHEN $4 THEN (SELECT count(*) FROM pack_parts WHERE pack = $1 AND number < $2) ELSE 0 END AS below
    FROM packs WHERE id = $1
  ) AS standing
), part AS (
  INSERT INTO pack_parts (pack, number, data) SELECT $1, $2, $3 FROM found WHERE fits
), changed AS (
  UPDATE packs SET time = clock_timestamp(), size = CASE WHEN $4 THEN $5 ELSE size + length($3::bytea) END,
                   parts = CASE WHEN $4 THEN $2 + 1 ELSE 0 END, sum = CASE WHEN $4 THEN $6 ELSE '' END,
                   position = CASE WHEN $4 AND base THEN $7::bigint END
  FROM found WHERE fits AND id = $1
)
SELECT project, complete, stored, below FROM found`
)

// storing returns the statements that store a part. read reads the answer of the last one, and may
// be nil.
func storing(p driver.PackPart, read func(pgx.Rows) error) (statements []roundtrip.Statement) {
	if p.Number == 0 {
		statements = append(statements, roundtrip.Exec(beginPackSQL,
			p.Pack.ID, p.Pack.Project, p.Pack.Owner, rules.JoinIDs(p.Pack.Prerequisites), rules.JoinIDs(p.Pack.Tips), p.Pack.Full))
	}
	return append(statements, roundtrip.Exec(lockPackSQL, p.Pack.ID), roundtrip.Query(storePartSQL, read,
		p.Pack.ID, p.Number, p.Data, p.Last, p.Pack.Size, p.Pack.Sum, int64(p.Pack.Position)))
}

// StorePart takes one round trip.
func (d *Driver) StorePart(ctx context.Context, p driver.PackPart) error {
	const what = "store a part of a pack"
	var row *rules.PackRow
	var stored bool
	var below int
	work := roundtrip.Write(what).Then(storing(p, func(rows pgx.Rows) error {
		var found rules.PackRow
		row = nil
		_, err := pgx.ForEachRow(rows, []any{&found.Project, &found.Complete, &stored, &below}, func() error {
			row = &found
			return nil
		})
		return err
	})...)
	if err := d.pools.Do(ctx, work); err != nil {
		return err
	}
	if _, refused := rules.StorePart(p, row, stored, below); refused != nil {
		return fmt.Errorf("%s: %w", what, refused)
	}
	return nil
}

// latestBase selects the key of the latest complete base of a project.
func latestBase(project string) string {
	return `(SELECT position, id FROM packs WHERE project = ` + project + ` AND base AND position IS NOT NULL ORDER BY position DESC, id DESC LIMIT 1)`
}

var (
	// packsSQL returns a page of used packs and one more, or a row without a pack, and with each
	// row the position up to which the history is complete. All is from one snapshot.
	//
	//	$1 project  $2 position and $3 ID to begin after  $4 how many  $5 bytes of data, as in rules.Inlined
	packsSQL = `
WITH history_end AS MATERIALIZED (SELECT ` + upto + ` AS upto FROM history_state WHERE id = 1)
SELECT upto, page.id, owner, bases, tips, base, position, parts, size, sum, clock_timestamp() - time,
       CASE WHEN n <= $4 AND parts = 1 AND inlined <= $5 THEN (SELECT data FROM pack_parts WHERE pack = page.id AND number = 0) END
FROM history_end LEFT JOIN (
  SELECT *, row_number() OVER in_order AS n, sum(size) FILTER (WHERE parts = 1) OVER in_order AS inlined
  FROM (
    SELECT * FROM packs
    WHERE project = $1 AND position IS NOT NULL AND (position, id) > ($2::bigint, $3::text) AND NOT coalesce((position, id) < ` + latestBase("$1") + `, false)
    ORDER BY position, id LIMIT $4::bigint + 1
  ) AS page
  WINDOW in_order AS (ORDER BY position, id)
) AS page ON true
ORDER BY position, page.id`

	packPartSQL = `SELECT data FROM pack_parts JOIN packs ON id = pack WHERE pack = $1 AND number = $2 AND parts > 0`

	packUsageSQL = `
SELECT count(position), count(*) FILTER (WHERE base AND position IS NOT NULL), coalesce(sum(size) FILTER (WHERE position IS NOT NULL), 0)::bigint,
       count(*) FILTER (WHERE position IS NULL), coalesce(sum(size) FILTER (WHERE position IS NULL), 0)::bigint
FROM packs WHERE $1 = '' OR project = $1`
)

// A packRow holds the columns of packsSQL for a pack, which are NULL if there is none.
type packRow struct {
	id, owner, bases, tips, sum *string
	base                        *bool
	position, size              *int64
	parts                       *int
	age                         *time.Duration
	data                        []byte
}

func (p *packRow) into() []any {
	return []any{&p.id, &p.owner, &p.bases, &p.tips, &p.base, &p.position, &p.parts, &p.size, &p.sum, &p.age, &p.data}
}

func (p *packRow) pack(project string) driver.Pack {
	return driver.Pack{
		ID: *p.id, Project: project, Owner: *p.owner, Prerequisites: rules.SplitIDs(*p.bases), Tips: rules.SplitIDs(*p.tips), Full: *p.base,
		Position: driver.Position(*p.position), Parts: *p.parts, Size: *p.size, Sum: *p.sum, Age: *p.age, Data: p.data,
	}
}

// Packs takes one statement.
func (d *Driver) Packs(ctx context.Context, q driver.PackQuery) (page driver.PackPage, err error) {
	err = d.pools.Do(ctx, roundtrip.Read("list packs").Query(packsSQL, func(rows pgx.Rows) error {
		page = driver.PackPage{}
		var row packRow
		_, err := pgx.ForEachRow(rows, append([]any{&page.Upto}, row.into()...), func() error {
			switch {
			case row.id == nil:
			case len(page.Packs) == q.Limit:
				page.More = true
			default:
				page.Packs = append(page.Packs, row.pack(q.Project))
			}
			return nil
		})
		return err
	}, q.Project, int64(q.After.Position), q.After.ID, q.Limit, q.Inline))
	if err != nil {
		return driver.PackPage{}, err
	}
	return page, nil
}

// PackPart takes one statement.
func (d *Driver) PackPart(ctx context.Context, id string, number int) (data []byte, err error) {
	const what = "read a part of a pack"
	err = d.pools.Do(ctx, roundtrip.Read(what).Query(packPartSQL, func(rows pgx.Rows) error {
		data = nil
		_, err := pgx.ForEachRow(rows, []any{&data}, func() error { return nil })
		return err
	}, id, number))
	if err == nil && data == nil {
		err = fmt.Errorf("%s: part %d of pack %s: %w", what, number, id, driver.ErrNoPack)
	}
	if err != nil {
		return nil, err
	}
	return data, nil
}

// PackUsage takes one statement.
func (d *Driver) PackUsage(ctx context.Context, project string) (u driver.PackUsage, err error) {
	err = d.pools.Do(ctx, roundtrip.Read("count packs").Query(packUsageSQL, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&u.Packs, &u.FullPacks, &u.Size, &u.Unused, &u.UnusedSize}, func() error { return nil })
		return err
	}, project))
	if err != nil {
		return driver.PackUsage{}, err
	}
	return u, nil
}

// A dropSQL holds the statements that delete the packs that a condition selects.
type dropSQL struct {
	packs string // deletes as many packs as fit into one transaction
	piece string // deletes the first parts of a larger pack, which makes the pack incomplete and unused
	whole string // deletes that pack at once, for roles that may not delete parts
}

// dropPacksSQL locks packs before it deletes them, because a preparation that uses a pack keeps it.
// The order is that of an index. Unused packs are locked in the order of their IDs, as a
// preparation locks them. The parts of a pack are deleted by their foreign key.
//
//	$1 the value that the condition compares with
//	packs: $2 how many  $3 bytes; it returns how many it deleted, otherwise a larger pack, and whether the role may delete parts
//	piece: $2 the pack  $3 how many parts; it returns whether the pack was selected, and how many parts it deleted
func dropPacksSQL(order, selected string) dropSQL {
	return dropSQL{
		packs: `
WITH locked AS MATERIALIZED (
  SELECT id, size, position FROM packs WHERE ` + selected + ` ORDER BY ` + order + ` LIMIT $2 FOR UPDATE
), counted AS MATERIALIZED (
  SELECT id, size, sum(size) OVER (ORDER BY position, id) AS total FROM locked
), deleted AS (
  DELETE FROM packs USING counted WHERE packs.id = counted.id AND total <= $3 RETURNING packs.id
)
SELECT (SELECT count(*) FROM deleted), coalesce((SELECT id FROM counted WHERE total = size AND size > $3), ''), has_table_privilege('pack_parts', 'DELETE')`,
		piece: `
WITH pack AS MATERIALIZED (
  SELECT id FROM packs WHERE id = $2 AND ` + selected + ` FOR UPDATE
), first AS MATERIALIZED (
  SELECT pack, number FROM pack_parts WHERE pack = (SELECT id FROM pack) ORDER BY number LIMIT $3
), parts AS (
  DELETE FROM pack_parts USING first WHERE pack_parts.pack = first.pack AND pack_parts.number = first.number RETURNING octet_length(data) AS size
), marked AS (
  UPDATE packs SET position = NULL, parts = 0, sum = '', size = packs.size - (SELECT coalesce(sum(size), 0) FROM parts)
  FROM pack WHERE packs.id = pack.id
)
SELECT EXISTS (SELECT FROM pack), (SELECT count(*) FROM parts)`,
		whole: `WITH deleted AS (DELETE FROM packs WHERE id = $2 AND ` + selected + ` RETURNING id) SELECT count(*) > 0 FROM deleted`,
	}
}

// isUnused selects a pack if it was not used.
const isUnused = `id = $1 AND position IS NULL`

var (
	dropUnusedSQL     = dropPacksSQL(`id`, isUnused)
	dropAbandonedSQL  = dropPacksSQL(`id`, `position IS NULL AND time < (SELECT clock_timestamp()) - $1 * interval '1 microsecond'`)
	dropSupersededSQL = dropPacksSQL(`position, id`, `project = $1 AND position IS NOT NULL AND (position, id) < `+latestBase("$1"))
	removePacksSQL    = dropPacksSQL(`position, id`, `project = $1`)
)

// DropPack takes one round trip, as do the methods below, unless a pack is large.
func (d *Driver) DropPack(ctx context.Context, id string) error {
	_, err := d.dropPacks(ctx, "drop a pack", dropUnusedSQL, 1, id)
	return err
}

// DropAbandonedPacks implements driver.PackStore.
func (d *Driver) DropAbandonedPacks(ctx context.Context, olderThan time.Duration, limit int) (int, error) {
	return d.dropPacks(ctx, "drop abandoned packs", dropAbandonedSQL, limit, olderThan.Microseconds())
}

// DropSupersededPacks implements driver.PackStore.
func (d *Driver) DropSupersededPacks(ctx context.Context, project string, limit int) (int, error) {
	return d.dropPacks(ctx, "drop superseded packs", dropSupersededSQL, limit, project)
}

// RemovePacks implements driver.PackStore.
func (d *Driver) RemovePacks(ctx context.Context, project string, limit int) (int, error) {
	return d.dropPacks(ctx, "remove packs", removePacksSQL, limit, project)
}

func (d *Driver) dropPacks(ctx context.Context, what string, sql dropSQL, limit int, arg any) (n int, err error) {
	for {
		var large string
		var deletesParts bool
		err := d.dropRow(ctx, what, sql.packs, []any{&n, &large, &deletesParts}, arg, limit, rules.DropBytes)
		if err != nil || n > 0 || large == "" {
			return n, err
		}
		// Another process may have been faster, or the pack may no longer be selected: then there
		// may be other packs.
		switch gone, err := d.dropLarge(ctx, what, sql, arg, large, deletesParts); {
		case err != nil:
			return 0, err
		case gone:
			return 1, nil
		}
	}
}

// dropLarge deletes a pack piece by piece, and reports whether it did. A role that was created
// before the privilege to delete parts existed deletes the pack at once.
func (d *Driver) dropLarge(ctx context.Context, what string, sql dropSQL, arg any, id string, deletesParts bool) (gone bool, err error) {
	for part := rules.DropParts; deletesParts && part > 0; {
		var found bool
		if err := d.dropRow(ctx, what, sql.piece, []any{&found, &part}, arg, id, rules.DropParts); err != nil || !found {
			return false, err
		}
		sql, arg = dropUnusedSQL, id // the condition that selects it from now on
	}
	err = d.dropRow(ctx, what, sql.whole, []any{&gone}, arg, id)
	return gone, err
}

// dropRow runs a statement that returns one row.
func (d *Driver) dropRow(ctx context.Context, what, sql string, into []any, args ...any) error {
	return d.pools.Do(ctx, roundtrip.Write(what).Query(sql, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, into, func() error { return nil })
		return err
	}, args...))
}
