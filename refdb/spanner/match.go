package spanner

import (
	"context"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// A lockKey names a row of locks and the version of it that is meant; N is its
// place in the list. Times are in microseconds: a row of Gerrit's may have finer ones.
type lockKey struct {
	N         int64             `spanner:"n"`
	Project   string            `spanner:"project"`
	Ref       string            `spanner:"ref"`
	Owner     string            `spanner:"owner"`
	Token     int64             `spanner:"token"`
	Heartbeat spanner.NullInt64 `spanner:"heartbeat"` // NULL for any
}

func keyOf(n int, l refdb.LockID) lockKey {
	return lockKey{N: int64(n), Project: l.Project, Ref: l.Ref, Owner: l.Owner, Token: int64(l.Token)}
}

func (k lockKey) bytes() int { return len(k.Project) + len(k.Ref) + len(k.Owner) + 48 }

const (
	matchSQL  = `SELECT k.n` + matchesSQL
	endingSQL = `SELECT k.n, l.waiting, UNIX_MICROS(CURRENT_TIMESTAMP())` + matchesSQL

	// The heartbeat is only read if it matters: a beat writes the column without
	// having locked it before.
	matchesSQL = `
FROM UNNEST(@keys) AS k
JOIN@{JOIN_METHOD=APPLY_JOIN} locks AS l ON l.project = k.project AND l.ref = k.ref
WHERE l.owner = k.owner AND IFNULL(UNIX_MICROS(l.token), 0) = k.token AND IFNULL(l.stale_after, 0) < @never_stale`
	heartbeatSQL = ` AND (k.heartbeat IS NULL OR k.heartbeat = IFNULL(UNIX_MICROS(l.heartbeat), 0))`
)

func matchStatement(sql string) spanner.Statement {
	return spanner.Statement{SQL: sql, Params: map[string]any{"never_stale": refdb.NeverStale.Microseconds()}}
}

// matching has a transaction read and lock the rows of keys, and say which match.
func matching(keys []lockKey) func(context.Context, *transaction) ([]bool, error) {
	return func(ctx context.Context, t *transaction) ([]bool, error) {
		match := make([]bool, len(keys))
		return match, queryKeys(ctx, t, matchStatement(matchSQL), keys, lockKey.bytes, func(r *spanner.Row) error {
			var n int64
			err := r.Columns(&n)
			match[n] = true
			return err
		})
	}
}
