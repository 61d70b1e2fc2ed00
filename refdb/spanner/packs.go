package spanner

import (
	"context"
	"fmt"
	"maps"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

var _ driver.PackStore = (*Driver)(nil)

// Values of the column kind, for packs that are searched for among all others.
const (
	unusedPack = "unused"
	basePack   = "base" // complete

	basesSQL = `packs@{FORCE_INDEX=packs_kind} AS b WHERE b.kind = '` + basePack + `' AND b.project = @project`

	// isLaterSQL is true if b comes after p.
	isLaterSQL = `(b.position > p.position OR b.position = p.position AND b.id > p.id)`
)

const packForPartSQL = `
SELECT p.project, p.parts > 0, p.size,
  EXISTS (SELECT 1 FROM pack_parts AS x WHERE x.pack = @id AND x.number = @number),
  (SELECT COUNT(*) FROM pack_parts AS x WHERE x.pack = @id AND x.number < @below)
FROM packs AS p WHERE p.id = @id`

// A packForPart holds what decides about a part of a pack.
type packForPart struct {
	row    *rules.PackRow // nil if the pack does not exist
	size   int64          // of all stored parts
	stored bool           // the part is stored
	below  int64          // number of stored parts before the last one
}

// StorePart implements driver.PackStore.
func (d *Driver) StorePart(ctx context.Context, p driver.PackPart) error {
	s := spanner.Statement{SQL: packForPartSQL, Params: map[string]any{"id": p.Pack.ID, "number": int64(p.Number), "below": int64(0)}}
	if p.Last {
		s.Params["below"] = int64(p.Number)
	}
	read := func(ctx context.Context, t *transaction) (found packForPart, err error) {
		err = t.query(ctx, s, func(row *spanner.Row) error {
			found.row = new(rules.PackRow)
			return row.Columns(&found.row.Project, &found.row.Complete, &found.size, &found.stored, &found.below)
		})
		return found, err
	}
	_, _, err := decide(ctx, d, request{tag: "refdb.storepart", what: "store a part of a pack"}, read, func(b *batch, found packForPart) (struct{}, error) {
		write, refused := rules.StorePart(p, found.row, found.stored, int(found.below))
		if write {
			b.putPart(p, found)
		}
		return struct{}{}, refused
	})
	return err
}

// foundPacksSQL selects, in each row, which of a preparation's packs exist.
const foundPacksSQL = `, ARRAY(
  SELECT AS STRUCT p.id, p.project, p.parts > 0 AS complete, p.position IS NOT NULL AS used
  FROM UNNEST(@packs) AS k JOIN@{JOIN_METHOD=APPLY_JOIN} packs AS p ON p.id = k)`

// A foundPack is a pack that a preparation may use.
type foundPack struct {
	ID       string `spanner:"id"`
	Project  string `spanner:"project"`
	Complete bool   `spanner:"complete"`
	Used     bool   `spanner:"used"`
}

// usePacks marks the packs of r as used, or returns the reason why it can't.
func (b *batch) usePacks(r *driver.PrepareRequest, found []*foundPack, bases []rules.Row) error {
	byID := make(map[string]*foundPack, len(found))
	for _, p := range found {
		byID[p.ID] = p
	}
	store, err := rules.UsePacks(*r, func(id string) *rules.PackRow {
		if p := byID[id]; p != nil {
			return &rules.PackRow{Project: p.Project, Complete: p.Complete}
		}
		return nil
	}, bases)
	if err != nil {
		return err
	}
	for id, p := range byID {
		if !p.Used {
			b.usePack(id)
		}
	}
	for _, p := range store {
		b.putPart(p, packForPart{})
		b.usePack(p.Pack.ID)
	}
	return nil
}

const (
	// usedPacksSQL selects the packs after a key, but none before the latest base. In each
	// condition, the second part implies the first, which bounds the range to read.
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

// Packs implements driver.PackStore. It requests one pack more than the page may have. A second
// request reads the data, as of the time of the first.
func (d *Driver) Packs(ctx context.Context, q driver.PackQuery) (page driver.PackPage, _ error) {
	r := request{tag: "refdb.packs", what: "list packs"}
	s := spanner.Statement{SQL: usedPacksSQL, Params: map[string]any{
		"project": q.Project, "after": instant(q.After.Position), "after_id": q.After.ID, "limit": int64(q.Limit) + 1,
	}}
	err := d.read(ctx, r, func(ctx context.Context, c *client) error {
		page = driver.PackPage{}
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
		return driver.PackPage{}, err
	}
	return page, nil
}

// inline reads the data of packs that fit into budget bytes, as of a time.
func (c *client) inline(ctx context.Context, r request, at time.Time, packs []driver.Pack, budget int) error {
	var keys []spanner.Key
	byID := make(map[string]*driver.Pack)
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

func readPack(row *spanner.Row) (p driver.Pack, err error) {
	var position time.Time
	var parts, age int64
	err = row.Columns(&p.ID, &p.Project, &p.Owner, &p.Prerequisites, &p.Tips, &p.Full, &position, &parts, &p.Size, &p.Sum, &age)
	p.Position, p.Parts, p.Age = positionOf(position), int(parts), micros(age)
	return p, err
}

// PackPart implements driver.PackStore.
func (d *Driver) PackPart(ctx context.Context, id string, number int) ([]byte, error) {
	r := request{tag: "refdb.packpart", what: "read a part of a pack"}
	s := spanner.Statement{SQL: partSQL, Params: map[string]any{"id": id, "number": int64(number)}}
	found, err := readRows(ctx, d, r, column[[]byte], r.query(s))
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, failed(r.what, fmt.Errorf("part %d of pack %s: %w", number, id, driver.ErrNoPack))
	}
	return found[0], nil
}

// PackUsage implements driver.PackStore.
func (d *Driver) PackUsage(ctx context.Context, project string) (driver.PackUsage, error) {
	s := spanner.Statement{SQL: usageSQL + ` AS p`}
	if project != "" {
		s = spanner.Statement{SQL: usageSQL + `@{FORCE_INDEX=packs_order} AS p WHERE p.project = @project`, Params: map[string]any{"project": project}}
	}
	r := request{tag: "refdb.packusage", what: "count packs"}
	rows, err := readRows(ctx, d, r, func(row *spanner.Row) (u driver.PackUsage, err error) {
		var packs, bases, unused int64
		err = row.Columns(&packs, &bases, &u.Size, &unused, &u.UnusedSize)
		u.Packs, u.FullPacks, u.Unused = int(packs), int(bases), int(unused)
		return u, err
	}, r.query(s))
	if err != nil {
		return driver.PackUsage{}, err
	}
	return rows[0], nil
}

const (
	supersededSQL = `p.project = @project AND EXISTS (SELECT 1 FROM ` + basesSQL + ` AND ` + isLaterSQL + `)`

	unusedSQL = `p.kind = '` + unusedPack + `'`

	abandonedSQL = unusedSQL + ` AND p.time < TIMESTAMP_SUB(CURRENT_TIMESTAMP(), INTERVAL @age MICROSECOND)`
)

// A packFilter selects packs to delete.
type packFilter struct {
	index  string // the index that finds them
	where  string // a condition on packs AS p
	params map[string]any
}

// statement selects columns of the packs in from that pass the filter.
func (f packFilter) statement(columns, from, name string, value any) spanner.Statement {
	params := map[string]any{name: value}
	maps.Copy(params, f.params)
	return spanner.Statement{SQL: `SELECT ` + columns + ` FROM ` + from + ` WHERE ` + f.where, Params: params}
}

// DropPack implements driver.PackStore.
func (d *Driver) DropPack(ctx context.Context, id string) error {
	_, err := d.deleteLarge(ctx, request{tag: "refdb.droppack", what: "drop a pack"}, packFilter{where: unusedSQL}, []packSize{{id: id}})
	return err
}

// DropAbandonedPacks implements driver.PackStore.
func (d *Driver) DropAbandonedPacks(ctx context.Context, olderThan time.Duration, limit int) (int, error) {
	return d.dropPacks(ctx, request{tag: "refdb.dropabandoned", what: "drop abandoned packs"},
		packFilter{"packs_kind", abandonedSQL, map[string]any{"age": olderThan.Microseconds()}}, limit)
}

// DropSupersededPacks implements driver.PackStore.
func (d *Driver) DropSupersededPacks(ctx context.Context, project string, limit int) (int, error) {
	return d.dropPacks(ctx, request{tag: "refdb.dropsuperseded", what: "drop superseded packs"},
		packFilter{"packs_order", supersededSQL, map[string]any{"project": project}}, limit)
}

// RemovePacks implements driver.PackStore.
func (d *Driver) RemovePacks(ctx context.Context, project string, limit int) (int, error) {
	return d.dropPacks(ctx, request{tag: "refdb.removepacks", what: "remove packs"},
		packFilter{"packs_order", `p.project = @project`, map[string]any{"project": project}}, limit)
}

// A packSize is a pack and its size in bytes.
type packSize struct {
	id   string
	size int64
}

func readPackSize(row *spanner.Row) (p packSize, err error) {
	err = row.Columns(&p.id, &p.size)
	return p, err
}

// dropPacks deletes packs, at most limit and as many as fit into a transaction. It finds them
// without locks first, because a transaction locks all rows that it reads. If other processes have
// changed all of those packs meanwhile, it searches again: 0 means that none is left.
func (d *Driver) dropPacks(ctx context.Context, r request, f packFilter, limit int) (int, error) {
	look := f.statement(`p.id, p.size`, `packs@{FORCE_INDEX=`+f.index+`} AS p`, "limit", int64(limit))
	look.SQL += ` LIMIT @limit`
	for {
		found, err := readRows(ctx, d, r, readPackSize, r.query(look))
		if err != nil || len(found) == 0 {
			return 0, err
		}
		for chunk := range chunksOf(rules.DropBytes, found, func(p packSize) int { return int(p.size) }) {
			drop := d.deletePacks
			if chunk[0].size > rules.DropBytes {
				drop = d.deleteLarge
			}
			if n, err := drop(ctx, r, f, chunk); n > 0 || err != nil {
				return n, err
			}
		}
	}
}

// deletePacks deletes those packs that pass the filter, with their parts, in one transaction. It
// returns their number.
func (d *Driver) deletePacks(ctx context.Context, r request, f packFilter, packs []packSize) (int, error) {
	ids := make([]string, len(packs))
	for i, p := range packs {
		ids[i] = p.id
	}
	s := f.statement(`p.id`, `UNNEST(@keys) AS k JOIN@{JOIN_METHOD=APPLY_JOIN} packs AS p ON p.id = k`, "keys", ids)
	read := func(ctx context.Context, t *transaction) (still []string, err error) {
		err = t.query(ctx, s, collect(&still, column[string]))
		return still, err
	}
	n, _, err := decide(ctx, d, r, read, func(b *batch, still []string) (int, error) {
		for _, id := range still {
			b.deletePack(id)
		}
		return len(still), nil
	})
	return n, err
}

// A largePack holds what decides about the next piece of a pack to delete.
type largePack struct {
	size        int64
	first, last spanner.NullInt64 // of the stored parts
}

// deleteLarge deletes a single pack, if it passes the filter, in pieces of rules.DropParts parts.
// It returns 1 if it deleted the pack.
func (d *Driver) deleteLarge(ctx context.Context, r request, f packFilter, pack []packSize) (n int, err error) {
	const first, last = `(SELECT MIN(x.number) FROM pack_parts AS x WHERE x.pack = p.id)`, `(SELECT MAX(x.number) FROM pack_parts AS x WHERE x.pack = p.id)`
	for more := true; more && err == nil; {
		s := f.statement(`p.size, `+first+`, `+last, `packs AS p`, "id", pack[0].id)
		s.SQL += ` AND p.id = @id`
		read := func(ctx context.Context, t *transaction) (found []largePack, err error) {
			err = t.query(ctx, s, collect(&found, func(row *spanner.Row) (p largePack, err error) {
				err = row.Columns(&p.size, &p.first, &p.last)
				return p, err
			}))
			return found, err
		}
		n, _, err = decide(ctx, d, r, read, func(b *batch, found []largePack) (int, error) {
			more = false
			for _, p := range found {
				if next := p.first.Int64 + rules.DropParts; p.last.Int64 >= next {
					more = true
					b.deletePiece(pack[0].id, p, next)
				} else {
					b.deletePack(pack[0].id)
				}
			}
			return len(found), nil
		})
		f = packFilter{where: unusedSQL} // the condition that selects it from now on
	}
	return n, err
}
