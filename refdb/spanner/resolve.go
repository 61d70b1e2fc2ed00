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
	_, err := decide(ctx, d, request{tag: "refdb.resolve", what: "resolve intents"}, intentsOf(r.Intents), func(b *batch, rows []*intentRow) error {
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
		return nil
	})
	if err != nil {
		return nil, err
	}
	return ended, nil
}

// Forget deletes the records of those intents that are not pending.
func (d *Driver) Forget(ctx context.Context, intents []refdb.LockID) error {
	_, err := decide(ctx, d, request{tag: "refdb.forget", what: "forget intents"}, intentsOf(intents), func(b *batch, rows []*intentRow) error {
		for n, i := range intents {
			if rows[n] != nil && !rows[n].pending {
				b.deleteIntent(i.Project, i.Ref, i.Token)
			}
		}
		return nil
	})
	return err
}

// intentKey is the key of an intent; Asked is its place in the list.
type intentKey struct {
	Asked   int64     `spanner:"asked"`
	Project string    `spanner:"project"`
	Ref     string    `spanner:"ref"`
	Token   time.Time `spanner:"token"`
	Owner   string    `spanner:"owner"`
}

func (k intentKey) bytes() int { return len(k.Project) + len(k.Ref) + len(k.Owner) + 64 }

// An intentRow is what decides about an intent.
type intentRow struct {
	intended string
	pending  bool
	locked   bool // its lock stands
}

const intentSQL = `
SELECT k.asked, i.new_value, i.decision IS NULL, l.ref IS NOT NULL
FROM UNNEST(@keys) AS k
JOIN@{JOIN_METHOD=APPLY_JOIN} intents AS i
  ON i.project = k.project AND i.ref = k.ref AND i.token = k.token AND i.owner = k.owner
LEFT JOIN@{JOIN_METHOD=APPLY_JOIN} locks AS l
  ON l.project = k.project AND l.ref = k.ref AND l.token = k.token AND l.owner = k.owner`

// intentsOf has a transaction read and lock the rows of intents and what of their
// locks matters; nil for those that are not there.
func intentsOf(intents []refdb.LockID) func(context.Context, *transaction) ([]*intentRow, error) {
	keys := make([]intentKey, len(intents))
	for n, i := range intents {
		keys[n] = intentKey{Asked: int64(n), Project: i.Project, Ref: i.Ref, Token: i.Token.Time(), Owner: i.Owner}
	}
	return func(ctx context.Context, t *transaction) ([]*intentRow, error) {
		rows := make([]*intentRow, len(intents))
		s := spanner.Statement{SQL: intentSQL, Params: make(map[string]any)}
		return rows, queryKeys(ctx, t, s, keys, intentKey.bytes, func(r *spanner.Row) error {
			var n int64
			var row intentRow
			err := r.Columns(&n, &row.intended, &row.pending, &row.locked)
			rows[n] = &row
			return err
		})
	}
}
