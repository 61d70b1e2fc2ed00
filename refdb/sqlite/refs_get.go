package sqlite

import (
	"cmp"
	"context"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// CROSS JOIN makes SQLite look up each name instead of reading the whole project.
const get = `
	SELECT r.ref, r.value, r.time, r.op
	FROM json_each(?2) AS name
	CROSS JOIN refs AS r ON r.project = ?1 AND r.ref = name.value`

// Get implements refdb.RefStore.
func (d *Driver) Get(ctx context.Context, project string, refs []string) ([]refdb.Ref, error) {
	var found []refdb.Ref
	err := d.read(ctx, "read refs", func(c *conn) error {
		return c.query(ctx, func(r row) {
			found = append(found, refOf(r.text(0), r.text(1), r.int(2), r.text(3)))
		}, get, project, asJSON(refs))
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// States implements refdb.RefStore. Values and locks come from one statement, and
// so from one snapshot, in which the file is admitted. The time for the ages is read before.
func (d *Driver) States(ctx context.Context, project string, refs []string) ([]refdb.State, error) {
	var found []refdb.State
	err := d.snapshot(ctx, "read refs and locks", func(c *conn) error {
		now := d.now()
		if admitted, err := d.isAdmitted(ctx, c); err != nil || !admitted {
			return cmp.Or(err, refdb.ErrNotAdmitted)
		}
		rows, err := readRows(ctx, c, now, project, refs)
		for _, row := range rows {
			if row.Ref == nil && row.Lock == nil {
				continue
			}
			s := refdb.State{Ref: row.Name, Lock: row.Lock}
			if row.Ref != nil {
				s.Value = row.Ref.Value
			}
			found = append(found, s)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}
