package postgres

import (
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// releaseBatchedSQL skips rows that others have locked, and answers with those
// that it deleted: not one that was changed since the statement began, which it
// can lock, but doesn't see.
//
//	$1 projects  $2 refs  $3 owners  $4 tokens
const releaseBatchedSQL = `
DELETE FROM locks WHERE ctid = ANY (ARRAY(
  SELECT tid FROM unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[]) AS held (project, ref, owner, token), LATERAL (
    SELECT ctid AS tid FROM locks
    WHERE project = held.project AND ref = held.ref AND owner IS NOT DISTINCT FROM held.owner AND coalesce(token, 'epoch') = held.token AND NOT (` + isIntent + `)
    LIMIT 1 FOR UPDATE SKIP LOCKED
  ) AS lock
)) RETURNING project, ref, waiting`

// A releaseCall is a request to release a single lock. It is undecided unless
// the row was deleted: the row may be locked, or gone.
type releaseCall struct {
	request  refdb.ReleaseRequest
	row      deletedRow
	released refdb.Released // the answer
}

func (c *releaseCall) what() string          { return "release locks" }
func (c *releaseCall) ref() refName          { return refName{c.request.Project, c.request.Refs[0]} }
func (c *releaseCall) queues() []refdb.Queue { return c.released.Queues }

// decide makes the answer, and wakes those who wait.
func (c *releaseCall) decide(d *Driver) {
	if r := &c.request; c.row.deleted {
		c.released.Queues = d.released(r.Project, r.Refs, []refdb.Queue{queueOf(c.row.waiting, r.Handoff)}, r.Handoff)
	}
}

// releaseColumns are releaseCalls as arrays.
type releaseColumns struct {
	calls                  []*releaseCall
	named                  map[refName]*releaseCall
	projects, refs, owners []string
	tokens                 []time.Time
}

func (r *releaseColumns) add(c *releaseCall) {
	q := &c.request
	if r.named == nil {
		r.named = make(map[refName]*releaseCall)
	}
	r.calls, r.named[c.ref()] = append(r.calls, c), c
	r.projects, r.refs, r.owners = append(r.projects, q.Project), append(r.refs, q.Refs[0]), append(r.owners, q.Owner)
	r.tokens = append(r.tokens, q.Token.Time())
}

func (r *releaseColumns) args() []any { return []any{r.projects, r.refs, r.owners, r.tokens} }

// reset leaves all calls undecided.
func (r *releaseColumns) reset() {
	for _, c := range r.calls {
		c.row = deletedRow{}
	}
}

func (r *releaseColumns) read(rows pgx.Rows) error {
	r.reset()
	for rows.Next() {
		var name refName
		var waiting []string
		if err := rows.Scan(&name.project, &name.ref, &waiting); err != nil {
			return err
		}
		r.named[name].row = deletedRow{true, waiting}
	}
	return rows.Err()
}
