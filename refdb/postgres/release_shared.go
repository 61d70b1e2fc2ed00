package postgres

import (
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// releaseSharedSQL passes by rows that others have locked, and answers with
// those that it deleted: not one that was changed since the statement began,
// which it can lock, but doesn't see.
//
//	$1 projects  $2 refs  $3 tokens
const releaseSharedSQL = `
WITH doomed AS MATERIALIZED (
  SELECT n, lock.* FROM unnest($1::text[], $2::text[], $3::timestamptz[]) WITH ORDINALITY AS held (project, ref, token, n), LATERAL (
    SELECT ctid AS tid, waiting FROM locks
    WHERE project = held.project AND ref = held.ref AND coalesce(token, 'epoch') = held.token AND NOT (` + isIntent + `)
    LIMIT 1 FOR UPDATE SKIP LOCKED
  ) AS lock
), deleted AS (
  DELETE FROM locks WHERE ctid = ANY (ARRAY(SELECT tid FROM doomed))
  RETURNING ctid
)
SELECT n, waiting FROM doomed WHERE tid = ANY (ARRAY(SELECT ctid FROM deleted))`

// A releaseCall is a request to release a single lock, named by its token, and the answer: what was
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
	calls          []*releaseCall
	projects, refs []string
	tokens         []time.Time
}

func (r *releaseColumns) add(c *releaseCall) {
	r.calls = append(r.calls, c)
	r.projects, r.refs, r.tokens = append(r.projects, c.held.Project), append(r.refs, c.held.Ref), append(r.tokens, c.held.Token.Time())
}

func (r *releaseColumns) args() []any { return []any{r.projects, r.refs, r.tokens} }

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
