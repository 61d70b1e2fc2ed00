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
var releaseBatchedSQL = bothForms(func(f form) string {
	return `
DELETE FROM locks WHERE ctid = ANY (ARRAY(
  SELECT tid FROM (` + f.asked("project text", "ref text", "owner text", "token timestamptz") + `) AS held, LATERAL (
    SELECT ctid AS tid FROM locks
    WHERE project = held.project AND ref = held.ref AND owner IS NOT DISTINCT FROM held.owner AND coalesce(token, 'epoch') = held.token AND NOT (` + isIntent + `)
    LIMIT 1 FOR UPDATE SKIP LOCKED
  ) AS lock
)) AND ` + guard + `
RETURNING project, ref, waiting`
})

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
func (c *releaseCall) reset()                { c.row = deletedRow{} }

func (c *releaseCall) decide(d *Driver) {
	if r := &c.request; c.row.deleted {
		c.released.Queues = d.released(r.Project, r.Refs, []refdb.Queue{queueOf(c.row.waiting, r.Handoff)}, r.Handoff)
	}
}

// releaseCalls adds the statement for releases, if there are any.
func (t roundTrip) releaseCalls(f form, calls []*releaseCall) roundTrip {
	if len(calls) == 0 {
		return t
	}
	named := byName(calls)
	return t.then(releaseBatchedSQL[f], func(rows pgx.Rows) error {
		reset(calls)
		for rows.Next() {
			var name refName
			var waiting []string
			if err := rows.Scan(&name.project, &name.ref, &waiting); err != nil {
				return err
			}
			named[name].row = deletedRow{true, waiting}
		}
		return rows.Err()
	},
		column(f, calls, func(c *releaseCall) string { return c.request.Project }),
		column(f, calls, func(c *releaseCall) string { return c.request.Refs[0] }),
		column(f, calls, func(c *releaseCall) string { return c.request.Owner }),
		column(f, calls, func(c *releaseCall) time.Time { return c.request.Token.Time() }))
}
