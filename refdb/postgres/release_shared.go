package postgres

import (
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

// A releaseCall is a request to release a single lock, and the answer: what was
// not deleted is undecided, for it was locked or is gone.
type releaseCall struct {
	held    refdb.Held
	gone    bool
	waiting []string
}

func (c *releaseCall) what() string { return "release locks" }
func (c *releaseCall) ref() refName { return refName{c.held.Project, c.held.Ref} }

// releaseColumns are releaseCalls as arrays.
type releaseColumns struct {
	calls []*releaseCall
	rows  heldArray
}

func (r *releaseColumns) add(c *releaseCall) {
	r.calls, r.rows = append(r.calls, c), append(r.rows, indexedHeld{Held: c.held})
}

func (r *releaseColumns) args() []any { return r.rows.args() }

func (r *releaseColumns) read(rows pgx.Rows) error {
	for _, c := range r.calls {
		c.gone, c.waiting = false, nil
	}
	for rows.Next() {
		var n int
		var waiting []string
		if err := rows.Scan(&n, &waiting); err != nil {
			return err
		}
		c := r.calls[n-1]
		c.gone, c.waiting = true, waiting
	}
	return rows.Err()
}

// freed are the released locks that somebody waits for.
func (r *releaseColumns) freed() (all []freedLock) {
	for _, c := range r.calls {
		if c.gone && (len(c.waiting) > 0 || c.held.Back) {
			all = append(all, freedLock{c.held.Project, c.held.Ref, c.waiting, c.held.Next, c.held.Back})
		}
	}
	return all
}
