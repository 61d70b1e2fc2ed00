package spanner

import (
	"context"
	"maps"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

const (
	supersededSQL = `p.project = @project AND EXISTS (SELECT 1 FROM ` + basesSQL + ` AND ` + isLaterSQL + `)`

	unusedSQL = `p.kind = '` + unusedPack + `'`

	abandonedSQL = unusedSQL + ` AND p.time < TIMESTAMP_SUB(CURRENT_TIMESTAMP(), INTERVAL @age MICROSECOND)`
)

// A packFilter selects packs to delete.
type packFilter struct {
	index  string // that finds them
	where  string // about packs AS p
	params map[string]any
}

// statement selects columns of the packs in from that pass the filter.
func (f packFilter) statement(columns, from, name string, value any) spanner.Statement {
	params := map[string]any{name: value}
	maps.Copy(params, f.params)
	return spanner.Statement{SQL: `SELECT ` + columns + ` FROM ` + from + ` WHERE ` + f.where, Params: params}
}

// DropPack implements refdb.PackStore.
func (d *Driver) DropPack(ctx context.Context, id string) error {
	_, err := d.deletePacks(ctx, request{tag: "refdb.droppack", what: "drop a pack"}, packFilter{where: unusedSQL}, []packSize{{id: id}})
	return err
}

// DropAbandonedPacks implements refdb.PackStore.
func (d *Driver) DropAbandonedPacks(ctx context.Context, olderThan time.Duration, limit int) (int, error) {
	return d.dropPacks(ctx, request{tag: "refdb.dropabandoned", what: "drop abandoned packs"},
		packFilter{"packs_kind", abandonedSQL, map[string]any{"age": olderThan.Microseconds()}}, limit)
}

// DropSupersededPacks implements refdb.PackStore.
func (d *Driver) DropSupersededPacks(ctx context.Context, project string, limit int) (int, error) {
	return d.dropPacks(ctx, request{tag: "refdb.dropsuperseded", what: "drop superseded packs"},
		packFilter{"packs_order", supersededSQL, map[string]any{"project": project}}, limit)
}

// RemovePacks implements refdb.PackStore.
func (d *Driver) RemovePacks(ctx context.Context, project string, limit int) (int, error) {
	return d.dropPacks(ctx, request{tag: "refdb.removepacks", what: "remove packs"},
		packFilter{"packs_order", `p.project = @project`, map[string]any{"project": project}}, limit)
}

// A packSize is a pack that was found, and its bytes.
type packSize struct {
	id   string
	size int64
}

func readPackSize(row *spanner.Row) (p packSize, err error) {
	err = row.Columns(&p.id, &p.size)
	return p, err
}

// dropPacks deletes packs, at most limit and as many as fit into a transaction. It finds them without locks first, because a
// transaction locks all rows that it reads. If others changed all of those meanwhile it goes on to more: 0 means that none is left.
func (d *Driver) dropPacks(ctx context.Context, r request, f packFilter, limit int) (int, error) {
	look := f.statement(`p.id, p.size`, `packs@{FORCE_INDEX=`+f.index+`} AS p`, "limit", int64(limit))
	look.SQL += ` LIMIT @limit`
	for {
		found, err := readPacks(ctx, d, r, readPackSize, look)
		if err != nil || len(found) == 0 {
			return 0, err
		}
		for chunk := range chunksOf(rules.DropBytes, found, func(p packSize) int { return int(p.size) }) {
			if n, err := d.deletePacks(ctx, r, f, chunk); n > 0 || err != nil {
				return n, err
			}
		}
	}
}

// deletePacks deletes those packs that pass the filter, with their parts, in one transaction. It returns how many.
func (d *Driver) deletePacks(ctx context.Context, r request, f packFilter, packs []packSize) (n int, err error) {
	ids := make([]string, len(packs))
	for i, p := range packs {
		ids[i] = p.id
	}
	s := f.statement(`p.id`, `UNNEST(@keys) AS k JOIN@{JOIN_METHOD=APPLY_JOIN} packs AS p ON p.id = k`, "keys", ids)
	read := func(ctx context.Context, t *transaction) (still []string, err error) {
		err = t.query(ctx, s, collect(&still, column[string]))
		return still, err
	}
	err = decidePacks(ctx, d, r, read, func(b *batch, still []string) error {
		for _, id := range still {
			b.deletePack(id)
		}
		n = len(still)
		return nil
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}
