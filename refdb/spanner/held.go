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
	tokenSQL     = `SELECT k.held, IFNULL(UNIX_MICROS(l.token), 0), IFNULL(l.nonce, ''), `
	heartbeatSQL = `IFNULL(UNIX_MICROS(l.heartbeat), 0)`
	heldSQL      = `
FROM UNNEST(@keys) AS k
JOIN@{JOIN_METHOD=APPLY_JOIN} locks AS l ON l.project = k.project AND l.ref = k.ref`
)

// matching reads and locks the held rows, and tells which match. Tokens and
// heartbeats are compared in microseconds: a row of Gerrit's may have finer ones.
//
// A heartbeat is only read if it matters: a beat that doesn't read the column
// writes it without having locked it before.
func (t *transaction) matching(ctx context.Context, held []refdb.Held) ([]bool, error) {
	sql := tokenSQL + `0` + heldSQL
	if slices.ContainsFunc(held, func(h refdb.Held) bool { return !h.Heartbeat.IsZero() }) {
		sql = tokenSQL + heartbeatSQL + heldSQL
	}
	keys := make([]heldKey, len(held))
	for i, h := range held {
		keys[i] = heldKey{Held: int64(i), Project: h.Project, Ref: h.Ref}
	}
	match := make([]bool, len(held))
	for chunk := range chunks(keys, heldKey.bytes) {
		err := t.query(ctx, spanner.Statement{SQL: sql, Params: map[string]any{"keys": chunk}}, func(r *spanner.Row) error {
			var i, token, heartbeat int64
			var nonce string
			if err := r.Columns(&i, &token, &nonce, &heartbeat); err != nil {
				return err
			}
			match[i] = matches(&held[i], refdb.Token(token), nonce, heartbeat)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return match, nil
}

// matches tells whether h means the version of its row with these values.
func matches(h *refdb.Held, token refdb.Token, nonce string, heartbeat int64) bool {
	if !h.Heartbeat.IsZero() && h.Heartbeat.UnixMicro() != heartbeat {
		return false
	}
	if h.Nonce != "" {
		return h.Nonce == nonce
	}
	return h.Token == token
}
