package sqlite

import (
	"context"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	// The lock of an intent never goes without it.
	release = `DELETE FROM locks` + matches + ` AND coalesce(stale_after, 0) < ?7`

	releaseAny = `DELETE FROM locks` + matches
)

// Release implements refdb.Driver.
func (d *Driver) Release(ctx context.Context, held []refdb.Held) ([]bool, error) {
	released := make([]bool, len(held))
	err := d.write(ctx, "release locks", len(held), func(t *tx) error {
		for i, h := range held {
			n, err := t.release(h)
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

func (t *tx) release(h refdb.Held) (int64, error) {
	row := version(h)
	if !h.Intent {
		return t.exec(release, append(row, microsOf(refdb.NeverStale))...)
	}
	if _, err := t.exec(dropIntent, row...); err != nil {
		return 0, err
	}
	return t.exec(releaseAny, row...)
}
