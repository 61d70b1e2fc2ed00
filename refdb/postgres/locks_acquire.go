package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

// acquireSQL decides and takes the locks. It does not wait, except for the row of token_origin if a
// stale lock has a token from the future.
//
// A row with the request's owner and nonce is already its own. If all rows are, they are adopted.
// If only some are, they don't conflict with the request, and are taken anew or end.
//
//	$1 project  $2 refs  $3 owner  $4 nonce  $5 stale_after, µs
//	$6 the place of the waiter, as far as it is known, or '' if the request doesn't wait
var acquireSQL = `
WITH found AS MATERIALIZED (
  SELECT *, fresh OR over AND told AS refuses_others, CASE WHEN NOT over THEN reserved_for WHEN told THEN places[1] END AS kept,
         CASE WHEN over AND told THEN nullif(places[2:], '{}') ELSE places END AS queue
  FROM (
    SELECT *, reserved_for IS NOT NULL AND NOT fresh AND places IS NOT NULL AND ` + idOf("reserved_for") + ` <> ` + idOf("$6::text") + ` AS over,
           ` + isNotified("places") + ` AS told
    FROM (
      SELECT ` + foundColumns + `, coalesce(nonce = $4 AND owner = $3, false) AS mine,
             CASE WHEN ` + isReserved + ` AND ` + isPlace("nonce") + ` THEN nonce END AS reserved_for, ` + placesOf("waiting", "''") + ` AS places
      FROM unnest($2::text[]) AS asked (ref) ` + joinFound + `
    ) AS standing
  ) AS standing
), me AS MATERIALIZED (
  SELECT ` + idOf("$6") + ` AS id, least(nullif(nullif(left($6, 16), '')::bigint, 0), min(` + ticketOf("p") + `)) AS ticket,
         greatest(nullif(` + passedOf("$6") + `, '')::int, max(` + passedOf("p") + `::int)) AS passed
  FROM found LEFT JOIN LATERAL (SELECT p FROM unnest(queue || kept) AS p WHERE $6 <> '' AND ` + idOf("p") + ` = ` + idOf("$6") + `) AS places ON true
), judged AS MATERIALIZED (
  SELECT found.*, ` + placesOf("queue", "id") + ` AS others, coalesce($6 <> '' AND ` + idOf("kept") + ` = id, false) AS ours,
         refuses_others AND NOT mine AND NOT coalesce(
           $6 <> '' AND (` + idOf("kept") + ` = id OR ticket IS NOT NULL AND (ticket, id COLLATE "C") < (` + rank("kept") + `)), false) AS refuses
  FROM found, me
), verdict AS MATERIALIZED (
  SELECT count(*) FILTER (WHERE mine) = cardinality($2::text[]) AS adopted,
         count(*) FILTER (WHERE refuses) = 0 AS free,
         coalesce(bool_or(refuses AND ` + isIntent + `), false) AS intended,
         max(token) AS latest
  FROM judged
), queues AS MATERIALIZED (
  SELECT ref, now, CASE WHEN free AND (others IS NOT NULL OR kept IS NOT NULL) THEN nullif(ARRAY(
    SELECT CASE WHEN ticket IS NULL OR (` + rank("p") + `) < (ticket, id COLLATE "C")
      THEN ` + passedOnce("p") + ` ELSE p END
    FROM unnest(others || CASE WHEN refuses_others AND NOT ours THEN kept END) AS p WHERE p IS NOT NULL ORDER BY ` + rank("p") + `
  ), '{}') END AS merged
  FROM judged, me, verdict
), ` + grantSQL + `, waiter AS MATERIALIZED (
  SELECT *, lpad(ticket::text, 16, '0') || '.' || lpad(passed::text, 2, '0') || substr($6, 20) AS place
  FROM (
    SELECT id, coalesce(ticket, ` + micros("clock_timestamp()") + `) AS ticket, passed >= ` + maxPassed + ` AS keeps,
           passed + (NOT intended AND passed < ` + maxPassed + ` AND EXISTS (SELECT FROM judged WHERE ours))::int AS passed
    FROM me, verdict WHERE NOT free AND $6 <> ''
  ) AS refused
), changes AS MATERIALIZED (
  SELECT ref, tid, waiting, now, others IS NULL AND (mine OR ours AND (intended OR NOT keeps)) AS goes,
         CASE WHEN mine OR ours AND intended THEN CASE WHEN ` + isNotified("others") + ` THEN others[1] END
              WHEN ours AND keeps THEN place
              WHEN ours THEN coalesce((SELECT p FROM unnest(others) WITH ORDINALITY AS later (p, n) WHERE (ticket, id COLLATE "C") < (` + rank("p") + `) ORDER BY n LIMIT 1), others[1])
              WHEN over THEN kept END AS to_,
         CASE WHEN mine OR ours OR over THEN true ELSE false END AS reserves,
         CASE WHEN mine THEN others
              WHEN id IS NULL THEN queue
              WHEN ours THEN CASE WHEN intended OR keeps THEN others ELSE ` + withPlace("others", "place") + ` END
              WHEN refuses AND (NOT intended OR ` + isIntent + `) THEN ` + withPlace("others", "place") + `
              WHEN intended THEN others ELSE queue END AS joined,
         coalesce(keeps AND ours AND NOT intended, false) AS stays
  FROM judged CROSS JOIN verdict LEFT JOIN waiter ON true WHERE NOT free AND tid IS NOT NULL
), dropped AS (
  DELETE FROM locks WHERE ctid = ANY (ARRAY(SELECT tid FROM changes WHERE goes))
), queued AS (
  UPDATE locks SET waiting = joined FROM changes
  WHERE NOT goes AND NOT reserves AND joined IS DISTINCT FROM changes.waiting AND locks.ctid = tid
), handed AS (
  UPDATE locks SET owner = ` + reservedOwner("coalesce(to_, '')") + `, nonce = to_, waiting = rest, heartbeat = ` + reservedHeartbeat("to_", "now") + `, stale_after = NULL
  FROM (SELECT tid, now, to_, stays, ` + placesOf("joined", "coalesce("+idOf("to_")+", '')") + ` AS rest FROM changes WHERE reserves AND NOT goes) AS kept
  WHERE locks.ctid = tid
  RETURNING locks.ref, CASE WHEN stays THEN NULL WHEN to_ IS NULL THEN ` + firstToWake("rest") + ` ELSE to_ || rest[1:1] END AS told
), behind AS (
  SELECT coalesce(max(ahead), 0) AS ahead
  FROM judged, verdict, waiter, LATERAL (SELECT count(*) AS ahead FROM unnest(others) AS p WHERE (` + rank("p") + `) < (ticket, id COLLATE "C")) AS queue
  WHERE refuses AND (NOT intended OR ` + isIntent + `)
)
SELECT ` + answerColumns + `, CASE WHEN hands_on THEN ` + reservedOwner("kept") + ` ELSE owner END, found.token,
       CASE WHEN hands_on THEN ` + reservedHeartbeat("kept", "found.now") + ` ELSE heartbeat END, CASE WHEN NOT hands_on THEN stale_after END,
       mine, refuses, ` + isReserved + `, waiter.ticket, waiter.passed, ahead, handed.told
FROM (SELECT *, over AND refuses AS hands_on FROM judged) AS found CROSS JOIN verdict CROSS JOIN behind LEFT JOIN granted ON true LEFT JOIN waiter ON true LEFT JOIN handed USING (ref)`

const (
	// joinFound joins asked with the lock and the value of its ref; foundColumns are its columns.
	joinFound = `CROSS JOIN (SELECT clock_timestamp() AS now OFFSET 0) AS clock
  LEFT JOIN LATERAL (` + lockOfAsked + `) AS lock ON true
  LEFT JOIN LATERAL (` + refOfAsked + `) AS refs ON true`
	foundColumns = `asked.*, lock.tid, owner, token, heartbeat, stale_after, waiting, refs.ref IS NOT NULL AS known, value, time, op,
         now, lock.tid IS NOT NULL AND NOT (` + isStale + `) AS fresh`

	// grantSQL takes the locks if the verdict is free, and writes the merged queues to their rows.
	grantSQL = `
raised AS (
  UPDATE token_origin SET origin = greatest(origin, latest + interval '1 microsecond' - ` + passed + `),
                          reached = greatest(reached, latest + interval '1 microsecond')
  FROM verdict WHERE id = 1 AND free AND NOT adopted AND origin + ` + passed + ` <= latest
), granted AS MATERIALIZED (
  SELECT greatest(origin + ` + passed + `, latest + interval '1 microsecond') AS token
  FROM verdict, ` + ofOrigin + ` AND free AND NOT adopted
), taken AS (
  INSERT INTO locks (project, ref, heartbeat, token, owner, nonce, stale_after, waiting)
  SELECT $1, ref, now, granted.token, $3, $4, $5::bigint, merged FROM granted, queues
  ON CONFLICT (project, ref) DO UPDATE
  SET heartbeat = excluded.heartbeat, token = excluded.token, owner = excluded.owner, nonce = excluded.nonce,
      stale_after = excluded.stale_after, waiting = excluded.waiting
)`

	// answerColumns are the first columns of the answer. The commit of a refusal does not wait for
	// the disk.
	answerColumns = `ref, CASE WHEN free THEN true ELSE set_config('synchronous_commit', 'off', true) IS NULL END, adopted, granted.token, found.now,
       known, value, time, op`
)

// Acquire takes the locks in one round trip, or finds out who holds them. The lock on a single ref
// is taken in a batch, unless the caller has already waited for it. If another request holds the
// lock or its keys, or waits for it, that may take a second round trip.
func (d *Driver) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.Acquired, error) {
	if len(r.Refs) == 1 && r.Waiter.Channel == "" && r.Waiter.Place.Ticket.IsZero() {
		c := acquireCall{request: r}
		if err := d.batcher.Do(ctx, &c); err != nil {
			return driver.Acquired{}, err
		}
		if c.answer.token != 0 || c.answer.refused() && r.Waiter.ID == "" {
			return d.acquired(c.answer, nil)
		}
	}
	a := acquisition{project: r.Project}
	err := d.grant(ctx, "acquire locks", r, &a, acquireSQL, placeText(r.Waiter, r.Owner))
	if err == nil {
		for ref, toNotify := range a.toNotify {
			d.notifier.Notify(r.Project, ref, toNotify)
		}
	}
	return d.acquired(a, err)
}

// acquisition is the answer to an Acquire or a Prepare.
type acquisition struct {
	project       string
	now           time.Time
	free, adopted bool
	token         driver.Token
	refs          []driver.Ref
	holders       []driver.LockInfo // of other owners
	place         driver.Place      // of the waiter, if it was refused
	toNotify      map[string][]string
	frozen        string                // the line of the project's freeze, "" if it is not frozen
	above         []string              // names above refs that are created
	more          []any                 // destinations of the answer's further columns
	first, before []roundtrip.Statement // statements of its transaction: before all others, and before the decision
}

func (a *acquisition) read(rows pgx.Rows) error {
	*a = acquisition{project: a.project, toNotify: map[string][]string{}, above: a.above, more: a.more, first: a.first, before: a.before}
	for rows.Next() {
		var (
			name              string
			granted           *time.Time
			exists, mine      bool
			refuses, reserved *bool // nil without a row
			ref               refColumns
			lock              lockColumns
			ticket            *int64
			passed, ahead     *int
			toNotify          []string
		)
		if err := rows.Scan(append([]any{&name, &a.free, &a.adopted, &granted, &a.now,
			&exists, &ref.value, &ref.time, &ref.op,
			&lock.owner, &lock.token, &lock.heartbeat, &lock.staleAfter,
			&mine, &refuses, &reserved, &ticket, &passed, &ahead, &toNotify}, a.more...)...); err != nil {
			return err
		}
		if name == "" {
			a.frozen = ref.value.String
			continue
		}
		if exists {
			a.refs = append(a.refs, ref.ref(name))
		}
		switch {
		case a.adopted:
			a.token = lock.info(a.project, name, a.now).Token
		case granted != nil:
			a.token = driver.TokenOf(*granted)
		case ticket != nil:
			a.place = driver.Place{Ticket: time.UnixMicro(*ticket), Passed: *passed, Ahead: *ahead}
		}
		if lock.owner.Valid && !mine && (*refuses || !*reserved) {
			a.holders = append(a.holders, lock.info(a.project, name, a.now))
		}
		if toNotify != nil {
			a.toNotify[name] = toNotify
		}
	}
	return rows.Err()
}

// refused reports whether a fresh lock of another owner is in the way.
func (a *acquisition) refused() bool {
	return slices.ContainsFunc(a.holders, func(l driver.LockInfo) bool { return !l.Stale() })
}

// grant makes the round trip that decides with sql. If no token could be made, it makes a second
// round trip. args are the arguments from $6 on.
func (d *Driver) grant(ctx context.Context, what string, r driver.AcquireRequest, a *acquisition, sql string, args ...any) error {
	args = append([]any{r.Project, r.Refs, r.Owner, r.Nonce, r.StaleAfter.Microseconds()}, args...)
	locked := func() roundtrip.Pipeline {
		return roundtrip.Write(what).Then(a.first...).Then(lockCreations(r.Project, r.Refs, a.above), lockRows(r.Project, r.Refs)).Then(a.before...)
	}
	err := d.pools.Do(ctx, locked().Then(d.lag.raise()...).Query(sql, a.read, args...))
	if err == nil && a.free && a.token == 0 {
		err = d.pools.Do(ctx, locked().Exec(raiseWaitingSQL).Query(sql, a.read, args...))
	}
	return err
}

// acquired returns the result of Acquire for the answer to its round trip, or for its error.
func (d *Driver) acquired(a acquisition, err error) (driver.Acquired, error) {
	switch {
	case err != nil:
		return driver.Acquired{}, err
	case a.adopted:
		return driver.Acquired{Token: a.token, Refs: a.refs}, nil
	case a.free && a.token == 0:
		return driver.Acquired{}, fmt.Errorf("acquire locks: %w: the row of token_origin is missing: "+
			"insert it again, with the id 1, both origin and reached being clock_timestamp()", driver.ErrSchema)
	case a.free:
		d.lag.saw(a.token, a.now)
		return driver.Acquired{Token: a.token, Refs: a.refs, Reclaimed: a.holders}, nil
	default:
		byRef(a.holders)
		return driver.Acquired{Place: a.place}, &driver.LockedError{Holders: a.holders}
	}
}
