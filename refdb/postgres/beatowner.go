package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// A process that holds many locks renews them by its name instead of by their
// keys: several times as fast. Its name may stand on rows that it does not
// mean to hold, left behind by an acquisition or a release whose reply was
// lost, and those have to become stale. So nothing is renewed unless its rows
// are exactly those that it holds.

// ownerRows is from how many rows on a beat by owner is tried. Of fewer, the
// look-ups by key take a few milliseconds at most.
const ownerRows = 500

const (
	// beatOwnerSetSQL has the beat give way: it locks rows in the order in which
	// they are stored, others lock them in that of their keys, and who is found
	// in a deadlock, or waits for one, has lost a second. A bitmap of the rows
	// visits each page once.
	beatOwnerSetSQL = `SELECT ` + guard + `, set_config('lock_timeout', '100ms', true), set_config('enable_indexscan', 'off', true)`

	// beatOwnerSQL renews all rows of the owner or none. That they are fresh, by
	// half of the time they have, means that none is taken over while it runs: it
	// can only be deleted, and then the count says so. Rows newer than the
	// newest one held are acquisitions under way; those that stand for intents need no beats.
	// What is renewed is what was counted: also a row that was left behind is not
	// fresh by half some time. The clock is read for each row: one that had to be
	// waited for may have been renewed since the statement began.
	//
	//	$1 owner  $2 the newest token held  $3 how many are held  $4 their digest  $5 project and $6 ref of any of them
	beatOwnerSQL = `
WITH any_of_them AS MATERIALIZED (
  SELECT stale_after, clock_timestamp() - stale_after / 2 * interval '1 microsecond' AS fresh
  FROM locks WHERE project = $5 AND ref = $6
), mine AS MATERIALIZED (
  SELECT count(*) = $3::bigint AND bit_xor(` + rowDigest + `) = $4::bigint AS held
  FROM locks
  WHERE owner = $1 AND token <= $2
    AND stale_after = (SELECT stale_after FROM any_of_them) AND heartbeat > (SELECT fresh FROM any_of_them)
)
UPDATE locks SET heartbeat = clock_timestamp()
WHERE owner = $1 AND token <= $2
  AND stale_after = (SELECT stale_after FROM any_of_them) AND heartbeat > (SELECT fresh FROM any_of_them) AND (SELECT held FROM mine)`

	// rowDigest is what digestOf computes of a row of locks. Neither the count of
	// the rows nor the sum of their tokens could replace it: a batch gives several
	// locks the same token, so that one that was left behind may make up for
	// one that was lost.
	rowDigest = `hashtextextended(ref, hashtextextended(project, interval_hash_extended(token - timestamptz 'epoch', 0)))`
)

// beatByOwner renews all of locks by their owner's name, or reports that it
// can't, and has renewed none that it does not know of.
func (d *Driver) beatByOwner(ctx context.Context, locks []refdb.LockID) (beaten bool, err error) {
	if len(locks) < ownerRows {
		return false, nil
	}
	first := locks[0]
	newest, digest := first.Token, uint64(0)
	for _, l := range locks {
		if l.Owner != first.Owner {
			return false, nil
		}
		newest = max(newest, l.Token)
		digest ^= digestOf(l)
	}
	var renewed int64
	err = d.do(ctx, roundTrip{what: "beat", writes: true, hasty: true, spare: d.spares.beats}.
		then(beatOwnerSetSQL, nil).
		then(beatOwnerSQL, func(rows pgx.Rows) error {
			rows.Close() // there are none
			renewed = rows.CommandTag().RowsAffected()
			return rows.Err()
		}, first.Owner, newest.Time(), len(locks), int64(digest), first.Project, first.Ref))
	if sqlState(err) == lockNotAvailable {
		return false, nil
	}
	return renewed == int64(len(locks)), err
}

// digestOf tells versions of rows apart: names are the callers', but the token
// is the server's time in microseconds, which nobody can choose. Should a
// server compute another digest, all beats would go by key.
func digestOf(l refdb.LockID) uint64 {
	return textHash(l.Ref, textHash(l.Project, intervalHash(uint64(l.Token))))
}
