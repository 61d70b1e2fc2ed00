package spanner

import (
	"context"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Release deletes the held rows that still match, and the intents they stand for.
func (d *Driver) Release(ctx context.Context, held []refdb.Held) ([]bool, error) {
	released := make([]bool, len(held))
	_, err := d.transact(ctx, request{tag: "refdb.release", what: "release locks"}, func(ctx context.Context, t *transaction) error {
		rows, err := t.matching(ctx, held)
		if err != nil {
			return err
		}
		var b batch
		for i, h := range held {
			row := rows[i]
			released[i] = row != nil
			if row == nil {
				continue
			}
			b.deleteLock(h.Project, h.Ref)
			if row.intended() {
				b.deleteIntent(h.Project, h.Ref, refdb.Token(row.token))
			}
		}
		return t.write(&b)
	})
	if err != nil {
		return nil, err
	}
	return released, nil
}
