package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// The verdict and all that follows from it. Nothing in here waits. Besides the
// row with the verdict it returns the details of an unfavourable one, or the
// channels that wait for the locks it deleted.
//
//	$1 project   $2 refs    $3 olds, NULL if absent   $4 news   $5 operation   $6 whether to adopt
//	$7 refs whose locks are in the way   $8 those of them that end, and those to release
//	$9 fence     $10 its token   $11 whether the locks that end are locked, so that no beat comes in between
//	$12 whether of the locks only those that stand for an intent are in the way   $13 whether those of the fence do
const (
	updateSQL        = decideUpdate + answerUpdate
	updateIntentsSQL = decideUpdate + endIntents + answerUpdate

	decideUpdate = `
WITH clock AS MATERIALIZED (
  SELECT clock_timestamp() AS now
), lost AS MATERIALIZED (
  SELECT asked.ref FROM unnest($9::text[]) AS asked (ref) LEFT JOIN LATERAL (` + lockOfAsked + `) AS lock ON true
  WHERE lock.ref IS NULL OR coalesce(token, 'epoch') <> $10::timestamptz OR NOT $13::boolean AND ` + isIntent + `
), standing AS MATERIALIZED (
  SELECT lock.*, ` + isStale + ` AS stale FROM clock, unnest($7::text[]) AS asked (ref), LATERAL (` + lockOfAsked + `) AS lock
  WHERE NOT $12::boolean OR ` + isIntent + `
), differing AS MATERIALIZED (
  SELECT asked.ref, value FROM unnest($2::text[], $3::text[]) AS asked (ref, old)
  LEFT JOIN LATERAL (` + refOfAsked + `) AS refs ON true
  WHERE CASE
    WHEN refs.ref IS NULL THEN old IS NOT NULL AND NOT $6::boolean
    WHEN value IN ` + absent + ` THEN old IS NOT NULL
    ELSE value IS DISTINCT FROM old
  END
), verdict AS MATERIALIZED (
  SELECT CASE
    WHEN EXISTS (SELECT FROM lost) THEN 'lost'
    WHEN EXISTS (SELECT FROM standing WHERE NOT stale) THEN 'locked'
    WHEN NOT $11::boolean AND EXISTS (SELECT FROM standing) THEN 'stale'
    WHEN EXISTS (SELECT FROM differing) THEN 'differs'
    ELSE 'done'
  END AS verdict
), written AS (
  INSERT INTO refs (project, ref, value, time, op)
  SELECT $1, asked.ref, asked.new, now, $5 FROM verdict, clock, unnest($2::text[], $4::text[]) AS asked (ref, new)
  WHERE verdict = 'done'
  ON CONFLICT (project, ref) DO UPDATE SET value = excluded.value, time = excluded.time, op = excluded.op
), deleted AS (
  DELETE FROM locks USING verdict WHERE verdict = 'done' AND ctid = ANY (ARRAY(
    SELECT tid FROM unnest($8::text[]) AS asked (ref), LATERAL (` + lockOfAsked + `) AS lock
  ))
  RETURNING ref, waiting
)`
	answerUpdate = `
SELECT verdict, NULL AS ref, NULL AS value, NULL AS owner, NULL::timestamptz AS token, NULL::timestamptz AS heartbeat,
       NULL::bigint AS stale_after, now, NULL::text[] AS waiting
FROM verdict, clock
UNION ALL
SELECT verdict, ref, NULL, NULL, NULL, NULL, NULL, now, NULL FROM lost, verdict, clock WHERE verdict = 'lost'
UNION ALL
SELECT verdict, ref, NULL, owner, token, heartbeat, stale_after, now, NULL FROM standing, verdict, clock WHERE verdict = 'locked'
UNION ALL
SELECT verdict, ref, value, NULL, NULL, NULL, NULL, now, NULL FROM differing, verdict, clock WHERE verdict = 'differs'
UNION ALL
SELECT verdict, ref, NULL, NULL, NULL, NULL, NULL, now, waiting FROM deleted, verdict, clock WHERE waiting IS NOT NULL`
)

// updateOneSQL does the same for a single ref without a fence, or with one on
// that ref alone, in half the time. Where a stale lock is in the way it only says so.
//
//	$1 project  $2 ref  $3 old, NULL if absent  $4 new  $5 operation  $6 whether to adopt
//	$7 token of the fence, or NULL  $8 whether a lock is in the way  $9 whether it is released
const updateOneSQL = `
WITH verdict AS MATERIALIZED (
  SELECT now, value, owner, token, heartbeat, stale_after, waiting, CASE
    WHEN $7::timestamptz IS NOT NULL AND (owner IS NULL OR coalesce(token, 'epoch') <> $7 OR ` + isIntent + `) THEN 'lost'
    WHEN $8::boolean AND owner IS NOT NULL THEN CASE WHEN ` + isStale + ` THEN 'stale' ELSE 'locked' END
    WHEN $7 IS NULL AND ` + isIntent + ` THEN 'locked'
    WHEN CASE
      WHEN refs.ref IS NULL THEN $3::text IS NOT NULL AND NOT $6::boolean
      WHEN value IN ` + absent + ` THEN $3 IS NOT NULL
      ELSE value IS DISTINCT FROM $3
    END THEN 'differs'
    ELSE 'done'
  END AS verdict
  FROM (SELECT clock_timestamp() AS now OFFSET 0) AS clock
  LEFT JOIN refs ON refs.project = $1 AND refs.ref = $2
  LEFT JOIN locks ON locks.project = $1 AND locks.ref = $2
), written AS (
  INSERT INTO refs (project, ref, value, time, op)
  SELECT $1, $2, $4, now, $5 FROM verdict WHERE verdict = 'done'
  ON CONFLICT (project, ref) DO UPDATE SET value = excluded.value, time = excluded.time, op = excluded.op
), deleted AS (
  DELETE FROM locks USING verdict WHERE $9::boolean AND verdict = 'done' AND project = $1 AND ref = $2
)
SELECT verdict, $2, value, owner, token, heartbeat, stale_after, now, CASE WHEN $9 THEN waiting END FROM verdict`

// updatePlainSQL moves a single ref that nobody has locked and that holds what it
// should, in less time still. Why it moves none, updateOneSQL tells.
//
//	$1 project  $2 ref  $3 old  $4 new  $5 operation  $6 whether a lock is in the way that stands for no intent
const updatePlainSQL = `
UPDATE refs SET value = $4, time = clock_timestamp(), op = $5
WHERE project = $1 AND ref = $2 AND value = $3
AND NOT EXISTS (SELECT FROM locks WHERE project = $1 AND ref = $2 AND ($6::boolean OR ` + isIntent + `))`

// Update decides and writes in one round trip; in two if stale locks are in the
// way, or if a single ref without a fence is refused that was to be there already.
func (d *Driver) Update(ctx context.Context, t refdb.Transaction) error {
	var c change
	c.take(t)
	o := outcome{project: t.Project}
	sql, intents := updateSQL, t.Fence != nil && t.Fence.Intents
	if intents && t.Release {
		sql = updateIntentsSQL
	}
	if len(c.keyed) == 1 && len(c.refs) == 1 && !intents {
		if done, err := d.updateOne(ctx, t, c, &o); done || err != nil {
			return err
		}
	}
	for careful := t.Release || o.verdict == "stale"; o.verdict == "" || o.verdict == "stale"; careful = true {
		err := d.do(ctx, c.trip(t, careful).then(sql, o.read,
			t.Project, c.refs, c.olds, c.news, t.ID, t.Adopt, c.inTheWay, c.doomed, c.fence, c.token.Time(), careful, t.Advisory, intents))
		if err != nil {
			return err
		}
	}
	if o.verdict == "done" {
		d.released(o.freedBy(t))
	}
	return o.err(t)
}

// freedBy are the locks that t deleted and somebody waits for.
func (o *outcome) freedBy(t refdb.Transaction) []freedLock {
	if !t.Next && !t.Back {
		return o.freed
	}
	ref := t.Fence.Refs[0]
	for i := range o.freed {
		if f := &o.freed[i]; f.ref == ref {
			f.next, f.back = t.Next, t.Back
			return o.freed
		}
	}
	if t.Back {
		return append(o.freed, freedLock{project: t.Project, ref: ref, back: true})
	}
	return o.freed
}

// updateOne updates a single ref, alone or together with others. But for a
// fence that stays, which is for the few who write under a lock several times.
// It reports whether a shared trip did, which wakes those who wait by itself.
func (d *Driver) updateOne(ctx context.Context, t refdb.Transaction, c change, o *outcome) (done bool, err error) {
	decide := func() error {
		return d.do(ctx, c.trip(t, t.Release).then(updateOneSQL, o.read,
			t.Project, c.refs[0], c.olds[0], c.news[0], t.ID, t.Adopt, c.fenceTime(), c.heeds, t.Release))
	}
	alone := decide
	switch {
	case t.Fence != nil && !t.Release:
		return false, decide()
	case c.plain(t):
		alone = func() error {
			err := d.do(ctx, c.trip(t, false).then(updatePlainSQL, o.readPlain,
				t.Project, c.refs[0], c.olds[0], c.news[0], t.ID, c.heeds))
			if err == nil && o.verdict == "" {
				err = decide()
			}
			return err
		}
	}
	u := updateCall{transaction: t, change: c}
	shared, err := d.lane.pass(ctx, &u, alone)
	if !shared {
		return false, err
	}
	*o = u.answer
	if o.verdict == "" {
		return false, decide()
	}
	return o.verdict == "done", nil
}

// plain reports whether updatePlainSQL may do.
func (c *change) plain(t refdb.Transaction) bool {
	return t.Fence == nil && !t.Adopt && c.olds[0] != nil
}

// trip is the beginning of the update's: all locks that it takes. The rows of
// the locks that end are locked only if there are any for sure.
func (c *change) trip(t refdb.Transaction, careful bool) trip {
	work := trip{what: "update refs", writes: true}.lockRefs(t.Project, keysOf(t.Project, c.keyed))
	if careful && len(c.doomed) > 0 {
		work = work.lockRows(t.Project, c.doomed)
	}
	if len(c.fence) > 0 && !t.Release {
		work = work.lockFence(t.Project, c.fence)
	}
	return work
}

// fenceTime is the token of the fence, or nil.
func (c *change) fenceTime() *time.Time {
	if len(c.fence) == 0 {
		return nil
	}
	return new(c.token.Time())
}

// A change is a Transaction as arrays.
type change struct {
	refs, news []string
	olds       []*string // nil if absent
	fence      []string
	token      refdb.Token
	inTheWay   []string // refs whose locks are, unless they are stale
	heeds      bool     // those of other than intents, too
	doomed     []string // refs whose locks are deleted with the update
	keyed      []string // all refs that it touches
}

func (c *change) take(t refdb.Transaction) {
	c.refs, c.news, c.olds = make([]string, len(t.Updates)), make([]string, len(t.Updates)), make([]*string, len(t.Updates))
	c.fence, c.inTheWay = []string{}, []string{}
	if t.Fence != nil {
		c.fence, c.token = t.Fence.Refs, t.Fence.Token
	}
	c.keyed = slices.Clone(c.fence)
	for i := range t.Updates {
		u := &t.Updates[i]
		c.refs[i], c.news[i] = u.Ref, string(u.New)
		if !u.Old.IsAbsent() {
			c.olds[i] = (*string)(&u.Old)
		}
		if _, ours := slices.BinarySearch(c.fence, u.Ref); !ours {
			c.keyed = append(c.keyed, u.Ref)
			c.inTheWay = append(c.inTheWay, u.Ref)
		}
	}
	c.heeds = !t.Advisory && len(c.inTheWay) > 0
	c.doomed = []string{}
	if !t.Advisory {
		c.doomed = c.inTheWay
	}
	if t.Release {
		c.doomed = slices.Concat(c.fence, c.doomed)
		slices.Sort(c.doomed)
	}
}

// outcome is what the last statement of an Update says.
type outcome struct {
	project string
	verdict string // "" while there is none
	lost    []string
	holders []refdb.LockInfo
	have    map[string]refdb.Value
	freed   []freedLock
}

func (o *outcome) read(rows pgx.Rows) error {
	*o = outcome{project: o.project}
	for rows.Next() {
		if raw := rows.RawValues(); string(raw[0]) == "done" && raw[len(raw)-1] == nil {
			o.verdict = "done" // and nobody waits: that is all, mostly
			continue
		}
		var (
			verdict    string
			ref, value *string
			lock       lockColumns
			now        time.Time
			waiting    []string
		)
		if err := rows.Scan(&verdict, &ref, &value, &lock.owner, &lock.token, &lock.heartbeat, &lock.staleAfter, &now, &waiting); err != nil {
			return err
		}
		o.verdict = verdict
		if ref != nil {
			o.add(*ref, value, lock, now, waiting)
		}
	}
	return rows.Err()
}

// readPlain reads whether a plain update was done.
func (o *outcome) readPlain(rows pgx.Rows) error {
	*o = outcome{project: o.project}
	rows.Close() // there are none
	if rows.CommandTag().RowsAffected() == 1 {
		o.verdict = "done"
	}
	return rows.Err()
}

// add takes down what is said about one ref.
func (o *outcome) add(ref string, value *string, lock lockColumns, now time.Time, waiting []string) {
	switch o.verdict {
	case "lost":
		o.lost = append(o.lost, ref)
	case "locked":
		o.holders = append(o.holders, lock.info(o.project, ref, now))
	case "differs":
		if o.have == nil {
			o.have = make(map[string]refdb.Value)
		}
		o.have[ref] = refdb.Unknown
		if value != nil {
			o.have[ref] = refdb.Value(*value)
		}
	default:
		if len(waiting) > 0 {
			o.freed = append(o.freed, freedLock{project: o.project, ref: ref, waiting: waiting})
		}
	}
}

// err is what Update returns for it.
func (o *outcome) err(t refdb.Transaction) error {
	switch o.verdict {
	case "lost":
		slices.Sort(o.lost)
		return &refdb.LostError{Project: t.Project, Refs: o.lost, Reason: "the database has it gone, or another's"}
	case "locked":
		byRef(o.holders)
		return &refdb.LockedError{Holders: o.holders}
	case "differs":
		e := &refdb.MismatchError{Project: t.Project}
		for _, u := range t.Updates {
			if have, ok := o.have[u.Ref]; ok {
				e.Mismatches = append(e.Mismatches, refdb.Mismatch{Ref: u.Ref, Want: u.Old, Have: have})
			}
		}
		return e
	}
	return nil
}
