package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// The verdict and all that follows from it. Nothing in here waits, unless a stale
// lock has a token from the future: then for the row of token_origin.
//
// A row with our name and nonce is ours already: if all are, they are adopted;
// if only some are, they stand in nobody's way and are taken anew, or dropped.
//
//	$1 project  $2 refs  $3 owner  $4 nonce  $5 stale_after, µs
//	$6 queues of waiting channels that go with the refs, or ''  $7 our channel
//	$8 whether to queue it  $9 the longest queue to add to
const acquireSQL = `
WITH clock AS MATERIALIZED (
  SELECT clock_timestamp() AS now
), holders AS MATERIALIZED (
  SELECT tid, token, coalesce(nonce = $4 AND owner = $3, false) AS mine, ` + isStale + ` AS stale, waiting, queue
  FROM clock, unnest($2::text[], $6::text[]) AS asked (ref, queue), LATERAL (` + lockOfAsked + `) AS lock
), verdict AS MATERIALIZED (
  SELECT count(*) FILTER (WHERE mine) = cardinality($2::text[]) AS adopted,
         count(*) FILTER (WHERE NOT mine AND NOT stale) = 0 AS free,
         max(token) AS latest
  FROM holders
), ` + grantSQL + `, dropped AS (
  DELETE FROM locks USING verdict
  WHERE NOT free AND ctid = ANY (ARRAY(SELECT tid FROM holders WHERE mine))
), queued AS (
  UPDATE locks
  SET waiting = holders.waiting || (CASE WHEN $8::boolean AND $7 <> ALL (coalesce(holders.waiting, '{}')) THEN ARRAY[$7] END)
                                || string_to_array(nullif(queue, ''), ',')
  FROM holders, verdict
  WHERE NOT free AND locks.ctid = tid AND NOT mine AND NOT stale
    AND (queue <> '' OR $8 AND $7 <> ALL (coalesce(holders.waiting, '{}')))
    AND coalesce(cardinality(holders.waiting), 0) < $9::int
)
SELECT asked.ref, CASE WHEN free THEN true ELSE set_config('synchronous_commit', 'off', true) IS NULL END, adopted, granted.token, now,
       refs.ref IS NOT NULL, refs.value, refs.time, refs.op,
       owner, lock.token, heartbeat, stale_after, coalesce(nonce = $4 AND owner = $3, false)
FROM unnest($2::text[]) AS asked (ref) CROSS JOIN clock CROSS JOIN verdict LEFT JOIN granted ON true
LEFT JOIN LATERAL (` + refOfAsked + `) AS refs ON true
LEFT JOIN LATERAL (` + lockOfAsked + `) AS lock ON true`

// grantSQL takes the locks if the verdict is that they are free.
const grantSQL = `
raised AS (
  UPDATE token_origin SET origin = greatest(origin, latest + interval '1 microsecond' - ` + passed + `),
                          reached = greatest(reached, latest + interval '1 microsecond')
  FROM verdict WHERE id = 1 AND free AND NOT adopted AND origin + ` + passed + ` <= latest
), granted AS MATERIALIZED (
  SELECT greatest(origin + ` + passed + `, latest + interval '1 microsecond') AS token
  FROM verdict, ` + ofOrigin + ` AND free AND NOT adopted
), taken AS (
  INSERT INTO locks (project, ref, heartbeat, token, owner, nonce, stale_after, waiting)
  SELECT $1, asked.ref, now, granted.token, $3, $4, $5::bigint, string_to_array(nullif(queue, ''), ',')
  FROM granted, clock, unnest($2::text[], $6::text[]) AS asked (ref, queue)
  ON CONFLICT (project, ref) DO UPDATE
  SET heartbeat = excluded.heartbeat, token = excluded.token, owner = excluded.owner, nonce = excluded.nonce,
      stale_after = excluded.stale_after,
      waiting = nullif(array_remove(locks.waiting || excluded.waiting, $7::text), '{}')
)`

// acquireFreeSQL does the same for a single ref that nobody holds, in half the
// time. Of a ref that is locked it returns the lock, and queues nobody.
//
//	$1 project  $2 ref  $3 owner  $4 nonce  $5 stale_after, µs  $6 queue that goes with the ref, or ''
const acquireFreeSQL = `
WITH taken AS (
  INSERT INTO locks (project, ref, heartbeat, token, owner, nonce, stale_after, waiting)
  SELECT $1, $2, clock_timestamp(), origin + ` + passed + `, $3, $4, $5::bigint, string_to_array(nullif($6, ''), ',')
  FROM ` + ofOrigin + ` AND NOT EXISTS (SELECT FROM locks WHERE project = $1 AND ref = $2)
  RETURNING token
)
SELECT taken.token, clock_timestamp(), value, time, op, owner, locks.token, heartbeat, stale_after, nonce
FROM (VALUES (true)) AS one LEFT JOIN taken ON true
LEFT JOIN refs ON refs.project = $1 AND refs.ref = $2
LEFT JOIN locks ON locks.project = $1 AND locks.ref = $2`

// queueSQL adds to the queue for a lock that somebody else holds. It finds none
// if that was released since the statement before it: then there is nobody to be
// woken by. Its commit doesn't wait for the disk either.
//
//	$1 project  $2 ref  $3 our nonce  $4 our channel, or ''  $5 queue that goes with the ref, or ''  $6 the longest queue to add to
//	$7 whether it was our turn, and somebody got in between: we stay the first
const queueSQL = `
UPDATE locks SET waiting = CASE
  WHEN cardinality(waiting) >= $6::int THEN waiting
  WHEN $7::boolean THEN array_remove(ARRAY[$4::text] || string_to_array(nullif($5, ''), ',') || waiting, '')
  WHEN $4 <> ALL (array_append(waiting, '')) THEN coalesce(waiting, '{}') || $4
  ELSE waiting
END
WHERE project = $1 AND ref = $2 AND nonce IS DISTINCT FROM $3
RETURNING set_config('synchronous_commit', 'off', true)`

// Acquire takes the locks in one round trip, or finds out who holds them. For a
// single ref it takes two if that has a stale lock, or if a lock that it was
// about to queue for was released.
func (d *Driver) Acquire(ctx context.Context, r refdb.AcquireRequest) (refdb.Acquired, error) {
	if r.Intents != nil {
		return d.acquireIntents(ctx, r)
	}
	inherited := d.inherits.take(r.Project, r.Refs)
	wait := r.Wait && d.listening.Load()
	if len(r.Refs) == 1 {
		a, err := d.acquireOne(ctx, r, wait, inherited)
		if err != nil {
			d.inherits.putBack(inherited)
		}
		if err != nil || a.token != 0 || a.fresh() && (a.queued || !wait && inherited.queues[0] == "") {
			return d.acquired(a, err)
		}
	}
	a := acquisition{project: r.Project}
	err := d.grant(ctx, "acquire locks", r, &a, acquireSQL, inherited.queues, d.channel, wait, maxWaiting)
	if err != nil {
		d.inherits.putBack(inherited)
	}
	return d.acquired(a, err)
}

// acquireOne takes the lock on a single ref unless somebody holds it: together
// with others, but for whoever queues or brings a queue.
func (d *Driver) acquireOne(ctx context.Context, r refdb.AcquireRequest, wait bool, inherited inheritance) (acquisition, error) {
	a := acquisition{project: r.Project}
	alone := func() error {
		work := trip{what: "acquire locks", writes: true}.
			lockRefs(r.Project, keysOf(r.Project, r.Refs)).
			raise(d.lag).
			then(acquireFreeSQL, func(rows pgx.Rows) error {
				var t taking
				if err := one(rows, t.columns()...); err != nil {
					return err
				}
				a = t.acquisition(r)
				return nil
			}, r.Project, r.Refs[0], r.Owner, r.Nonce, r.StaleAfter.Microseconds(), inherited.queues[0])
		if wait || inherited.queues[0] != "" {
			channel := ""
			if wait {
				channel = d.channel
			}
			work = work.then(queueSQL, func(rows pgx.Rows) error {
				a.queued = rows.Next()
				rows.Close()
				return rows.Err()
			}, r.Project, r.Refs[0], r.Nonce, channel, inherited.queues[0], maxWaiting, inherited.woken)
		}
		return d.do(ctx, work)
	}
	if wait || inherited.woken {
		err := alone()
		return a, err
	}
	c := acquireCall{request: r}
	shared, err := d.lane.pass(ctx, &c, alone)
	if shared {
		if a = c.answer; a.token == 0 && len(a.holders) == 0 {
			err = alone()
		}
	}
	return a, err
}

// taking is what acquireFreeSQL and acquireSharedSQL say of a ref.
type taking struct {
	token pgtype.Timestamptz // NULL if the lock was not taken
	now   time.Time
	ref   refColumns
	lock  lockColumns // that was there
	nonce pgtype.Text
}

func (t *taking) columns() []any {
	return []any{&t.token, &t.now, &t.ref.value, &t.ref.time, &t.ref.op,
		&t.lock.owner, &t.lock.token, &t.lock.heartbeat, &t.lock.staleAfter, &t.nonce}
}

func (t *taking) acquisition(r refdb.AcquireRequest) acquisition {
	a := acquisition{project: r.Project, now: t.now}
	if t.ref.value.Valid {
		a.refs = append(a.refs, t.ref.ref(r.Refs[0]))
	}
	lock := t.lock.info(r.Project, r.Refs[0], t.now)
	switch {
	case t.token.Valid:
		a.free, a.token = true, refdb.TokenOf(t.token.Time)
	case !t.lock.owner.Valid: // there is something wrong: see outcome
	case t.nonce.Valid && t.nonce.String == r.Nonce && lock.Owner == r.Owner:
		a.free, a.adopted, a.token = true, true, lock.Token
	default:
		a.holders = append(a.holders, lock)
	}
	return a
}

// acquisition is what the last statement of an Acquire says.
type acquisition struct {
	project       string
	now           time.Time
	free, adopted bool
	token         refdb.Token
	refs          []refdb.Ref
	holders       []refdb.LockInfo // others'
	queued        bool             // for the only one of them
}

func (a *acquisition) read(rows pgx.Rows) error {
	*a = acquisition{project: a.project}
	for rows.Next() {
		var (
			name         string
			granted      *time.Time
			exists, mine bool
			ref          refColumns
			lock         lockColumns
		)
		if err := rows.Scan(&name, &a.free, &a.adopted, &granted, &a.now,
			&exists, &ref.value, &ref.time, &ref.op,
			&lock.owner, &lock.token, &lock.heartbeat, &lock.staleAfter, &mine); err != nil {
			return err
		}
		if exists {
			a.refs = append(a.refs, ref.ref(name))
		}
		switch {
		case a.adopted:
			a.token = lock.info(a.project, name, a.now).Token
		case granted != nil:
			a.token = refdb.TokenOf(*granted)
		}
		if lock.owner.Valid && !mine {
			a.holders = append(a.holders, lock.info(a.project, name, a.now))
		}
	}
	return rows.Err()
}

// fresh reports whether another's lock is in the way.
func (a *acquisition) fresh() bool {
	return len(a.holders) > 0 && !a.holders[0].Stale()
}

// grant makes the trip that decides with sql, and again if there were no tokens
// to be had. The arguments are those from $6 on.
func (d *Driver) grant(ctx context.Context, what string, r refdb.AcquireRequest, a *acquisition, sql string, args ...any) error {
	args = append([]any{r.Project, r.Refs, r.Owner, r.Nonce, r.StaleAfter.Microseconds()}, args...)
	locked := func() trip {
		return trip{what: what, writes: true}.
			lockRefs(r.Project, keysOf(r.Project, r.Refs)).
			lockRows(r.Project, r.Refs)
	}
	err := d.do(ctx, locked().raise(d.lag).then(sql, a.read, args...))
	if err == nil && a.free && a.token == 0 {
		err = d.do(ctx, locked().then(raiseWaitingSQL, nil).then(sql, a.read, args...))
	}
	return err
}

// acquired is what Acquire returns for what its trip said, or for the trip's error.
func (d *Driver) acquired(a acquisition, err error) (refdb.Acquired, error) {
	if err == nil && a.token != 0 && !a.adopted {
		d.lag.saw(a.token, a.now)
	}
	return a.outcome(err)
}

// outcome is what Acquire returns for it, or for the error of its trip.
func (a *acquisition) outcome(err error) (refdb.Acquired, error) {
	switch {
	case err != nil:
		return refdb.Acquired{}, err
	case a.adopted:
		return refdb.Acquired{Token: a.token, Refs: a.refs}, nil
	case a.free && a.token == 0:
		return refdb.Acquired{}, fmt.Errorf("acquire locks: %w: the row of token_origin is missing: "+
			"insert it again, with the id 1, both origin and reached being clock_timestamp()", refdb.ErrSchema)
	case a.free:
		return refdb.Acquired{Token: a.token, Refs: a.refs, Reclaimed: a.holders}, nil
	default:
		byRef(a.holders)
		return refdb.Acquired{}, &refdb.LockedError{Holders: a.holders}
	}
}
