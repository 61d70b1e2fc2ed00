package sqlite

import (
	"context"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// CROSS JOIN makes SQLite go through the names, not through the project.
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
