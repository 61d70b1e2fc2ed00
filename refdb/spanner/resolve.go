package spanner

import (
	"context"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Resolve ends those intents that are pending.
//
// Should the lock of one have been deleted by somebody who knows of no intents,
// the ref may have moved since: then it can only keep what it holds.
func (d *Driver) Resolve(ctx context.Context, r refdb.ResolveRequest) ([]bool, error) {
	ended := make([]bool, len(r.Intents))
	_, err := d.transact(ctx, request{tag: "refdb.resolve", what: "resolve intents"}, func(ctx context.Context, t *transaction) error {
		rows, err := t.intents(ctx, r.Intents)
		if err != nil {
			return err
		}
		var b batch
		for n, i := range r.Intents {
			row := rows[n]
			ended[n] = row != nil && row.pending && (row.locked || r.Decision == refdb.KeepOld)
			if !ended[n] {
				continue
			}
			if r.Decision == refdb.TakeNew {
				b.putRef(i.Project, i.Ref, refdb.Value(row.intended), "")
			}
			if row.locked {
				b.deleteLock(i.Project, i.Ref)
			}
			b.decideIntent(i, &r)
		}
		return t.write(&b)
	})
	if err != nil {
		return nil, err
	}
	return ended, nil
}

// Forget deletes the records of those intents that are not pending.
func (d *Driver) Forget(ctx context.Context, intents []refdb.Intent) error {
	_, err := d.transact(ctx, request{tag: "refdb.forget", what: "forget intents"}, func(ctx context.Context, t *transaction) error {
		rows, err := t.intents(ctx, intents)
		if err != nil {
			return err
		}
		var b batch
		for n, i := range intents {
			if rows[n] != nil && !rows[n].pending {
				b.deleteIntent(i.Project, i.Ref, i.Token)
			}
		}
		return t.write(&b)
	})
	return err
}

// intentKey is the key of an intent; Asked is its place in the list.
type intentKey struct {
	Asked   int64     `spanner:"asked"`
	Project string    `spanner:"project"`
	Ref     string    `spanner:"ref"`
	Token   time.Time `spanner:"token"`
}

func (k intentKey) bytes() int { return len(k.Project) + len(k.Ref) + 64 }

// An intentRow is what decides about an intent.
type intentRow struct {
	intended string
	pending  bool
	locked   bool // its lock stands
}

const intentSQL = `
SELECT k.asked, i.new_value, i.decision IS NULL, l.ref IS NOT NULL
FROM UNNEST(@keys) AS k
JOIN@{JOIN_METHOD=APPLY_JOIN} intents AS i ON i.project = k.project AND i.ref = k.ref AND i.token = k.token
LEFT JOIN@{JOIN_METHOD=APPLY_JOIN} locks AS l ON l.project = k.project AND l.ref = k.ref AND l.token = k.token`

// intents reads and locks the rows of intents and what of their locks matters;
// nil for those that are not there.
func (t *transaction) intents(ctx context.Context, intents []refdb.Intent) ([]*intentRow, error) {
	keys := make([]intentKey, len(intents))
	for n, i := range intents {
		keys[n] = intentKey{Asked: int64(n), Project: i.Project, Ref: i.Ref, Token: i.Token.Time()}
	}
	rows := make([]*intentRow, len(intents))
	for chunk := range chunks(keys, intentKey.bytes) {
		s := spanner.Statement{SQL: intentSQL, Params: map[string]any{"keys": chunk}}
		err := t.query(ctx, s, func(r *spanner.Row) error {
			var n int64
			var row intentRow
			if err := r.Columns(&n, &row.intended, &row.pending, &row.locked); err != nil {
				return err
			}
			rows[n] = &row
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return rows, nil
}
