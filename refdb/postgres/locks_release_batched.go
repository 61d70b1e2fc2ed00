package postgres

import (
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

// releaseBatchedSQL skips rows that other transactions have locked, and returns the rows that it
// ended. It does not end a row that has changed since the statement began: it can lock the new
// version, but does not see it.
//
//	$1 projects  $2 refs  $3 owners  $4 tokens  $5 places of the next waiters, or ''
var releaseBatchedSQL = bothForms(func(f form) string {
	return `
WITH ends AS MATERIALIZED (
  SELECT tid, ` + placesOf("waiting", "''") + ` AS waiting, next
  FROM (` + f.asked("project text", "ref text", "owner text", "token timestamptz", "next text") + `) AS held, LATERAL (
    SELECT ctid AS tid, waiting FROM locks
    WHERE project = held.project AND ref = held.ref AND owner IS NOT DISTINCT FROM held.owner AND coalesce(token, 'epoch') = held.token AND NOT (` + isIntent + `)
    LIMIT 1 FOR UPDATE SKIP LOCKED
  ) AS lock
), ` + handOver + `
SELECT project, ref, NULL::text[] FROM deleted UNION ALL SELECT project, ref, told FROM handed`
})

// A releaseCall is a request to release a single lock. It is undecided unless it ended the row,
// which may also be locked or missing.
type releaseCall struct {
	request driver.ReleaseRequest
	next    string // the place of the next waiter, or ""
	row     endedRow
}

func (c *releaseCall) What() string { return "release locks" }
func (c *releaseCall) Key() refName { return refName{c.request.Project, c.request.Refs[0]} }
func (c *releaseCall) reset()       { c.row = endedRow{} }

func (c *releaseCall) decide(d *Driver) {
	if c.row.ended {
		d.notifier.NotifyNext(c.request.Project, c.request.Refs[0], c.row.toNotify, c.next)
	}
}

// releaseStatement returns the statement for calls, or none if there are no calls.
func releaseStatement(f form, calls []*releaseCall) []roundtrip.Statement {
	if len(calls) == 0 {
		return nil
	}
	named := byName(calls)
	return []roundtrip.Statement{roundtrip.Query(releaseBatchedSQL[f], func(rows pgx.Rows) error {
		reset(calls)
		for rows.Next() {
			var name refName
			var toNotify []string
			if err := rows.Scan(&name.project, &name.ref, &toNotify); err != nil {
				return err
			}
			named[name].row = endedRow{true, toNotify}
		}
		return rows.Err()
	},
		column(f, calls, func(c *releaseCall) string { return c.request.Project }),
		column(f, calls, func(c *releaseCall) string { return c.request.Refs[0] }),
		column(f, calls, func(c *releaseCall) string { return c.request.Owner }),
		column(f, calls, func(c *releaseCall) time.Time { return c.request.Token.Time() }),
		column(f, calls, func(c *releaseCall) string { return c.next }))}
}
