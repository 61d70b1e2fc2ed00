package postgres

import (
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

// acquireBatchedSQL takes the locks on refs that have none, and returns the existing locks on the
// others.
//
//	$1 projects  $2 refs  $3 owners  $4 nonces  $5 stale_after, µs  $6 indices of their keys
var acquireBatchedSQL = bothForms(func(f form) string {
	return `
WITH found AS MATERIALIZED (
  SELECT asked.*, lock.*, value, time, op, clock_timestamp() AS now,
         CASE WHEN holder IS NULL THEN (SELECT origin + ` + passed + ` FROM ` + ofOrigin + `) END AS token
  FROM (` + f.asked("project text", "ref text", "owner text", "nonce text", "stale_after bigint", "index int") + `) AS asked
  LEFT JOIN LATERAL (
    SELECT owner AS holder, token AS held, heartbeat, stale_after AS stands, nonce AS holds
    FROM locks WHERE project = asked.project AND ref = asked.ref LIMIT 1
  ) AS lock ON true
  LEFT JOIN LATERAL (SELECT value, time, op FROM refs WHERE project = asked.project AND ref = asked.ref LIMIT 1) AS refs ON true
  WHERE ` + f.gotKeys() + `
), taken AS (
  INSERT INTO locks (project, ref, heartbeat, token, owner, nonce, stale_after)
  SELECT project, ref, now, token, owner, nonce, stale_after FROM found WHERE token IS NOT NULL
)
SELECT index, token, now, value, time, op, holder, held, heartbeat, stands, holds FROM found`
})

// An acquireCall is a request for the lock on a single ref. It is undecided unless the answer has a
// token, or a holder whose lock is fresh.
type acquireCall struct {
	request driver.AcquireRequest
	index   int32 // of its keys
	answer  acquisition
}

func (c *acquireCall) What() string   { return "acquire locks" }
func (c *acquireCall) Key() refName   { return refName{c.request.Project, c.request.Refs[0]} }
func (c *acquireCall) reset()         { c.answer = acquisition{} }
func (c *acquireCall) decide(*Driver) {}

// acquireStatement returns the statement for calls, or none if there are no calls.
func acquireStatement(f form, calls []*acquireCall) []roundtrip.Statement {
	if len(calls) == 0 {
		return nil
	}
	return []roundtrip.Statement{roundtrip.Query(acquireBatchedSQL[f], func(rows pgx.Rows) error {
		reset(calls)
		for rows.Next() {
			if err := readAcquired(rows, calls); err != nil {
				return err
			}
		}
		return rows.Err()
	},
		column(f, calls, func(c *acquireCall) string { return c.request.Project }),
		column(f, calls, func(c *acquireCall) string { return c.request.Refs[0] }),
		column(f, calls, func(c *acquireCall) string { return c.request.Owner }),
		column(f, calls, func(c *acquireCall) string { return c.request.Nonce }),
		column(f, calls, func(c *acquireCall) int64 { return c.request.StaleAfter.Microseconds() }),
		column(f, calls, func(c *acquireCall) int32 { return c.index }))}
}

// readAcquired reads the row of one of the calls.
func readAcquired(row pgx.Rows, calls []*acquireCall) error {
	var (
		index int32
		token pgtype.Timestamptz // NULL if the lock was not taken
		now   time.Time
		ref   refColumns
		lock  lockColumns // the existing lock
		nonce pgtype.Text
	)
	if err := row.Scan(&index, &token, &now, &ref.value, &ref.time, &ref.op,
		&lock.owner, &lock.token, &lock.heartbeat, &lock.staleAfter, &nonce); err != nil {
		return err
	}
	c := calls[slices.IndexFunc(calls, func(c *acquireCall) bool { return c.index == index })]
	r, answer := &c.request, &c.answer
	answer.now = now
	if ref.value.Valid {
		answer.refs = append(answer.refs, ref.ref(r.Refs[0]))
	}
	holder := lock.info(r.Project, r.Refs[0], now)
	switch {
	case token.Valid:
		answer.free, answer.token = true, driver.TokenOf(token.Time)
	case !lock.owner.Valid: // no token could be made
	case nonce.Valid && nonce.String == r.Nonce && holder.Owner == r.Owner:
		answer.free, answer.adopted, answer.token = true, true, holder.Token
	default:
		answer.holders = append(answer.holders, holder)
	}
	return nil
}
