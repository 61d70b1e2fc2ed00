package sqlite

import (
	"context"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const release = `DELETE FROM locks` + matches

// Release implements refdb.Driver.
func (d *Driver) Release(ctx context.Context, held []refdb.Held) ([]bool, error) {
	released := make([]bool, len(held))
	err := d.write(ctx, "release locks", len(held), func(t *tx) error {
		for i, h := range held {
			n, err := t.exec(release, version(h)...)
			if err != nil {
				return err
			}
			released[i] = n > 0
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return released, nil
}
