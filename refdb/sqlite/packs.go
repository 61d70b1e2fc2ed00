package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

var _ driver.PackStore = (*Driver)(nil)

const (
	// findPack returns whether a pack is complete, whether a part of it is stored and, if ?3, how
	// many parts before it are stored.
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

	// Without an operation, the next change gets a new position.
	raisePosition = `UPDATE history_state SET position = position + 1, op = NULL`

	markPacks = `
		UPDATE packs SET position = (SELECT position FROM history_state)
		WHERE position IS NULL AND id IN (SELECT value FROM json_each(?))`
)

// rowsOfPart returns the number of rows of a few bytes that take about as long as a part.
func rowsOfPart(p driver.PackPart) int { return 1 + len(p.Data)/4096 }

// StorePart implements driver.PackStore.
func (d *Driver) StorePart(ctx context.Context, p driver.PackPart) error {
	const doing = "store a part of a pack"
	return d.decide(ctx, doing, rowsOfPart(p), func(t *tx) (refused, err error) {
		refused, err = t.storePart(p)
		if refused != nil {
			refused = fmt.Errorf("%s: %w", doing, refused)
		}
		return refused, err
	})
}

func (t *tx) storePart(p driver.PackPart) (refused, err error) {
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
		_, err = t.exec(beginPack, p.Pack.ID, p.Pack.Project, p.Pack.Owner, rules.JoinIDs(p.Pack.Prerequisites), rules.JoinIDs(p.Pack.Tips), p.Pack.Full, t.now)
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

// usePacks marks the packs of r as used. It writes nothing if it refuses r.
func (t *tx) usePacks(r driver.PrepareRequest) (refused, err error) {
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
	var bases []rules.Row
	if len(r.RequiredValues) > 0 {
		if bases, err = t.rows(r.Project, rules.RequiredRefs(r.RequiredValues)); err != nil {
			return nil, err
		}
	}
	store, refused := rules.UsePacks(r, func(id string) *rules.PackRow { return found[id] }, bases)
	if refused != nil || !unused && len(store) == 0 {
		return refused, nil
	}
	for _, p := range store {
		if refused, err := t.storePart(p); refused != nil || err != nil {
			return refused, err
		}
	}
	if _, err := t.exec(raisePosition); err != nil {
		return nil, err
	}
	_, err = t.exec(markPacks, ids)
	return nil, err
}

const (
	// latestBase is the key of the latest complete base of the project ?1.
	latestBase = `(SELECT position, id FROM packs WHERE project = ?1 AND position IS NOT NULL AND base ORDER BY position DESC, id DESC LIMIT 1)`

	readPosition = `SELECT position FROM history_state`

	listPacks = `
		SELECT id, owner, bases, tips, base, position, parts, size, sum, time FROM packs
		WHERE project = ?1 AND position IS NOT NULL AND (position, id) > (?2, ?3) AND NOT coalesce((position, id) < ` + latestBase + `, false)
		ORDER BY position, id LIMIT ?4`

	readPart = `
		SELECT data FROM pack_parts WHERE pack = ?1 AND number = ?2 AND EXISTS (SELECT 1 FROM packs WHERE id = ?1 AND parts > 0)`

	packUsage = `
		SELECT count(position), coalesce(sum(base AND position IS NOT NULL), 0), coalesce(sum(size) FILTER (WHERE position IS NOT NULL), 0),
			count(*) FILTER (WHERE position IS NULL), coalesce(sum(size) FILTER (WHERE position IS NULL), 0)
		FROM packs WHERE ?1 = '' OR project = ?1`
)

// Packs implements driver.PackStore.
func (d *Driver) Packs(ctx context.Context, q driver.PackQuery) (driver.PackPage, error) {
	return snapshot(ctx, d, "list packs", func(c *conn) (page driver.PackPage, err error) {
		if err := c.query(ctx, func(r row) { page.Upto = driver.Position(r.int(0)) }, readPosition); err != nil {
			return page, err
		}
		now := d.now()
		err = c.query(ctx, func(r row) { page.Packs = append(page.Packs, packOf(q.Project, now, r)) },
			listPacks, q.Project, int64(q.After.Position), q.After.ID, int64(q.Limit)+1)
		if err != nil {
			return page, err
		}
		if page.More = len(page.Packs) > q.Limit; page.More {
			page.Packs = page.Packs[:q.Limit]
		}
		for _, i := range rules.Inlined(page.Packs, q.Inline) {
			p := &page.Packs[i]
			if err := c.query(ctx, func(r row) { p.Data = r.bytes(0) }, readPart, p.ID, int64(0)); err != nil {
				return page, err
			}
		}
		return page, nil
	})
}

// packOf reads the columns of listPacks.
func packOf(project string, now int64, r row) driver.Pack {
	return driver.Pack{
		ID: r.text(0), Project: project, Owner: r.text(1), Prerequisites: rules.SplitIDs(r.text(2)), Tips: rules.SplitIDs(r.text(3)), Full: r.int(4) != 0,
		Position: driver.Position(r.int(5)), Parts: int(r.int(6)), Size: r.int(7), Sum: r.text(8), Age: durationOf(now - r.int(9)),
	}
}

// PackPart implements driver.PackStore.
func (d *Driver) PackPart(ctx context.Context, id string, number int) ([]byte, error) {
	const doing = "read a part of a pack"
	data, err := read(ctx, d, doing, func(c *conn) (data []byte, err error) {
		err = c.query(ctx, func(r row) { data = r.bytes(0) }, readPart, id, int64(number))
		return data, err
	})
	if err == nil && data == nil {
		err = fmt.Errorf("%s: part %d of pack %s: %w", doing, number, id, driver.ErrNoPack)
	}
	return data, err
}

// PackUsage implements driver.PackStore.
func (d *Driver) PackUsage(ctx context.Context, project string) (driver.PackUsage, error) {
	return read(ctx, d, "count packs", func(c *conn) (u driver.PackUsage, err error) {
		err = c.query(ctx, func(r row) {
			u = driver.PackUsage{Packs: int(r.int(0)), FullPacks: int(r.int(1)), Size: r.int(2), Unused: int(r.int(3)), UnusedSize: r.int(4)}
		}, packUsage, project)
		return u, err
	})
}

const (
	unusedPack = `SELECT id, size FROM packs WHERE id = ?1 AND position IS NULL LIMIT ?2`

	abandonedPacks = `SELECT id, size FROM packs WHERE position IS NULL AND time < ?1 LIMIT ?2`

	supersededPacks = `
		SELECT id, size FROM packs
		WHERE project = ?1 AND position IS NOT NULL AND (position, id) < ` + latestBase + ` LIMIT ?2`

	packsOfProject = `SELECT id, size FROM packs WHERE project = ?1 LIMIT ?2`

	deleteParts = `DELETE FROM pack_parts WHERE pack IN (SELECT value FROM json_each(?))`

	sizeOfPiece = `
		SELECT (SELECT count(*) FROM pack_parts WHERE pack = ?1), sum(length(data))
		FROM (SELECT data FROM pack_parts WHERE pack = ?1 ORDER BY number LIMIT ?2)`

	deletePiece = `DELETE FROM pack_parts WHERE pack = ?1 AND number IN (SELECT number FROM pack_parts WHERE pack = ?1 ORDER BY number LIMIT ?2)`

	shrinkPack = `UPDATE packs SET position = NULL, parts = 0, sum = '', size = size - ?2 WHERE id = ?1`

	deletePacks = `DELETE FROM packs WHERE id IN (SELECT value FROM json_each(?))`
)

// DropPack implements driver.PackStore.
func (d *Driver) DropPack(ctx context.Context, id string) error {
	_, err := d.dropPacks(ctx, "drop a pack", 1, unusedPack, func(*tx) any { return id })
	return err
}

// DropAbandonedPacks implements driver.PackStore.
func (d *Driver) DropAbandonedPacks(ctx context.Context, olderThan time.Duration, limit int) (int, error) {
	return d.dropPacks(ctx, "drop abandoned packs", limit, abandonedPacks, func(t *tx) any { return t.now - microsOf(olderThan) })
}

// DropSupersededPacks implements driver.PackStore.
func (d *Driver) DropSupersededPacks(ctx context.Context, project string, limit int) (int, error) {
	return d.dropPacks(ctx, "drop superseded packs", limit, supersededPacks, func(*tx) any { return project })
}

// RemovePacks implements driver.PackStore.
func (d *Driver) RemovePacks(ctx context.Context, project string, limit int) (int, error) {
	return d.dropPacks(ctx, "remove packs", limit, packsOfProject, func(*tx) any { return project })
}

// dropPacks deletes packs that find selects, at most limit and only as many as one transaction
// should delete.
func (d *Driver) dropPacks(ctx context.Context, doing string, limit int, find string, arg func(*tx) any) (n int, err error) {
	drop := func(find string, arg func(*tx) any) (large string, err error) {
		err = d.write(ctx, doing, maxGroupRows, func(t *tx) (err error) {
			n, large, err = t.dropPacks(find, arg(t), limit)
			return err
		})
		return large, err
	}
	for again := true; again && err == nil; {
		var large string
		large, err = drop(find, arg)
		again = large != ""
		for err == nil && large != "" {
			// Whatever it was before, the pack is unused now.
			id := large
			large, err = drop(unusedPack, func(*tx) any { return id })
		}
		again = again && n == 0 // another process has deleted the rest of it
	}
	if err != nil {
		return 0, err
	}
	return n, nil
}

// dropPacks deletes packs, or a piece of a large pack, which it returns if there are more pieces.
func (t *tx) dropPacks(find string, arg any, limit int) (n int, large string, err error) {
	var gone []string
	var size, first int64
	err = t.query(func(r row) {
		if size += r.int(1); len(gone) == 0 || size <= rules.DropBytes {
			gone = append(gone, r.text(0))
			first = max(first, r.int(1))
		}
	}, find, arg, int64(limit))
	if err != nil || len(gone) == 0 {
		return 0, "", err
	}
	if first > rules.DropBytes {
		if more, err := t.dropPiece(gone[0]); err != nil || more {
			return 0, gone[0], err
		}
	}
	for _, statement := range []string{deleteParts, deletePacks} {
		if _, err := t.exec(statement, asJSON(gone)); err != nil {
			return 0, "", err
		}
	}
	return len(gone), "", nil
}

// dropPiece deletes the first parts of a pack if the pack has more parts than one transaction
// deletes, and reports whether it has.
func (t *tx) dropPiece(id string) (more bool, err error) {
	var size int64
	err = t.query(func(r row) { more, size = r.int(0) > rules.DropParts, r.int(1) }, sizeOfPiece, id, int64(rules.DropParts))
	if err != nil || !more {
		return false, err
	}
	if _, err := t.exec(deletePiece, id, int64(rules.DropParts)); err != nil {
		return false, err
	}
	_, err = t.exec(shrinkPack, id, size)
	return true, err
}
