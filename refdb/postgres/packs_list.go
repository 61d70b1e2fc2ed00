package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

// latestBase is the key of the latest complete base of a project.
func latestBase(project string) string {
	return `(SELECT position, id FROM packs WHERE project = ` + project + ` AND base AND position IS NOT NULL ORDER BY position DESC, id DESC LIMIT 1)`
}

var (
	// packsSQL returns a page of used packs and one more, or a row without a pack, each with how far the positions are
	// complete. All is from one snapshot.
	//
	//	$1 project  $2 position and $3 ID to begin after  $4 how many  $5 bytes of data, as rules.Inlined has it
	packsSQL = `
SELECT ` + upto + ` AS upto, page.id, owner, bases, tips, base, position, parts, size, sum, clock_timestamp() - time,
       CASE WHEN n <= $4 AND parts = 1 AND inlined <= $5 THEN (SELECT data FROM pack_parts WHERE pack = page.id AND number = 0) END
FROM history_state LEFT JOIN (
  SELECT *, row_number() OVER in_order AS n, sum(size) FILTER (WHERE parts = 1) OVER in_order AS inlined
  FROM (
    SELECT * FROM packs
    WHERE project = $1 AND position IS NOT NULL AND (position, id) > ($2::bigint, $3::text) AND NOT coalesce((position, id) < ` + latestBase("$1") + `, false)
    ORDER BY position, id LIMIT $4::bigint + 1
  ) AS page
  WINDOW in_order AS (ORDER BY position, id)
) AS page ON true
WHERE history_state.id = 1 ORDER BY position, page.id`

	packPartSQL = `SELECT data FROM pack_parts JOIN packs ON id = pack WHERE pack = $1 AND number = $2 AND parts > 0`

	packUsageSQL = `
SELECT count(position), count(*) FILTER (WHERE base AND position IS NOT NULL), coalesce(sum(size) FILTER (WHERE position IS NOT NULL), 0)::bigint,
       count(*) FILTER (WHERE position IS NULL), coalesce(sum(size) FILTER (WHERE position IS NULL), 0)::bigint
FROM packs WHERE $1 = '' OR project = $1`
)

// A packRow is what packsSQL says of a pack, if there is one.
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

func (p *packRow) pack(project string) refdb.Pack {
	return refdb.Pack{
		ID: *p.id, Project: project, Owner: *p.owner, Bases: rules.SplitIDs(*p.bases), Tips: rules.SplitIDs(*p.tips), Base: *p.base,
		Position: refdb.Position(*p.position), Parts: *p.parts, Size: *p.size, Sum: *p.sum, Age: *p.age, Data: p.data,
	}
}

// Packs reads in one statement.
func (d *Driver) Packs(ctx context.Context, q refdb.PackQuery) (page refdb.PackPage, err error) {
	err = d.optional(ctx, roundtrip.Read("list packs").Query(packsSQL, func(rows pgx.Rows) error {
		page = refdb.PackPage{}
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
		return refdb.PackPage{}, err
	}
	return page, nil
}

// PackPart reads in one statement.
func (d *Driver) PackPart(ctx context.Context, id string, number int) (data []byte, err error) {
	const what = "read a part of a pack"
	err = d.optional(ctx, roundtrip.Read(what).Query(packPartSQL, func(rows pgx.Rows) error {
		data = nil
		_, err := pgx.ForEachRow(rows, []any{&data}, func() error { return nil })
		return err
	}, id, number))
	if err == nil && data == nil {
		err = fmt.Errorf("%s: part %d of pack %s: %w", what, number, id, refdb.ErrNoPack)
	}
	if err != nil {
		return nil, err
	}
	return data, nil
}

// PackUsage counts in one statement.
func (d *Driver) PackUsage(ctx context.Context, project string) (u refdb.PackUsage, err error) {
	err = d.optional(ctx, roundtrip.Read("count packs").Query(packUsageSQL, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&u.Packs, &u.Bases, &u.Size, &u.Unused, &u.UnusedSize}, func() error { return nil })
		return err
	}, project))
	if err != nil {
		return refdb.PackUsage{}, err
	}
	return u, nil
}
