package postgres

import (
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// releaseBatchedSQL skips rows that others have locked, and answers with those
// that it ended: not one that was changed since the statement began, which it
// can lock, but doesn't see.
//
//	$1 projects  $2 refs  $3 owners  $4 tokens  $5 who is next, or ''
var releaseBatchedSQL = bothForms(func(f form) string {
	return `
WITH ends AS MATERIALIZED (
  SELECT tid, ` + placesOf("waiting", "''") + ` AS waiting, next
  FROM (` + f.asked("project text", "ref text", "owner text", "token timestamptz", "next text") + `) AS held, LATERAL (
    SELECT ctid AS tid, waiting FROM locks
    WHERE project = held.project AND ref = held.ref AND owner IS NOT DISTINCT FROM held.owner AND coalesce(token, 'epoch') = held.token AND NOT (` + isIntent + `)
    LIMIT 1 FOR UPDATE SKIP LOCKED
  ) AS lock
  WHERE ` + guard + `
), ` + handOn + `
SELECT project, ref, NULL::text[] FROM deleted UNION ALL SELECT project, ref, told FROM handed`
})

// A releaseCall is a request to release a single lock. It is undecided unless
// the row was ended: the row may be locked, or gone.
type releaseCall struct {
	request refdb.ReleaseRequest
	row     endedRow
}

func (c *releaseCall) what() string { return "release locks" }
func (c *releaseCall) ref() refName { return refName{c.request.Project, c.request.Refs[0]} }
func (c *releaseCall) reset()       { c.row = endedRow{} }

func (c *releaseCall) decide(d *Driver) { d.tell(c.request.Project, c.request.Refs[0], c.row.told) }

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
			var told []string
			if err := rows.Scan(&name.project, &name.ref, &told); err != nil {
				return err
			}
			named[name].row = endedRow{true, told}
		}
		return rows.Err()
	},
		column(f, calls, func(c *releaseCall) string { return c.request.Project }),
		column(f, calls, func(c *releaseCall) string { return c.request.Refs[0] }),
		column(f, calls, func(c *releaseCall) string { return c.request.Owner }),
		column(f, calls, func(c *releaseCall) time.Time { return c.request.Token.Time() }),
		column(f, calls, func(c *releaseCall) string { return nextText(c.request.Next, c.request.Owner) }))
}
