package spanner

import (
	"context"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

var _ refdb.PackStore = (*Driver)(nil)

// packsVersion is the version of the schema that brought the packs.
const packsVersion = 10

// What the column kind says of packs that are looked for among all others.
const (
	unusedPack = "unused"
	basePack   = "base" // it is complete

	basesSQL = `packs@{FORCE_INDEX=packs_kind} AS b WHERE b.kind = '` + basePack + `' AND b.project = @project`

	// isLaterSQL says that b comes after p.
	isLaterSQL = `(b.position > p.position OR b.position = p.position AND b.id > p.id)`
)

// keepsPacks reports whether the schema has tables for packs.
func (d *Driver) keepsPacks() bool { return d.version.Load() >= packsVersion }

// decidePacks is decide for what needs the tables of packs.
func decidePacks[T any](ctx context.Context, d *Driver, r request, read func(context.Context, *transaction) (T, error), plan func(*batch, T) error) error {
	if !d.keepsPacks() {
		return failed(r.what, refdb.ErrOldSchema)
	}
	_, err := decide(ctx, d, r, read, plan)
	return err
}

// readPacks is readRows for what needs the tables of packs.
func readPacks[T any](ctx context.Context, d *Driver, r request, rowOf func(*spanner.Row) (T, error), s spanner.Statement) ([]T, error) {
	if !d.keepsPacks() {
		return nil, failed(r.what, refdb.ErrOldSchema)
	}
	return readRows(ctx, d, r, rowOf, r.query(s))
}

const packForPartSQL = `
SELECT p.project, p.parts > 0, p.size,
  EXISTS (SELECT 1 FROM pack_parts AS x WHERE x.pack = @id AND x.number = @number),
  (SELECT COUNT(*) FROM pack_parts AS x WHERE x.pack = @id AND x.number < @below)
FROM packs AS p WHERE p.id = @id`

// A packForPart is what decides about a part of a pack.
type packForPart struct {
	row    *rules.PackRow // nil if there is none
	size   int64          // of all parts that are there
	stored bool           // the part is there
	below  int64          // how many parts before the last one are there
}

// StorePart implements refdb.PackStore.
func (d *Driver) StorePart(ctx context.Context, p refdb.PackPart) error {
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
	return decidePacks(ctx, d, request{tag: "refdb.storepart", what: "store a part of a pack"}, read, func(b *batch, found packForPart) error {
		write, refused := rules.StorePart(p, found.row, found.stored, int(found.below))
		if write {
			b.putPart(p, found)
		}
		return refused
	})
}

// foundPacksSQL selects which of a preparation's packs there are, for each of its rows.
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

// usePacks marks the packs of r as used, or says why it can't.
func (b *batch) usePacks(r *refdb.PrepareRequest, found []*foundPack) error {
	byID := make(map[string]*foundPack, len(found))
	for _, p := range found {
		byID[p.ID] = p
	}
	err := rules.UsePacks(*r, func(id string) *rules.PackRow {
		if p := byID[id]; p != nil {
			return &rules.PackRow{Project: p.Project, Complete: p.Complete}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for id, p := range byID {
		if !p.Used {
			b.usePack(id)
		}
	}
	return nil
}
