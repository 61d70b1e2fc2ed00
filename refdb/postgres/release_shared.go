package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// releaseSharedSQL passes by rows that others have locked, and answers with
// those that it deleted: not one that was changed since the statement began,
// which it can lock, but doesn't see.
const releaseSharedSQL = `
WITH doomed AS MATERIALIZED (
  SELECT n, tid, waiting FROM ` + heldRows + `, LATERAL (` + lockOfHeld + ` FOR UPDATE SKIP LOCKED) AS lock
), deleted AS (
  DELETE FROM locks WHERE ctid = ANY (ARRAY(SELECT tid FROM doomed))
  RETURNING ctid
)
SELECT n, waiting FROM doomed WHERE tid = ANY (ARRAY(SELECT ctid FROM deleted))`

// releaseShared is the trip of a lane. What it did not delete is left
// undecided: it was locked, or is gone.
func (d *Driver) releaseShared(ctx context.Context, together []*seat[refdb.Held]) error {
	n := len(together)
	projects, refs, nonces := make([]string, n), make([]string, n), make([]string, n)
	tokens, heartbeats := make([]time.Time, n), make([]*time.Time, n)
	for i, s := range together {
		h := s.request
		projects[i], refs[i], nonces[i] = h.Project, h.Ref, h.Nonce
		tokens[i], heartbeats[i] = h.Token.Time(), heartbeatOf(h)
	}
	var freed []freedLock
	err := d.do(ctx, trip{what: "release locks", writes: true}.
		then(releaseSharedSQL, func(rows pgx.Rows) error {
			freed = nil
			for rows.Next() {
				var n int
				var waiting []string
				if err := rows.Scan(&n, &waiting); err != nil {
					return err
				}
				s := together[n-1]
				s.decided = true
				if len(waiting) > 0 {
					freed = append(freed, freedLock{s.request.Project, s.request.Ref, waiting, s.request.Next})
				}
			}
			return rows.Err()
		}, projects, refs, tokens, nonces, heartbeats))
	if err == nil {
		d.released(freed)
	}
	return err
}
