package sqlite

import (
	"context"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// States implements refdb.RefStore. Values and locks come from one statement, and
// so from one snapshot; the time that ages are counted to is read before.
func (d *Driver) States(ctx context.Context, project string, refs []string) ([]refdb.State, error) {
	var found []refdb.State
	err := d.read(ctx, "read refs and locks", func(c *conn) error {
		states, err := look(ctx, c, d.now(), project, refs)
		for i, s := range states {
			if s.row == nil && s.lock == nil {
				continue
			}
			known := refdb.State{Ref: refs[i], Lock: s.lock}
			if s.row != nil {
				known.Value = s.row.Value
			}
			found = append(found, known)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}
