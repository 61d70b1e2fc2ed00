package spanner

import (
	"context"
	"fmt"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

const (
	// usedPacksSQL selects what comes after a key, but nothing before the latest base. The first part of each condition is implied by the
	// second, and bounds the range to read.
	usedPacksSQL = `
WITH latest AS (SELECT b.position, b.id FROM ` + basesSQL + ` ORDER BY b.position DESC, b.id DESC LIMIT 1)
SELECT p.id, p.project, p.owner, p.bases, p.tips, p.base, p.position, p.parts, p.size, p.sum, TIMESTAMP_DIFF(CURRENT_TIMESTAMP(), p.time, MICROSECOND)
FROM packs@{FORCE_INDEX=packs_order} AS p
WHERE p.project = @project AND p.position >= @after AND (p.position > @after OR p.id > @after_id)
  AND p.position >= IFNULL((SELECT position FROM latest), @after)
  AND NOT EXISTS (SELECT 1 FROM latest AS b WHERE ` + isLaterSQL + `)
ORDER BY p.position, p.id LIMIT @limit`

	partSQL = `SELECT x.data FROM packs AS p JOIN pack_parts AS x ON x.pack = p.id WHERE p.id = @id AND p.parts > 0 AND x.number = @number`

	usageSQL = `
SELECT COUNTIF(p.position IS NOT NULL), COUNTIF(p.position IS NOT NULL AND p.base), IFNULL(SUM(IF(p.position IS NULL, 0, p.size)), 0),
  COUNTIF(p.position IS NULL), IFNULL(SUM(IF(p.position IS NULL, p.size, 0)), 0)
FROM packs`
)

// Packs implements refdb.PackStore. It asks for one pack more than the page may have. Data comes by a second request, for what the
// database had at the time of the first.
func (d *Driver) Packs(ctx context.Context, q refdb.PackQuery) (page refdb.PackPage, _ error) {
	r := request{tag: "refdb.packs", what: "list packs"}
	if !d.keepsPacks() {
		return page, failed(r.what, refdb.ErrOldSchema)
	}
	s := spanner.Statement{SQL: usedPacksSQL, Params: map[string]any{
		"project": q.Project, "after": instant(q.After.Position), "after_id": q.After.ID, "limit": int64(q.Limit) + 1,
	}}
	err := d.read(ctx, r, func(ctx context.Context, c *client) error {
		page = refdb.PackPage{}
		txn := c.Single()
		if err := r.query(s)(ctx, txn).Do(collect(&page.Packs, readPack)); err != nil {
			return err
		}
		at, err := txn.Timestamp()
		if err != nil {
			return err
		}
		page.Upto = positionOf(at)
		if page.More = len(page.Packs) > q.Limit; page.More {
			page.Packs = page.Packs[:q.Limit]
		}
		return c.inline(ctx, r, at, page.Packs, q.Inline)
	})
	if err != nil {
		return refdb.PackPage{}, err
	}
	return page, nil
}

// inline reads the data of packs that fit into so many bytes, as of a time.
func (c *client) inline(ctx context.Context, r request, at time.Time, packs []refdb.Pack, budget int) error {
	var keys []spanner.Key
	byID := make(map[string]*refdb.Pack)
	for _, i := range rules.Inlined(packs, budget) {
		keys = append(keys, spanner.Key{packs[i].ID, 0})
		byID[packs[i].ID] = &packs[i]
	}
	if len(keys) == 0 {
		return nil
	}
	rows := c.Single().WithTimestampBound(spanner.ReadTimestamp(at)).ReadWithOptions(ctx, "pack_parts",
		spanner.KeySetFromKeys(keys...), []string{"pack", "data"}, &spanner.ReadOptions{RequestTag: r.tag})
	return rows.Do(func(row *spanner.Row) error {
		var id string
		var data []byte
		if err := row.Columns(&id, &data); err != nil {
			return err
		}
		byID[id].Data = data
		return nil
	})
}

func readPack(row *spanner.Row) (p refdb.Pack, err error) {
	var position time.Time
	var parts, age int64
	err = row.Columns(&p.ID, &p.Project, &p.Owner, &p.Bases, &p.Tips, &p.Base, &position, &parts, &p.Size, &p.Sum, &age)
	p.Position, p.Parts, p.Age = positionOf(position), int(parts), micros(age)
	return p, err
}

// PackPart implements refdb.PackStore.
func (d *Driver) PackPart(ctx context.Context, id string, number int) ([]byte, error) {
	r := request{tag: "refdb.packpart", what: "read a part of a pack"}
	s := spanner.Statement{SQL: partSQL, Params: map[string]any{"id": id, "number": int64(number)}}
	found, err := readPacks(ctx, d, r, column[[]byte], s)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, failed(r.what, fmt.Errorf("part %d of pack %s: %w", number, id, refdb.ErrNoPack))
	}
	return found[0], nil
}

// PackUsage implements refdb.PackStore.
func (d *Driver) PackUsage(ctx context.Context, project string) (refdb.PackUsage, error) {
	s := spanner.Statement{SQL: usageSQL + ` AS p`}
	if project != "" {
		s = spanner.Statement{SQL: usageSQL + `@{FORCE_INDEX=packs_order} AS p WHERE p.project = @project`, Params: map[string]any{"project": project}}
	}
	rows, err := readPacks(ctx, d, request{tag: "refdb.packusage", what: "count packs"}, func(row *spanner.Row) (u refdb.PackUsage, err error) {
		var packs, bases, unused int64
		err = row.Columns(&packs, &bases, &u.Size, &unused, &u.UnusedSize)
		u.Packs, u.Bases, u.Unused = int(packs), int(bases), int(unused)
		return u, err
	}, s)
	if err != nil {
		return refdb.PackUsage{}, err
	}
	return rows[0], nil
}
