package postgres

import (
	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// acquireSharedSQL takes the locks on refs that nobody holds. Of a ref that is
// locked it returns the lock.
//
//	$1 projects  $2 refs  $3 owners  $4 nonces  $5 stale_after, µs  $6 places of their keys
const acquireSharedSQL = `
WITH found AS MATERIALIZED (
  SELECT asked.*, lock.* FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::int[])
    WITH ORDINALITY AS asked (project, ref, owner, nonce, stale_after, place, n)
  LEFT JOIN LATERAL (
    SELECT owner AS holder, token AS held, heartbeat, stale_after AS stands, nonce AS holds
    FROM locks WHERE project = asked.project AND ref = asked.ref LIMIT 1
  ) AS lock ON true
  WHERE ` + gotRef + `
), granted AS MATERIALIZED (
  SELECT origin + ` + passed + ` AS token, clock_timestamp() AS now
  FROM ` + ofOrigin + ` AND EXISTS (SELECT FROM found WHERE holder IS NULL)
), taken AS (
  INSERT INTO locks (project, ref, heartbeat, token, owner, nonce, stale_after)
  SELECT project, ref, now, token, owner, nonce, stale_after FROM granted, found WHERE holder IS NULL
)
SELECT n, CASE WHEN holder IS NULL THEN token END, coalesce(now, clock_timestamp()), value, time, op, holder, held, heartbeat, stands, holds
FROM found LEFT JOIN granted ON true
LEFT JOIN LATERAL (SELECT value, time, op FROM refs WHERE project = found.project AND ref = found.ref LIMIT 1) AS refs ON true`

// An acquireCall is a request for the lock on a single ref, and the answer:
// neither a token nor a holder if it is undecided.
type acquireCall struct {
	request refdb.AcquireRequest
	answer  acquisition
}

func (c *acquireCall) what() string { return "acquire locks" }
func (c *acquireCall) ref() refName { return refName{c.request.Project, c.request.Refs[0]} }

// acquireColumns are acquireCalls as arrays.
type acquireColumns struct {
	calls                          []*acquireCall
	projects, refs, owners, nonces []string
	staleAfter                     []int64
	places                         []int32
}

func (a *acquireColumns) add(c *acquireCall, place int) {
	r := &c.request
	a.calls, a.places = append(a.calls, c), append(a.places, int32(place))
	a.projects, a.refs = append(a.projects, r.Project), append(a.refs, r.Refs[0])
	a.owners, a.nonces, a.staleAfter = append(a.owners, r.Owner), append(a.nonces, r.Nonce), append(a.staleAfter, r.StaleAfter.Microseconds())
}

func (a *acquireColumns) args() []any {
	return []any{a.projects, a.refs, a.owners, a.nonces, a.staleAfter, a.places}
}

func (a *acquireColumns) read(rows pgx.Rows) error {
	for _, c := range a.calls {
		c.answer = acquisition{}
	}
	for rows.Next() {
		var n int
		var t taking
		if err := rows.Scan(append([]any{&n}, t.columns()...)...); err != nil {
			return err
		}
		c := a.calls[n-1]
		c.answer = t.acquisition(c.request)
	}
	return rows.Err()
}
