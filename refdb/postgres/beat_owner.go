package postgres

import (
	"context"
	"encoding/binary"
	"math/bits"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

// A process that holds many locks renews them by its name instead of by their keys, which is
// several times as fast. Its name may also be on rows that it does not know, left by an acquisition
// or a release whose reply was lost. Those rows have to become stale. So nothing is renewed unless
// the rows with the process's name are exactly the rows that it holds.

// ownerRows is the least number of rows for which a beat by owner is tried. For fewer rows, the
// look-ups by key take a few milliseconds at most.
const ownerRows = 500

const (
	// beatOwnerSetSQL limits how long the beat waits for row locks. The beat locks rows in the
	// order in which they are stored, other statements lock them in the order of their keys, and a
	// deadlock costs a second. A bitmap scan visits each page once.
	beatOwnerSetSQL = `pg_catalog.set_config('lock_timeout', '100ms', true), pg_catalog.set_config('enable_indexscan', 'off', true)`

	// beatOwnerSQL renews all rows of the owner or none. Rows count as held only for half of their
	// lease. This is not the rule for stale locks: it leaves time for the statement to run, so that
	// no counted row is taken over meanwhile. A counted row can only be deleted, and then the count
	// differs. Rows newer than the newest held row are acquisitions in progress; rows that stand
	// for intents need no beats. Exactly the counted rows are renewed: a row that was left behind
	// is eventually older than half of its lease. The clock is read for each row, because a row
	// that the statement waited for may have been renewed since the statement began.
	//	$1 owner  $2 the newest token held  $3 number of locks held  $4 their digest  $5 project and $6 ref of one of them
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

	// rowDigest is the SQL equivalent of digestOf for a row of locks. Neither the count of the rows
	// nor the sum of their tokens could replace it: a batch gives several locks the same token, so
	// a row that was left behind could compensate for a lost one.
	rowDigest = `hashtextextended(ref, hashtextextended(project, interval_hash_extended(token - timestamptz 'epoch', 0)))`
)

// beatByOwner renews all of locks by their owner's name, and reports whether it did. It never
// renews a lock that is not in locks.
func (d *Driver) beatByOwner(ctx context.Context, locks []driver.LockID) (beaten bool, err error) {
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
	err = d.pools.Do(ctx, roundtrip.Write("beat").On(roundtrip.Beats).FailAtLockTimeout().
		Then(roundtrip.Guarded(beatOwnerSetSQL)).
		Query(beatOwnerSQL, func(rows pgx.Rows) error {
			rows.Close() // there are none
			renewed = rows.CommandTag().RowsAffected()
			return rows.Err()
		}, first.Owner, newest.Time(), len(locks), int64(digest), first.Project, first.Ref))
	if roundtrip.Code(err) == roundtrip.LockNotAvailable {
		return false, nil
	}
	return renewed == int64(len(locks)), err
}

// digestOf distinguishes versions of rows. A client can choose names, but not the token, which is
// the server's time in microseconds. If a server computed a different digest, all beats would be by
// key.
func digestOf(l driver.LockID) uint64 {
	return textHash(l.Ref, textHash(l.Project, intervalHash(uint64(l.Token))))
}

// The server's hash functions are Bob Jenkins' lookup3 (public domain) with a seed. They are the
// same in all versions of the server, because hash partitioning relies on them.
const hashInitial = 0x9e3779b9 + 3923095

// textHash is hashtextextended for text in UTF-8.
func textHash(text string, seed uint64) uint64 {
	a := hashInitial + uint32(len(text))
	b, c := a, a
	if seed != 0 {
		a, b, c = mix(a+uint32(seed>>32), b+uint32(seed), c)
	}
	var block [12]byte
	for ; len(text) >= len(block); text = text[len(block):] {
		copy(block[:], text)
		a, b, c = mix(
			a+binary.LittleEndian.Uint32(block[0:]),
			b+binary.LittleEndian.Uint32(block[4:]),
			c+binary.LittleEndian.Uint32(block[8:]))
	}
	clear(block[:])
	copy(block[:], text)
	a += binary.LittleEndian.Uint32(block[0:])
	b += binary.LittleEndian.Uint32(block[4:])
	c += binary.LittleEndian.Uint32(block[8:]) << 8 // the lowest byte is the length's
	return final(a, b, c)
}

// intervalHash is interval_hash_extended with seed 0 for a non-negative number of microseconds. It
// folds the number to 32 bits.
func intervalHash(micros uint64) uint64 {
	const a = hashInitial + 4 // bytes
	return final(a+uint32(micros^micros>>32), a, a)
}

func final(a, b, c uint32) uint64 {
	c = (c ^ b) - bits.RotateLeft32(b, 14)
	a = (a ^ c) - bits.RotateLeft32(c, 11)
	b = (b ^ a) - bits.RotateLeft32(a, 25)
	c = (c ^ b) - bits.RotateLeft32(b, 16)
	a = (a ^ c) - bits.RotateLeft32(c, 4)
	b = (b ^ a) - bits.RotateLeft32(a, 14)
	c = (c ^ b) - bits.RotateLeft32(b, 24)
	return uint64(b)<<32 | uint64(c)
}

func mix(a, b, c uint32) (uint32, uint32, uint32) {
	a, c = (a-c)^bits.RotateLeft32(c, 4), c+b
	b, a = (b-a)^bits.RotateLeft32(a, 6), a+c
	c, b = (c-b)^bits.RotateLeft32(b, 8), b+a
	a, c = (a-c)^bits.RotateLeft32(c, 16), c+b
	b, a = (b-a)^bits.RotateLeft32(a, 19), a+c
	c, b = (c-b)^bits.RotateLeft32(b, 4), b+a
	return a, b, c
}
