package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/operation"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

// These statements compare, write, and end locks, without waiting. They return a row with the
// verdict, and further rows with the reasons for a refusal, or with the waiters to notify of ended
// locks.
//
//	$1 project   $2 refs    $3 olds, NULL if absent   $4 news   $5 operation   $6 whether to adopt
//	$7 refs whose locks are in the way   $8 whether the locks of the fence end
//	$9 fence     $10 its owner   $11 its token   $12 whether the rows of ending locks are locked, so that no beat comes in between
//	$13 whether only locks that stand for an intent are in the way  $14 the place of the next waiter, or ''
//	$15 created refs, if names are checked, and  $16 the names above them: see around
var (
	updateSQL     = fenceOfUpdate + decideUpdate(foundByKey, updateVerdict) + endLocks("$14::text") + answerUpdate
	updateManySQL = fenceOfUpdate + decideUpdate(foundInRange, updateVerdict) + endLocks("$14::text") + answerUpdate

	updateCreationSQL     = fenceOfUpdate + `, ` + around(15, 16) + decideUpdate(foundByKey, creationVerdict) + endLocks("$14::text") + answerUpdate + answerCreation
	updateManyCreationSQL = fenceOfUpdate + `, ` + around(15, 16) + decideUpdate(foundInRange, creationVerdict) + endLocks("$14::text") + answerUpdate + answerCreation
)

const (
	fenceOfUpdate = `
WITH ` + frozenOfProject + `, fence AS MATERIALIZED (
  SELECT asked.ref, CASE WHEN owner = $10 AND coalesce(token, 'epoch') = $11::timestamptz AND NOT (` + isIntent + `) THEN lock.tid END AS lock, waiting
  FROM unnest($9::text[]) AS asked (ref) LEFT JOIN LATERAL (` + lockOfAsked + `) AS lock ON true
)`
	answerFinish = `
SELECT verdict, NULL AS ref, NULL AS value, NULL AS owner, NULL::timestamptz AS token, NULL::timestamptz AS heartbeat,
       NULL::bigint AS stale_after, now, NULL::text[] AS told
FROM verdict, clock
UNION ALL
SELECT verdict, ref, NULL, NULL, NULL, NULL, NULL, now, NULL FROM lost, verdict, clock WHERE verdict = 'lost'
UNION ALL
SELECT verdict, ref, NULL, owner, token, heartbeat, stale_after, now, NULL FROM standing, verdict, clock WHERE verdict = 'locked'
UNION ALL
SELECT verdict, ref, value, NULL, NULL, NULL, NULL, now, NULL FROM differing, verdict, clock WHERE verdict = 'differs'
UNION ALL
SELECT verdict, ref, NULL, NULL, NULL, NULL, NULL, now, told FROM handed, verdict, clock WHERE told IS NOT NULL`
	answerUpdate = answerFinish + `
UNION ALL
SELECT verdict, '', line, NULL, NULL, NULL, NULL, now, NULL FROM frozen, verdict, clock WHERE verdict = 'frozen'`
	answerCreation = `
UNION ALL
SELECT verdict, ref, NULL, owner, token, heartbeat, stale_after, now, NULL FROM around, verdict, clock
WHERE verdict = 'locked' AND owner IS NOT NULL OR verdict = 'excluded' AND holds`
)

const (
	// foundByKey looks up the row of each ref. It looks up none if there is no row from the first
	// of the refs to the last, as in an import of new refs.
	foundByKey = `found AS MATERIALIZED (
  SELECT asked.*, tid, value FROM unnest($2::text[], $3::text[], $4::text[]) AS asked (ref, old, new)
  LEFT JOIN LATERAL (
    SELECT ctid AS tid, value FROM refs WHERE project = $1 AND ref = asked.ref
      AND EXISTS (SELECT FROM refs WHERE project = $1 AND ref >= ($2::text[])[1] AND ref <= ($2::text[])[cardinality($2::text[])])
    LIMIT 1
  ) AS refs ON true
)`

	// inRange reads the rows from the first of the refs to the last, but at most twice as many as
	// there are refs.
	inRange = `in_range AS MATERIALIZED (
  SELECT ref, ctid AS tid, value FROM refs WHERE project = $1 AND ref >= ($2::text[])[1] AND ref <= ($2::text[])[cardinality($2::text[])]
  ORDER BY ref LIMIT 2 * cardinality($2::text[])
)`

	// foundInRange returns the same rows as foundByKey by reading from the first of the refs to the
	// last, which is faster for many adjacent refs. It reads at most twice as many rows as there
	// are refs, and looks up the refs beyond.
	//
	// Only a hash join or a merge join can implement a full join. For another kind of join the
	// planner, which plans for arrays of unknown length, would compare each row with each ref.
	foundInRange = inRange + `, range_end AS MATERIALIZED (
  SELECT CASE WHEN count(*) = 2 * cardinality($2::text[]) THEN max(ref) END AS last FROM in_range
), found AS MATERIALIZED (
  SELECT asked.ref, old, new, coalesce(in_range.tid, refs.tid) AS tid, coalesce(in_range.value, refs.value) AS value
  FROM unnest($2::text[], $3::text[], $4::text[]) AS asked (ref, old, new) FULL JOIN in_range ON in_range.ref = asked.ref CROSS JOIN range_end
  LEFT JOIN LATERAL (SELECT ctid AS tid, value FROM refs WHERE project = $1 AND ref = asked.ref AND asked.ref > last LIMIT 1) AS refs ON true
  WHERE coalesce(asked.ref, '') <> ''
)`
)

// verdictOf returns the verdict on an update from the conditions that may refuse it, in the order
// of precedence. A stale lock in the way refuses nothing, but has to be locked first.
func verdictOf(lost, frozen, locked, stale, differs, excluded string) string {
	return `CASE
    WHEN ` + lost + ` THEN 'lost'
    WHEN ` + frozen + ` THEN 'frozen'
    WHEN ` + locked + ` THEN 'locked'
    WHEN ` + stale + ` THEN 'stale'
    WHEN ` + differs + ` THEN 'differs'
    WHEN ` + excluded + ` THEN 'excluded'
    ELSE 'done'
  END`
}

// differs is true for a ref that does not hold old, which is NULL if the ref should be absent.
// value is NULL if the ref has no row: an update that adopts the ref does not require old then.
func differs(adopt string) string {
	return `CASE
    WHEN value IS NULL THEN old IS NOT NULL AND NOT ` + adopt + `
    WHEN value IN ` + absent + ` THEN old IS NOT NULL
    ELSE value IS DISTINCT FROM old
  END`
}

// These are the verdicts on the end of intents, on an update, and on an update whose created refs
// other refs may exclude.
var (
	finishVerdict = verdictOf(
		`EXISTS (SELECT FROM lost)`,
		`false`, // an intent that was prepared before the freeze may end
		`EXISTS (SELECT FROM standing WHERE NOT stale)`,
		`NOT $12::boolean AND EXISTS (SELECT FROM standing)`,
		`EXISTS (SELECT FROM differing)`,
		`false`)
	updateVerdict = verdictOf(
		`EXISTS (SELECT FROM lost)`,
		`EXISTS (SELECT FROM frozen)`,
		`EXISTS (SELECT FROM standing WHERE NOT stale)`,
		`NOT $12::boolean AND EXISTS (SELECT FROM standing)`,
		`EXISTS (SELECT FROM differing)`,
		`false`)
	creationVerdict = verdictOf(
		`EXISTS (SELECT FROM lost)`,
		`EXISTS (SELECT FROM frozen)`,
		`EXISTS (SELECT FROM standing WHERE NOT stale) OR EXISTS (SELECT FROM around WHERE owner IS NOT NULL)`,
		`NOT $12::boolean AND EXISTS (SELECT FROM standing)`,
		`EXISTS (SELECT FROM differing)`,
		`EXISTS (SELECT FROM around)`)
)

// decideUpdate compares, and writes if every ref matches. It looks up no lock if there is none from
// the first of the refs to the last.
func decideUpdate(found, verdict string) string {
	return `, lost AS MATERIALIZED (
  SELECT ref FROM fence WHERE lock IS NULL
), clock AS MATERIALIZED (
  SELECT clock_timestamp() AS now
), standing AS MATERIALIZED (
  SELECT lock.*, ` + isStale + ` AS stale FROM clock, unnest($7::text[]) AS asked (ref), LATERAL (` + lockOfAsked + `) AS lock
  WHERE EXISTS (SELECT FROM locks WHERE project = $1 AND ref >= ($7::text[])[1] AND ref <= ($7::text[])[cardinality($7::text[])]) AND (NOT $13::boolean OR ` + isIntent + `)
    AND NOT (` + keptForNobody + `)
), ` + found + `, differing AS MATERIALIZED (
  SELECT ref, value FROM found
  WHERE ` + differs("$6::boolean") + `
), verdict AS MATERIALIZED (
  SELECT ` + verdict + ` AS verdict
), created AS (
  INSERT INTO refs (project, ref, value, time, op)
  SELECT $1, ref, new, now, $5 FROM found, verdict, clock WHERE verdict = 'done' AND tid IS NULL
), changed AS (
  UPDATE refs SET value = new, time = now, op = $5 FROM found, verdict, clock WHERE verdict = 'done' AND refs.ctid = tid
)`
}

// endLocks ends the locks of the fence, if they are to end, and the stale locks that the update
// passes.
func endLocks(next string) string {
	return `, ends AS MATERIALIZED (
  SELECT tid, ` + placesOf("waiting", "''") + ` AS waiting, next FROM (
    SELECT lock AS tid, waiting, ` + next + ` AS next FROM fence WHERE $8::boolean UNION ALL SELECT tid, waiting, '' FROM standing
  ) AS ending, verdict WHERE verdict = 'done'
), ` + handOver
}

// updateRangeSQL moves all refs if each has its expected value, if there is no lock from the first
// to the last, if the project is not frozen, and if the range has at most twice as many rows as
// there are refs. It returns whether it moved them. It takes three quarters of the time of
// updateManySQL, which also has to return the reasons for a refusal.
//
//	$1 project  $2 refs  $3 olds  $4 news  $5 operation
var updateRangeSQL = `
WITH ` + inRange + `, fits AS MATERIALIZED (
  SELECT tid, new FROM in_range FULL JOIN unnest($2::text[], $3::text[], $4::text[]) AS asked (ref, old, new) ON in_range.ref = asked.ref
  WHERE coalesce(value = old, false) -- does not turn the full join into another one
), verdict AS MATERIALIZED (
  SELECT (SELECT count(*) FROM fits) = cardinality($2::text[])
    AND NOT EXISTS (
      SELECT FROM locks WHERE project = $1 AND ref >= ($2::text[])[1] AND ref <= ($2::text[])[cardinality($2::text[])] AND NOT (` + keptForNobody + `)
    ) AND NOT EXISTS (SELECT FROM projects WHERE project = $1 AND ` + isFrozen + `) AS done
), changed AS (
  UPDATE refs SET value = new, time = clock_timestamp(), op = $5 FROM fits, verdict WHERE done AND refs.ctid = tid
)
SELECT done FROM verdict`

// updateRange makes an update of many refs if updateRangeSQL can, and reports whether it did.
func (d *Driver) updateRange(ctx context.Context, r driver.UpdateRequest, c updateArrays) (done bool, err error) {
	read := func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&done}, func() error { return nil })
		return err
	}
	err = d.pools.Do(ctx, roundtrip.Write("update refs").Then(lockRefs(r.Project, c.keyed)).Query(updateRangeSQL, read, r.Project, c.refs, c.olds, c.news, operation.Text(r.Origin)))
	return done, err
}

// Update decides and writes in one round trip. It takes one more if stale locks are in the way, or
// if updateRangeSQL can't move many refs. The update of a single ref is made in a batch, unless its
// fence covers other refs or is not released: such updates are rare.
func (d *Driver) Update(ctx context.Context, r driver.UpdateRequest) error {
	c := newUpdateArrays(r)
	o := outcome{project: r.Project}
	if len(c.keyed) == 1 && len(c.refs) == 1 && len(c.created) == 0 && (r.Fence == nil || c.release) {
		u := updateCall{request: r, arrays: c}
		if err := d.batcher.Do(ctx, &u); err != nil {
			return err
		}
		switch o = u.answer; o.verdict {
		case "done":
			return nil
		case "frozen": // the statement below also returns the reason
			o.verdict = ""
		case "lost", "locked", "differs":
			return o.err(r.Updates)
		}
	}
	if len(c.refs) > maxKeys && r.Fence == nil && !slices.Contains(c.olds, nil) {
		if done, err := d.updateRange(ctx, r, c); done || err != nil {
			return err
		}
	}
	// The rows of ending locks are locked only if some certainly exist.
	sql, names := updateSQL, []any(nil)
	if len(c.refs) > maxKeys {
		sql = updateManySQL
	}
	if len(c.created) > 0 {
		sql, names = updateCreationSQL, []any{c.created, c.above}
		if len(c.refs) > maxKeys {
			sql = updateManyCreationSQL
		}
	}
	for rowsLocked := c.release || o.verdict == "stale"; o.verdict == "" || o.verdict == "stale"; rowsLocked = true {
		work := roundtrip.Write("update refs").Then(lockCreations(r.Project, c.keyed, c.above))
		if rowsLocked && len(c.ending) > 0 {
			work = work.Then(lockRows(r.Project, c.ending))
		}
		if len(c.fence) > 0 && !c.release {
			work = work.Then(lockFence(r.Project, c.fence))
		}
		err := d.pools.Do(ctx, work.Query(sql, o.read, append([]any{
			r.Project, c.refs, c.olds, c.news, operation.Text(r.Origin), r.Adopt, c.inTheWay, c.release, c.fence, c.owner, c.token.Time(), rowsLocked, !c.mandatory, c.next}, names...)...))
		if err != nil {
			return err
		}
	}
	d.notifyEnded(&o, c)
	if o.verdict == "excluded" {
		return conflicts(r.Project, c.created, o.excluding)
	}
	return o.err(r.Updates)
}

// notifyEnded is notifyAll after an update that may have released its fence.
func (d *Driver) notifyEnded(o *outcome, c updateArrays) {
	d.notifyAll(o)
	if o.verdict != "done" || c.next == "" {
		return
	}
	for _, ref := range c.fence {
		if o.toNotify[ref] == nil {
			d.notifier.NotifyNext(o.project, ref, nil, c.next)
		}
	}
}

// notifyAll notifies the waiters for the locks that ended.
func (d *Driver) notifyAll(o *outcome) {
	for ref, toNotify := range o.toNotify {
		d.notifier.Notify(o.project, ref, toNotify)
	}
}

// updateArrays is an UpdateRequest as arrays.
type updateArrays struct {
	refs, news []string
	olds       []*string // nil if absent
	fence      []string
	owner      string
	token      driver.Token
	release    bool
	next       string   // the place of the next waiter, or ""
	inTheWay   []string // refs whose locks refuse it, unless they are stale
	mandatory  bool     // locks that stand for no intent refuse it, too
	ending     []string // refs whose locks end with the update
	keyed      []string // all refs whose keys it takes
	created    []string // refs that it creates, if names are checked
	above      []string // the names above these
}

func newUpdateArrays(r driver.UpdateRequest) updateArrays {
	c := updateArrays{fence: []string{}, inTheWay: []string{}, ending: []string{}, mandatory: r.Locks == driver.MandatoryLocks}
	c.refs, c.olds, c.news = columnsOf(r.Updates)
	if f := r.Fence; f != nil {
		c.fence, c.owner, c.token, c.release, c.next = f.Refs, f.Owner, f.Token, f.Release, placeText(f.Next, f.Owner)
	}
	c.keyed = slices.Clone(c.fence)
	for _, ref := range c.refs {
		if _, ours := slices.BinarySearch(c.fence, ref); !ours {
			c.keyed = append(c.keyed, ref)
			c.inTheWay = append(c.inTheWay, ref)
		}
	}
	if r.GitNames {
		c.created = rules.Created(r.Updates)
		c.above = rules.Above(c.created)
	}
	if c.mandatory {
		c.ending = c.inTheWay
	}
	if c.release {
		c.ending = slices.Concat(c.fence, c.ending)
		slices.Sort(c.ending)
	}
	return c
}

// outcome holds the answer of the last statement of an Update or a Finish.
type outcome struct {
	project  string
	verdict  string // "" while there is none
	lost     []string
	frozen   string // the line of the project's freeze
	holders  []driver.LockInfo
	have     map[string]driver.Value
	toNotify map[string][]string // places to notify of locks that ended

	excluding []string // refs that exclude created ones
}

func (o *outcome) read(rows pgx.Rows) error {
	*o = outcome{project: o.project}
	for rows.Next() {
		if raw := rows.RawValues(); string(raw[0]) == "done" && raw[len(raw)-1] == nil {
			o.verdict = "done" // and there are no waiters, the usual case
			continue
		}
		var (
			verdict    string
			ref, value *string
			lock       lockColumns
			now        time.Time
			toNotify   []string
		)
		if err := rows.Scan(&verdict, &ref, &value, &lock.owner, &lock.token, &lock.heartbeat, &lock.staleAfter, &now, &toNotify); err != nil {
			return err
		}
		o.verdict = verdict
		if ref != nil {
			o.add(*ref, value, lock, now, toNotify)
		}
	}
	return rows.Err()
}

// add records the answer about one ref.
func (o *outcome) add(ref string, value *string, lock lockColumns, now time.Time, toNotify []string) {
	switch o.verdict {
	case "lost":
		o.lost = append(o.lost, ref)
	case "frozen":
		if value != nil {
			o.frozen = *value
		}
	case "locked":
		o.holders = append(o.holders, lock.info(o.project, ref, now))
	case "excluded":
		o.excluding = append(o.excluding, ref)
	case "differs":
		if o.have == nil {
			o.have = make(map[string]driver.Value)
		}
		o.have[ref] = driver.Unknown
		if value != nil {
			o.have[ref] = driver.Value(*value)
		}
	default:
		if len(toNotify) > 0 {
			if o.toNotify == nil {
				o.toNotify = make(map[string][]string)
			}
			o.toNotify[ref] = toNotify
		}
	}
}

// err returns the error of a refusal, or nil if the updates were not refused.
func (o *outcome) err(updates []driver.Update) error {
	switch o.verdict {
	case "lost":
		slices.Sort(o.lost)
		return &driver.LostError{Project: o.project, Refs: o.lost, Reason: "the database no longer has the lock, or another owner has it"}
	case "frozen":
		return rules.RefuseFrozen(o.project, o.frozen)
	case "locked":
		byRef(o.holders)
		return &driver.LockedError{Holders: slices.DeleteFunc(o.holders, driver.LockInfo.Idle)}
	case "differs":
		e := &driver.MismatchError{Project: o.project}
		for _, u := range updates {
			if have, ok := o.have[u.Ref]; ok {
				e.Mismatches = append(e.Mismatches, driver.Mismatch{Ref: u.Ref, Want: u.Old, Have: have})
			}
		}
		return e
	}
	return nil
}
