package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

var _ refdb.PackStore = (*Driver)(nil)

const (
	beginPackSQL = `
INSERT INTO packs (id, project, owner, bases, tips, base, parts, size, sum, time)
VALUES ($1, $2, $3, $4, $5, $6, 0, 0, '', clock_timestamp()) ON CONFLICT (id) DO NOTHING`

	// lockPackSQL is a statement of its own, so that the next one sees what others have done to the pack until it was locked.
	lockPackSQL = `SELECT FROM packs WHERE id = $1 FOR UPDATE`

	// storePartSQL decides as rules.StorePart does, and says what it found.
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

// StorePart takes one round trip.
func (d *Driver) StorePart(ctx context.Context, p refdb.PackPart) error {
	const what = "store a part of a pack"
	var row *rules.PackRow
	var stored bool
	var below int
	work := roundtrip.Write(what).Then(roundtrip.GuardStatement())
	if p.Number == 0 {
		work = work.Exec(beginPackSQL, p.Pack.ID, p.Pack.Project, p.Pack.Owner, rules.JoinIDs(p.Pack.Bases), rules.JoinIDs(p.Pack.Tips), p.Pack.Base)
	}
	work = work.Exec(lockPackSQL, p.Pack.ID).Query(storePartSQL, func(rows pgx.Rows) error {
		var found rules.PackRow
		row = nil
		_, err := pgx.ForEachRow(rows, []any{&found.Project, &found.Complete, &stored, &below}, func() error {
			row = &found
			return nil
		})
		return err
	}, p.Pack.ID, p.Number, p.Data, p.Last, p.Pack.Size, p.Pack.Sum, int64(p.Pack.Position))
	if err := d.optional(ctx, work); err != nil {
		return err
	}
	if _, refused := rules.StorePart(p, row, stored, below); refused != nil {
		return fmt.Errorf("%s: %w", what, refused)
	}
	return nil
}
