package postgres

import (
	"sync/atomic"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

// A token is the origin of tokens plus a microsecond for each transaction that the server has ever
// begun, up to the transaction that takes the locks. A transaction that has a ref's key began after
// all earlier transactions that took the ref's locks, so it has a larger number. The origin only
// ever increases. So the tokens of a ref increase regardless of the clock, and taking a lock writes
// nothing but the lock.
//
// The number is the server's 64-bit transaction ID, which survives crashes, promotions of standbys
// and pg_upgrade. On another server, to which the tables were copied, the ID may be smaller. Tokens
// would then fall below the largest one, so none is assigned until the origin has been raised. The
// recorded reached token may be outdated, so the trigger that admits the server raises the origin,
// too.
const passed = `txid_current() * interval '1 microsecond'`

// ofOrigin selects the only row of token_origin, if tokens can be made from it.
const ofOrigin = `token_origin WHERE id = 1 AND origin + ` + passed + ` >= reached`

// tokenLag is how far tokens may fall behind the clock, as a token also shows when its lock was
// taken. Servers begin fewer transactions than one per microsecond, so tokens do fall behind.
const tokenLag = time.Second

// raiseSQL raises the origin so that tokens catch up with the clock, unless another transaction is
// doing so. Since tokens reached the recorded value, they can have grown by one raise and by the
// transactions of a moment; a minute is more than that.
const raiseSQL = raise + ` SKIP LOCKED)`

// raiseWaitingSQL waits for a transaction that is raising the origin, and then has nothing left to
// do. It is for requests that got no token.
const raiseWaitingSQL = raise + `)`

// raiseAboveAllSQL raises the origin above the clock, and so above all tokens ever assigned,
// including those that the database lost.
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

// raise returns the statement that makes tokens catch up, or none if it is not due. The statement
// comes after those that wait.
func (l *lag) raise() []roundtrip.Statement {
	if !l.due() {
		return nil
	}
	return []roundtrip.Statement{roundtrip.Exec(raiseSQL)}
}

// lag is a driver's estimate of how far tokens are behind the clock. They fall behind no faster
// than time passes. When another process has raised the origin, the estimate is too large, and the
// origin is raised once more than needed.
type lag struct {
	begun time.Time
	fine  atomic.Int64 // nanoseconds after begun until which tokens are close enough to the clock
}

func newLag() *lag { return &lag{begun: time.Now()} }

func (l *lag) due() bool { return int64(time.Since(l.begun)) >= l.fine.Load() }

// saw records that token was assigned at the time now, both by the server's clock.
func (l *lag) saw(token driver.Token, now time.Time) {
	l.fine.Store(int64(time.Since(l.begun) + tokenLag - now.Sub(token.Time())))
}
