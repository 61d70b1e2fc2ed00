package postgres

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/operation"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

// finishSQL is an update whose fence consists of the locks of intents, and which ends these locks.
var finishSQL = fenceOfIntents + decideUpdate(foundByKey, finishVerdict) + endIntents + endLocks("''") + answerFinish

const (
	fenceOfIntents = `
WITH fence AS MATERIALIZED (
  SELECT asked.ref, lock.tid AS lock, waiting, intent.tid AS intent
  FROM (SELECT $1 AS project, ref, $10 AS owner, $11::timestamptz AS token FROM unnest($9::text[]) AS fence (ref)) AS asked
  LEFT JOIN LATERAL (` + lockOfIntent + `) AS lock ON true
  LEFT JOIN LATERAL (` + pendingOfAsked + `) AS intent ON true
)`
	endIntents = `, ended AS (
  DELETE FROM intents USING verdict WHERE verdict = 'done' AND ctid = ANY (ARRAY(SELECT intent FROM fence))
)`
)

// Finish ends the intents in one round trip.
func (d *Driver) Finish(ctx context.Context, r driver.FinishRequest) error {
	refs, olds, news := columnsOf(r.Done)
	all := slices.Concat(refs, r.Dropped)
	slices.Sort(all)
	o := outcome{project: r.Project}
	const adopt, ends, rowsLocked, advisory = false, true, true, false
	err := d.pools.Do(ctx, roundtrip.Write("finish intents").
		Then(lockRefs(r.Project, all), lockRows(r.Project, all)).
		Query(finishSQL, o.read, r.Project, refs, olds, news, operation.Text(r.Origin), adopt, []string{}, ends, all, r.Owner, r.Token.Time(), rowsLocked, advisory))
	if err == nil {
		err = o.err(r.Done)
	}
	if err != nil {
		return err
	}
	d.notifyAll(&o)
	return nil
}

const lockIntentRowsSQL = `SELECT 1 FROM ` + askedIntents + `, LATERAL (` + lockOfIntent + ` FOR UPDATE) AS lock`

// resolveSQL ends pending intents. If a program that doesn't know intents has deleted the lock of
// an intent, the ref may have moved since, so the intent can only be resolved as KeepOld.
//
//	$1 to $4 the intents  $5 decision  $6 who made it  $7 why  $8 operation
var resolveSQL = `
WITH clock AS MATERIALIZED (
  SELECT clock_timestamp() AS now
), pending AS MATERIALIZED (
  SELECT n, intent.*, lock.tid AS lock, waiting FROM ` + askedIntents + `, LATERAL (` + pendingOfAsked + `) AS intent
  LEFT JOIN LATERAL (` + lockOfIntent + `) AS lock ON true
  WHERE lock.tid IS NOT NULL OR $5::text = '` + string(driver.KeepOld) + `'
), decided AS (
  UPDATE intents SET decision = $5, decided_by = $6, reason = $7, decided_at = now
  FROM clock WHERE ctid = ANY (ARRAY(SELECT tid FROM pending))
), written AS (
  INSERT INTO refs (project, ref, value, time, op)
  SELECT project, ref, new_value, now, $8 FROM pending, clock WHERE $5 = '` + string(driver.TakeNew) + `'
  ON CONFLICT (project, ref) DO UPDATE SET value = excluded.value, time = excluded.time, op = excluded.op
), ends AS MATERIALIZED (
  SELECT lock AS tid, ` + placesOf("waiting", "''") + ` AS waiting, '' AS next FROM pending WHERE lock IS NOT NULL
), ` + handOver + `
SELECT n, told FROM pending LEFT JOIN handed ON lock IS NOT NULL AND handed.project = pending.project AND handed.ref = pending.ref`

// Resolve ends intents of any number of projects in one round trip.
func (d *Driver) Resolve(ctx context.Context, r driver.ResolveRequest) ([]bool, error) {
	if len(r.Intents) == 0 {
		return nil, nil
	}
	asked := sortIntents(r.Intents)
	ended, toNotify := make([]bool, len(r.Intents)), make([][]string, len(r.Intents))
	err := d.pools.Do(ctx, roundtrip.Write("resolve intents").
		Then(lockNames(asked.names())).
		Exec(lockIntentRowsSQL, asked.args()...).
		Query(resolveSQL, func(rows pgx.Rows) error {
			clear(ended)
			clear(toNotify)
			for rows.Next() {
				var n int
				var told []string
				if err := rows.Scan(&n, &told); err != nil {
					return err
				}
				i := asked[n-1].index
				ended[i], toNotify[i] = true, told
			}
			return rows.Err()
		}, append(asked.args(), string(r.Decision), r.By, r.Reason, operation.Text(r.Origin))...))
	if err != nil {
		return nil, err
	}
	for i, places := range toNotify {
		d.notifier.Notify(r.Intents[i].Project, r.Intents[i].Ref, places)
	}
	return ended, nil
}

const forgetSQL = `
DELETE FROM intents WHERE ctid = ANY (ARRAY(
  SELECT intent.tid FROM ` + askedIntents + `, LATERAL (` + decidedOfAsked + `) AS intent
))`

// Forget takes no keys, because a decided intent never changes.
func (d *Driver) Forget(ctx context.Context, intents []driver.LockID) error {
	if len(intents) == 0 {
		return nil
	}
	return d.pools.Do(ctx, roundtrip.Write("forget intents").Exec(forgetSQL, sortIntents(intents).args()...))
}

// names returns the refs of the intents.
func (a intentArray) names() []refName {
	all := make([]refName, len(a))
	for i, h := range a {
		all[i] = refName{h.Project, h.Ref}
	}
	return all
}
