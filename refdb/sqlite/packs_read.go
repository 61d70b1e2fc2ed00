package sqlite

import (
	"context"
	"fmt"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

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

// Packs implements refdb.PackStore.
func (d *Driver) Packs(ctx context.Context, q refdb.PackQuery) (page refdb.PackPage, err error) {
	const doing = "list packs"
	err = d.snapshot(ctx, doing, func(c *conn) error {
		page = refdb.PackPage{}
		if err := c.query(ctx, func(r row) { page.Upto = refdb.Position(r.int(0)) }, readPosition); err != nil {
			return err
		}
		now := d.now()
		err := c.query(ctx, func(r row) { page.Packs = append(page.Packs, packOf(q.Project, now, r)) },
			listPacks, q.Project, int64(q.After.Position), q.After.ID, int64(q.Limit)+1)
		if err != nil {
			return err
		}
		if page.More = len(page.Packs) > q.Limit; page.More {
			page.Packs = page.Packs[:q.Limit]
		}
		for _, i := range rules.Inlined(page.Packs, q.Inline) {
			p := &page.Packs[i]
			if err := c.query(ctx, func(r row) { p.Data = r.bytes(0) }, readPart, p.ID, int64(0)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return refdb.PackPage{}, d.optional(ctx, doing, "packs", err)
	}
	return page, nil
}

// packOf reads the columns of listPacks.
func packOf(project string, now int64, r row) refdb.Pack {
	return refdb.Pack{
		ID: r.text(0), Project: project, Owner: r.text(1), Bases: rules.SplitIDs(r.text(2)), Tips: rules.SplitIDs(r.text(3)), Base: r.int(4) != 0,
		Position: refdb.Position(r.int(5)), Parts: int(r.int(6)), Size: r.int(7), Sum: r.text(8), Age: durationOf(now - r.int(9)),
	}
}

// PackPart implements refdb.PackStore.
func (d *Driver) PackPart(ctx context.Context, id string, number int) (data []byte, err error) {
	const doing = "read a part of a pack"
	err = d.read(ctx, doing, func(c *conn) error {
		return c.query(ctx, func(r row) { data = r.bytes(0) }, readPart, id, int64(number))
	})
	if err != nil {
		return nil, d.optional(ctx, doing, "packs", err)
	}
	if data == nil {
		return nil, fmt.Errorf("%s: part %d of pack %s: %w", doing, number, id, refdb.ErrNoPack)
	}
	return data, nil
}

// PackUsage implements refdb.PackStore.
func (d *Driver) PackUsage(ctx context.Context, project string) (u refdb.PackUsage, err error) {
	const doing = "count packs"
	err = d.read(ctx, doing, func(c *conn) error {
		return c.query(ctx, func(r row) {
			u = refdb.PackUsage{Packs: int(r.int(0)), Bases: int(r.int(1)), Size: r.int(2), Unused: int(r.int(3)), UnusedSize: r.int(4)}
		}, packUsage, project)
	})
	if err != nil {
		return refdb.PackUsage{}, d.optional(ctx, doing, "packs", err)
	}
	return u, nil
}
