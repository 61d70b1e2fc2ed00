package postgres

import (
	"sync/atomic"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

// A token is the origin of tokens plus a microsecond for each transaction that the server has ever
// begun, up to the transaction that takes the locks. A transaction that has a ref's key began after
// all earlier transactions that took the ref's locks, so it has a larger number. The origin is only
// ever raised. So the tokens of a ref grow regardless of the clock, and taking a lock writes
// nothing but the lock.
//
// The number is the server's 64-bit transaction ID, which survives crashes, promotions of standbys
// and pg_upgrade. On another server, to which the tables were copied, the ID may be smaller. Tokens
// would then fall below the largest one, so none is assigned until the origin has been raised. The
// recorded reached token may be outdated, so the trigger that admits the server raises the origin,
// too.
const passed = `txid_current() * interval '1 microsecond'`

// ofOrigin selects the one row of token_origin, if tokens may be made of it.
const ofOrigin = `token_origin WHERE id = 1 AND origin + ` + passed + ` >= reached`

// tokenLag is how far tokens may fall behind the clock, so that they tell since
// when a lock is held. Servers begin fewer transactions than one per
// microsecond, so that tokens do fall behind.
const tokenLag = time.Second

// raiseSQL lets tokens catch up with the clock, unless somebody else does that right
// now. Since tokens reached what is recorded they can have grown by what is raised at
// a time, and by the transactions of a moment: a minute is more than that.
const raiseSQL = raise + ` SKIP LOCKED)`

// raiseWaitingSQL waits for whoever raises the origin right now, and then has nothing
// left to do. It is for requests that got no token.
const raiseWaitingSQL = raise + `)`

// raiseAboveAllSQL lets tokens go on above all that were ever given out, also those that the
// database lost: by the clock.
const raiseAboveAllSQL = `
UPDATE token_origin SET (origin, reached) = (
  SELECT now - ` + passed + `, now FROM greatest(clock_timestamp(), origin + ` + passed + `, reached) AS now
) WHERE id = 1`

const raise = `
UPDATE token_origin SET (origin, reached) = (
  SELECT now - ` + passed + `, now FROM greatest(clock_timestamp(), origin + ` + passed + `,
    CASE WHEN origin + ` + passed + ` < reached THEN reached + interval '1 minute' END) AS now
)
WHERE ctid = (
  SELECT ctid FROM token_origin WHERE id = 1 AND origin + ` + passed + ` < greatest(reached, clock_timestamp() - interval '1 s')
  FOR NO KEY UPDATE`

// raise is the statement that lets tokens catch up, or nothing if that is not due. It
// comes after the statements that wait.
func (l *lag) raise() []roundtrip.Statement {
	if !l.due() {
		return nil
	}
	return []roundtrip.Statement{roundtrip.Exec(raiseSQL)}
}

// lag is a driver's estimate of how far tokens are behind the clock. They fall
// behind no faster than time passes. When others have raised the origin, the estimate
// is too large, and it is raised once more than needed.
type lag struct {
	begun time.Time
	fine  atomic.Int64 // how long after begun they are close enough at least, in nanoseconds
}

func newLag() *lag { return &lag{begun: time.Now()} }

func (l *lag) due() bool { return int64(time.Since(l.begun)) >= l.fine.Load() }

// saw notes that a token was given out at a time, both by the server's clock.
func (l *lag) saw(token driver.Token, now time.Time) {
	l.fine.Store(int64(time.Since(l.begun) + tokenLag - now.Sub(token.Time())))
}
