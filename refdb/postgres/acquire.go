package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// acquireSQL is the verdict and all that follows from it. Nothing in here waits,
// unless a stale lock has a token from the future: then for the row of token_origin.
//
// A row with our name and nonce is ours already: if all are, they are adopted;
// if only some are, they stand in nobody's way and are taken anew, or dropped.
//
//	$1 project  $2 refs  $3 owner  $4 nonce  $5 stale_after, µs
//	$6 queues that go with the refs, or ''  $7 who waits if the locks are refused, or ''
const (
	acquireSQL = `
WITH found AS MATERIALIZED (
  SELECT ` + foundColumns + `, coalesce(nonce = $4 AND owner = $3, false) AS mine
  FROM unnest($2::text[], $6::text[]) AS asked (ref, queue) ` + joinFound + `
), verdict AS MATERIALIZED (
  SELECT count(*) FILTER (WHERE mine) = cardinality($2::text[]) AS adopted,
         count(*) FILTER (WHERE fresh AND NOT mine) = 0 AS free,
         max(token) AS latest
  FROM found
), queues AS MATERIALIZED (
  SELECT ref, tid, now, fresh AND NOT mine AS refuses, waiting,
         CASE WHEN queue <> '' OR free AND waiting IS NOT NULL OR NOT free AND $7 <> '' THEN ` + mergedQueue + ` END AS merged
  FROM found, verdict
), ` + grantSQL + `, dropped AS (
  DELETE FROM locks USING verdict
  WHERE NOT free AND ctid = ANY (ARRAY(SELECT tid FROM found WHERE mine))
), queued AS (
  UPDATE locks SET waiting = merged FROM queues, verdict
  WHERE NOT free AND locks.ctid = tid AND refuses AND merged <> coalesce(queues.waiting, '{}')
)
SELECT ` + answerColumns + `, mine, CASE WHEN mine AND NOT free THEN waiting END
FROM found CROSS JOIN verdict LEFT JOIN granted ON true`

	// joinFound joins asked with what there is on its ref, foundColumns are the columns of that.
	joinFound = `CROSS JOIN (SELECT clock_timestamp() AS now OFFSET 0) AS clock
  LEFT JOIN LATERAL (` + lockOfAsked + `) AS lock ON true
  LEFT JOIN LATERAL (` + refOfAsked + `) AS refs ON true`
	foundColumns = `asked.*, lock.tid, owner, token, heartbeat, stale_after, waiting, refs.ref IS NOT NULL AS known, value, time, op,
         now, lock.tid IS NOT NULL AND NOT (` + isStale + `) AS fresh`

	// grantSQL takes the locks if the verdict is that they are free, and puts the
	// merged queues into their rows.
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

	// answerColumns are what an acquisition reads. The commit of a refusal doesn't
	// wait for the disk.
	answerColumns = `ref, CASE WHEN free THEN true ELSE set_config('synchronous_commit', 'off', true) IS NULL END, adopted, granted.token, now,
       known, value, time, op, owner, found.token, heartbeat, stale_after`
)

// Acquire takes the locks in one round trip, or finds out who holds them. The
// lock on a single ref is taken in a batch, unless somebody waits for it; if it is
// stale, or others are at it right now, that takes a second round trip.
func (d *Driver) Acquire(ctx context.Context, r refdb.AcquireRequest) (refdb.Acquired, error) {
	queues := make([]string, len(r.Refs))
	for i, q := range r.Queues {
		queues[i] = entriesOf(q)
	}
	if len(r.Refs) == 1 && queues[0] == "" && r.Waiter == (refdb.Waiter{}) {
		c := acquireCall{request: r}
		if err := d.batcher.do(ctx, &c); err != nil {
			return refdb.Acquired{}, err
		}
		if c.answer.token != 0 || c.answer.refused() {
			return d.acquired(c.answer, nil)
		}
	}
	a := acquisition{project: r.Project}
	err := d.grant(ctx, "acquire locks", r, &a, acquireSQL, queues, entryOf(r.Waiter))
	if err == nil {
		d.wakeFreed(a.freed...)
	}
	return d.acquired(a, err)
}

// acquisition is the answer to an Acquire or a Prepare.
type acquisition struct {
	project       string
	now           time.Time
	free, adopted bool
	token         refdb.Token
	refs          []refdb.Ref
	holders       []refdb.LockInfo // others'
	freed         []freedLock      // our own that were dropped
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
			waiting      []string
		)
		if err := rows.Scan(&name, &a.free, &a.adopted, &granted, &a.now,
			&exists, &ref.value, &ref.time, &ref.op,
			&lock.owner, &lock.token, &lock.heartbeat, &lock.staleAfter, &mine, &waiting); err != nil {
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
		if waiting != nil {
			a.freed = append(a.freed, freedLock{a.project, name, waiting})
		}
	}
	return rows.Err()
}

// refused reports whether a fresh lock of somebody else is in the way.
func (a *acquisition) refused() bool {
	return slices.ContainsFunc(a.holders, func(l refdb.LockInfo) bool { return !l.Stale() })
}

// grant makes the round trip that decides with sql, and again if there were no
// tokens to be had. The arguments are those from $6 on.
func (d *Driver) grant(ctx context.Context, what string, r refdb.AcquireRequest, a *acquisition, sql string, args ...any) error {
	args = append([]any{r.Project, r.Refs, r.Owner, r.Nonce, r.StaleAfter.Microseconds()}, args...)
	locked := func() roundTrip {
		return roundTrip{what: what, writes: true}.lockRefs(r.Project, r.Refs).lockRows(r.Project, r.Refs)
	}
	err := d.do(ctx, locked().raise(d.lag).then(sql, a.read, args...))
	if err == nil && a.free && a.token == 0 {
		err = d.do(ctx, locked().then(raiseWaitingSQL, nil).then(sql, a.read, args...))
	}
	return err
}

// acquired is what Acquire returns for what its round trip said, or for its error.
func (d *Driver) acquired(a acquisition, err error) (refdb.Acquired, error) {
	switch {
	case err != nil:
		return refdb.Acquired{}, err
	case a.adopted:
		return refdb.Acquired{Token: a.token, Refs: a.refs}, nil
	case a.free && a.token == 0:
		return refdb.Acquired{}, fmt.Errorf("acquire locks: %w: the row of token_origin is missing: "+
			"insert it again, with the id 1, both origin and reached being clock_timestamp()", refdb.ErrSchema)
	case a.free:
		d.lag.saw(a.token, a.now)
		return refdb.Acquired{Token: a.token, Refs: a.refs, Reclaimed: a.holders}, nil
	default:
		byRef(a.holders)
		return refdb.Acquired{}, &refdb.LockedError{Holders: a.holders}
	}
}
