package postgres

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

// A beat changes only the column heartbeat, which is in no index. Its statement returns the rows
// that matched, and whether it renewed each of them.
const (
	// beatSQL skips rows that other transactions have locked. A row that matched but was not
	// renewed was locked, or has changed since the statement began.
	beatSQL = `
WITH locked AS MATERIALIZED (
  SELECT n, project, ref, tid FROM ` + heldRows + `, LATERAL (` + lockOfHeld + ` FOR NO KEY UPDATE SKIP LOCKED) AS lock
), beaten AS (
  UPDATE locks SET heartbeat = clock_timestamp() WHERE ctid = ANY (ARRAY(SELECT tid FROM locked))
  RETURNING project, ref
)
SELECT n, (project, ref) IN (SELECT project, ref FROM beaten) FROM locked
UNION ALL
SELECT n, false FROM ` + heldRows + `, LATERAL (` + lockOfHeld + `) AS lock
WHERE (SELECT count(*) FROM locked) < cardinality($1::text[]) AND n NOT IN (SELECT n FROM locked)`

	// The statements of a beat that waits for locked rows. The last statement sees the current
	// versions of the rows that the one before it locked.
	beatLimitSQL = `pg_catalog.set_config('lock_timeout', '1s', true)`
	beatLockSQL  = `SELECT 1 FROM ` + heldRows + `, LATERAL (` + lockOfHeld + ` FOR NO KEY UPDATE) AS lock`
	beatWaitSQL  = `
WITH locked AS MATERIALIZED (
  SELECT n, tid FROM ` + heldRows + `, LATERAL (` + lockOfHeld + `) AS lock
), beaten AS (
  UPDATE locks SET heartbeat = clock_timestamp() WHERE ctid = ANY (ARRAY(SELECT tid FROM locked))
)
SELECT n, true FROM locked`
)

// beatRows is the maximum number of rows that a beat by key renews in one transaction.
const beatRows = 5000

// Beat renews the locks by their owner's name if they are numerous and the only locks of that
// owner, and otherwise by their keys.
func (d *Driver) Beat(ctx context.Context, locks []driver.LockID) ([]driver.BeatResult, error) {
	results := make([]driver.BeatResult, len(locks))
	switch beaten, err := d.beatByOwner(ctx, locks); {
	case err != nil:
		return nil, err
	case beaten:
		for i := range results {
			results[i] = driver.BeatRenewed
		}
		return results, nil
	}
	held := make(heldArray, len(locks))
	for i, l := range locks {
		held[i] = heldLock{driver.StandingLock{LockID: l}, i}
	}
	var failure error
	failed := 0
	for rows := range slices.Chunk(sortHeld(held), beatRows) {
		if err := d.beatByKey(ctx, rows, results); err != nil {
			failure = err
			failed += len(rows)
		}
	}
	if failed == len(locks) {
		return nil, failure
	}
	return results, nil
}

// beatByKey renews rows in one statement. If other transactions have locked some of them, a second
// round trip waits for those rows, and if that takes too long, a third one renews the rows that
// have become free.
func (d *Driver) beatByKey(ctx context.Context, rows heldArray, results []driver.BeatResult) error {
	found, err := d.beat(ctx, rows)
	if err != nil {
		return err
	}
	var left heldArray
	for i, h := range rows {
		results[h.index] = found[i]
		if found[i] == driver.BeatUnknown {
			left = append(left, h)
		}
	}
	if len(left) == 0 {
		return nil
	}
	found, err = d.beatWaiting(ctx, left)
	if err != nil {
		found, err = d.beat(ctx, left)
	}
	if err == nil { // otherwise the rows in left stay BeatUnknown
		for i, h := range left {
			results[h.index] = found[i]
		}
	}
	return nil
}

// beat renews rows without waiting: rows that are locked are BeatUnknown.
func (d *Driver) beat(ctx context.Context, rows heldArray) (found beats, err error) {
	found = make(beats, len(rows))
	err = d.pools.Do(ctx, roundtrip.Write("beat").On(roundtrip.Beats).
		Query(beatSQL, found.read, rows.args()...))
	return found, err
}

// beatWaiting renews rows, and waits for those that are locked.
func (d *Driver) beatWaiting(ctx context.Context, rows heldArray) (found beats, err error) {
	found = make(beats, len(rows))
	err = d.pools.Do(ctx, roundtrip.Write("beat").On(roundtrip.Beats).FailAtLockTimeout().
		Then(roundtrip.Guarded(beatLimitSQL)).
		Exec(beatLockSQL, rows.args()...).
		Query(beatWaitSQL, found.read, rows.args()...))
	return found, err
}

// beats are the results for the rows of a heldArray.
type beats []driver.BeatResult

func (b beats) read(rows pgx.Rows) error {
	for i := range b {
		b[i] = driver.BeatLost // unless the answer has a row for it
	}
	for rows.Next() {
		var n int
		var beaten bool
		if err := rows.Scan(&n, &beaten); err != nil {
			return err
		}
		b[n-1] = driver.BeatUnknown
		if beaten {
			b[n-1] = driver.BeatRenewed
		}
	}
	return rows.Err()
}
