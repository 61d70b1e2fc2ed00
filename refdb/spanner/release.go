package spanner

import (
	"context"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Release deletes the held rows that still match.
func (d *Driver) Release(ctx context.Context, held []refdb.Held) ([]bool, error) {
	var match []bool
	_, err := d.transact(ctx, request{tag: "refdb.release", what: "release locks"}, func(ctx context.Context, t *transaction) (err error) {
		if match, err = t.matching(ctx, held); err != nil {
			return err
		}
		var b batch
		for i, h := range held {
			if match[i] {
				b.deleteLock(h.Project, h.Ref)
			}
		}
		return t.write(&b)
	})
	if err != nil {
		return nil, err
	}
	return match, nil
}
