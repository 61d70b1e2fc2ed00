package sqlite

import (
	"context"
	"fmt"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

var _ refdb.PackStore = (*Driver)(nil)

const (
	// findPack says of a pack whether it is complete, whether a part of it is there and, if ?3, how many before that are.
	findPack = `
		SELECT project, parts > 0, EXISTS (SELECT 1 FROM pack_parts WHERE pack = ?1 AND number = ?2),
			CASE WHEN ?3 THEN (SELECT count(*) FROM pack_parts WHERE pack = ?1 AND number < ?2) END
		FROM packs WHERE id = ?1`

	beginPack = `
		INSERT INTO packs (id, project, owner, bases, tips, base, parts, size, sum, time)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, 0, '', ?7)`

	insertPart = `INSERT INTO pack_parts (pack, number, data) VALUES (?, ?, ?)`

	growPack = `UPDATE packs SET size = size + ?2, time = ?3 WHERE id = ?1`

	completePack = `
		UPDATE packs SET parts = ?2, size = ?3, sum = ?4, time = ?5, position = CASE WHEN base THEN ?6 END WHERE id = ?1`

	findPacks = `SELECT id, project, parts > 0, position IS NOT NULL FROM packs WHERE id IN (SELECT value FROM json_each(?))`

	// Without an operation the next change gets a position of its own.
	raisePosition = `UPDATE history_state SET position = position + 1, op = NULL`

	markPacks = `
		UPDATE packs SET position = (SELECT position FROM history_state)
		WHERE position IS NULL AND id IN (SELECT value FROM json_each(?))`
)

// rowsOfPart is about how many rows of a few bytes take as long as a part.
func rowsOfPart(p refdb.PackPart) int { return 1 + len(p.Data)/4096 }

// StorePart implements refdb.PackStore.
func (d *Driver) StorePart(ctx context.Context, p refdb.PackPart) error {
	const doing = "store a part of a pack"
	return d.optional(ctx, doing, "packs", d.decide(ctx, doing, rowsOfPart(p), func(t *tx) (refused, err error) {
		refused, err = t.storePart(p)
		if refused != nil {
			refused = fmt.Errorf("%s: %w", doing, refused)
		}
		return refused, err
	}))
}

func (t *tx) storePart(p refdb.PackPart) (refused, err error) {
	var found *rules.PackRow
	var stored bool
	var below int64
	err = t.query(func(r row) {
		found, stored, below = &rules.PackRow{Project: r.text(0), Complete: r.int(1) != 0}, r.int(2) != 0, r.int(3)
	}, findPack, p.Pack.ID, int64(p.Number), p.Last)
	if err != nil {
		return nil, err
	}
	write, refused := rules.StorePart(p, found, stored, int(below))
	if !write {
		return refused, nil
	}
	if found == nil {
		_, err = t.exec(beginPack, p.Pack.ID, p.Pack.Project, p.Pack.Owner, rules.JoinIDs(p.Pack.Bases), rules.JoinIDs(p.Pack.Tips), p.Pack.Base, t.now)
		if err != nil {
			return nil, err
		}
	}
	if _, err = t.exec(insertPart, p.Pack.ID, int64(p.Number), p.Data); err != nil {
		return nil, err
	}
	if p.Last {
		_, err = t.exec(completePack, p.Pack.ID, int64(p.Number+1), p.Pack.Size, p.Pack.Sum, t.now, int64(p.Pack.Position))
	} else {
		_, err = t.exec(growPack, p.Pack.ID, int64(len(p.Data)), t.now)
	}
	return nil, err
}

// usePacks marks the packs of r as used. It writes nothing if it refuses.
func (t *tx) usePacks(r refdb.PrepareRequest) (refused, err error) {
	if len(r.Packs) == 0 {
		return nil, nil
	}
	ids := asJSON(r.Packs)
	found := make(map[string]*rules.PackRow)
	unused := false
	err = t.query(func(row row) {
		found[row.text(0)] = &rules.PackRow{Project: row.text(1), Complete: row.int(2) != 0}
		unused = unused || row.int(3) == 0
	}, findPacks, ids)
	if err != nil {
		return nil, err
	}
	refused = rules.UsePacks(r, func(id string) *rules.PackRow { return found[id] })
	if refused != nil || !unused {
		return refused, nil
	}
	if _, err := t.exec(raisePosition); err != nil {
		return nil, err
	}
	_, err = t.exec(markPacks, ids)
	return nil, err
}
