package spanner

import (
	"context"
	"slices"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// heldKey is the key of a held row; Held is its place in the list.
type heldKey struct {
	Held    int64  `spanner:"held"`
	Project string `spanner:"project"`
	Ref     string `spanner:"ref"`
}

func (k heldKey) bytes() int { return len(k.Project) + len(k.Ref) + 32 }

const (
	tokenSQL     = `SELECT k.held, IFNULL(UNIX_MICROS(l.token), 0), IFNULL(l.nonce, ''), l.owner, IFNULL(l.stale_after, 0), `
	heartbeatSQL = `IFNULL(UNIX_MICROS(l.heartbeat), 0)`
	heldSQL      = `
FROM UNNEST(@keys) AS k
JOIN@{JOIN_METHOD=APPLY_JOIN} locks AS l ON l.project = k.project AND l.ref = k.ref`
)

// A heldRow is what decides whether a row is the version of it that is meant.
// Times are in microseconds: a row of Gerrit's may have finer ones.
type heldRow struct {
	token      int64
	nonce      string
	owner      string
	staleAfter int64
	heartbeat  int64
}

// matching reads and locks the held rows, and returns those that match; nil for
// those that don't.
//
// A heartbeat is only read if it matters: a beat that doesn't read the column
// writes it without having locked it before.
func (t *transaction) matching(ctx context.Context, held []refdb.Held) ([]*heldRow, error) {
	sql := tokenSQL + `0` + heldSQL
	if slices.ContainsFunc(held, func(h refdb.Held) bool { return !h.Heartbeat.IsZero() }) {
		sql = tokenSQL + heartbeatSQL + heldSQL
	}
	keys := make([]heldKey, len(held))
	for i, h := range held {
		keys[i] = heldKey{Held: int64(i), Project: h.Project, Ref: h.Ref}
	}
	matching := make([]*heldRow, len(held))
	for chunk := range chunks(keys, heldKey.bytes) {
		err := t.query(ctx, spanner.Statement{SQL: sql, Params: map[string]any{"keys": chunk}}, func(r *spanner.Row) error {
			var i int64
			var row heldRow
			if err := r.Columns(&i, &row.token, &row.nonce, &row.owner, &row.staleAfter, &row.heartbeat); err != nil {
				return err
			}
			if row.matches(&held[i]) {
				matching[i] = &row
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return matching, nil
}

// matches tells whether h means this version of the row.
func (r *heldRow) matches(h *refdb.Held) bool {
	if r.intended() && !h.Intent || !h.Heartbeat.IsZero() && h.Heartbeat.UnixMicro() != r.heartbeat {
		return false
	}
	if h.Nonce != "" {
		return h.Nonce == r.nonce && h.Owner == r.owner
	}
	return int64(h.Token) == r.token
}

// intended reports whether the lock stands for an intent.
func (r *heldRow) intended() bool { return r.staleAfter >= refdb.NeverStale.Microseconds() }
