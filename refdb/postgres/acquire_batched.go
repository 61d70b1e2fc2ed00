package postgres

import (
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// acquireBatchedSQL takes the locks on refs that nobody holds. Of a ref that is
// locked it returns the lock.
//
//	$1 projects  $2 refs  $3 owners  $4 nonces  $5 stale_after, µs  $6 places of their keys
const acquireBatchedSQL = `
WITH found AS MATERIALIZED (
  SELECT asked.*, lock.*, value, time, op, clock_timestamp() AS now,
         CASE WHEN holder IS NULL THEN (SELECT origin + ` + passed + ` FROM ` + ofOrigin + `) END AS token
  FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::int[]) AS asked (project, ref, owner, nonce, stale_after, place)
  LEFT JOIN LATERAL (
    SELECT owner AS holder, token AS held, heartbeat, stale_after AS stands, nonce AS holds
    FROM locks WHERE project = asked.project AND ref = asked.ref LIMIT 1
  ) AS lock ON true
  LEFT JOIN LATERAL (SELECT value, time, op FROM refs WHERE project = asked.project AND ref = asked.ref LIMIT 1) AS refs ON true
  WHERE ` + gotRef + `
), taken AS (
  INSERT INTO locks (project, ref, heartbeat, token, owner, nonce, stale_after)
  SELECT project, ref, now, token, owner, nonce, stale_after FROM found WHERE token IS NOT NULL
)
SELECT place, token, now, value, time, op, holder, held, heartbeat, stands, holds FROM found`

// An acquireCall is a request for the lock on a single ref. It is undecided
// unless the answer has a token, or a holder whose lock is fresh.
type acquireCall struct {
	request refdb.AcquireRequest
	answer  acquisition
}

func (c *acquireCall) what() string          { return "acquire locks" }
func (c *acquireCall) ref() refName          { return refName{c.request.Project, c.request.Refs[0]} }
func (c *acquireCall) queues() []refdb.Queue { return nil }

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

// reset leaves all calls undecided.
func (a *acquireColumns) reset() {
	for _, c := range a.calls {
		c.answer = acquisition{}
	}
}

func (a *acquireColumns) read(rows pgx.Rows) error {
	a.reset()
	for rows.Next() {
		var (
			place int32
			token pgtype.Timestamptz // NULL if the lock was not taken
			now   time.Time
			ref   refColumns
			lock  lockColumns // that was there
			nonce pgtype.Text
		)
		if err := rows.Scan(&place, &token, &now, &ref.value, &ref.time, &ref.op,
			&lock.owner, &lock.token, &lock.heartbeat, &lock.staleAfter, &nonce); err != nil {
			return err
		}
		c := a.calls[slices.Index(a.places, place)]
		r, answer := &c.request, &c.answer
		answer.now = now
		if ref.value.Valid {
			answer.refs = append(answer.refs, ref.ref(r.Refs[0]))
		}
		holder := lock.info(r.Project, r.Refs[0], now)
		switch {
		case token.Valid:
			answer.free, answer.token = true, refdb.TokenOf(token.Time)
		case !lock.owner.Valid: // there are no tokens to be had
		case nonce.Valid && nonce.String == r.Nonce && holder.Owner == r.Owner:
			answer.free, answer.adopted, answer.token = true, true, holder.Token
		default:
			answer.holders = append(answer.holders, holder)
		}
	}
	return rows.Err()
}
