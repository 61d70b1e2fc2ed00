package sqlite

import (
	"context"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

const (
	unusedPack = `SELECT id, size FROM packs WHERE id = ?1 AND position IS NULL LIMIT ?2`

	abandonedPacks = `SELECT id, size FROM packs WHERE position IS NULL AND time < ?1 LIMIT ?2`

	supersededPacks = `
		SELECT id, size FROM packs
		WHERE project = ?1 AND position IS NOT NULL AND (position, id) < ` + latestBase + ` LIMIT ?2`

	packsOfProject = `SELECT id, size FROM packs WHERE project = ?1 LIMIT ?2`

	deleteParts = `DELETE FROM pack_parts WHERE pack IN (SELECT value FROM json_each(?))`

	deletePacks = `DELETE FROM packs WHERE id IN (SELECT value FROM json_each(?))`
)

// DropPack implements refdb.PackStore.
func (d *Driver) DropPack(ctx context.Context, id string) error {
	_, err := d.dropPacks(ctx, "drop a pack", 1, unusedPack, func(*tx) any { return id })
	return err
}

// DropAbandonedPacks implements refdb.PackStore.
func (d *Driver) DropAbandonedPacks(ctx context.Context, olderThan time.Duration, limit int) (int, error) {
	return d.dropPacks(ctx, "drop abandoned packs", limit, abandonedPacks, func(t *tx) any { return t.now - microsOf(olderThan) })
}

// DropSupersededPacks implements refdb.PackStore.
func (d *Driver) DropSupersededPacks(ctx context.Context, project string, limit int) (int, error) {
	return d.dropPacks(ctx, "drop superseded packs", limit, supersededPacks, func(*tx) any { return project })
}

// RemovePacks implements refdb.PackStore.
func (d *Driver) RemovePacks(ctx context.Context, project string, limit int) (int, error) {
	return d.dropPacks(ctx, "remove packs", limit, packsOfProject, func(*tx) any { return project })
}

// dropPacks deletes packs that find selects, at most limit and no more than others should wait for.
func (d *Driver) dropPacks(ctx context.Context, doing string, limit int, find string, arg func(*tx) any) (n int, err error) {
	err = d.write(ctx, doing, maxGroupRows, func(t *tx) error {
		var gone []string
		var size int64
		err := t.query(func(r row) {
			if size += r.int(1); len(gone) == 0 || size <= rules.DropBytes {
				gone = append(gone, r.text(0))
			}
		}, find, arg(t), int64(limit))
		n = len(gone)
		if err != nil || n == 0 {
			return err
		}
		for _, statement := range []string{deleteParts, deletePacks} {
			if _, err := t.exec(statement, asJSON(gone)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, d.optional(ctx, doing, "packs", err)
	}
	return n, nil
}
