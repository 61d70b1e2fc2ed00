package postgres_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/postgres"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// A taker takes and releases locks, and checks that the tokens of each ref grow.
type taker struct {
	db   *dbtest.Database
	last map[string]driver.Token
}

func (k *taker) take(t *testing.T, d *postgres.Driver, refs ...string) driver.Token {
	t.Helper()
	a := acquire(t, d, refs...)
	for _, ref := range refs {
		if a.Token <= k.last[ref] {
			t.Fatalf("token %s of %s follows %s", a.Token.Time(), ref, k.last[ref].Time())
		}
		k.last[ref] = a.Token
	}
	l, ok := k.db.RowLock(t, project, refs[0])
	if now := k.db.Now(t); !ok || l.Token != a.Token || l.Heartbeat.After(now) || now.Sub(l.Heartbeat) > time.Hour {
		t.Fatalf("now %s: %+v", now, l)
	}
	release(t, d, a, refs...)
	return a.Token
}

// aloneAndTogether returns a driver whose requests are sent alone, and one whose requests share
// batches.
func aloneAndTogether(t *testing.T, db *dbtest.Database) map[string]*postgres.Driver {
	together := open(t, db.URL())
	together.ShareAll()
	return map[string]*postgres.Driver{"alone": open(t, db.URL()), "together": together}
}

// An origin ahead of the clock is the result of a clock that was set back.
func TestTokensIncreaseWhateverTheClockDoes(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	drivers := aloneAndTogether(t, db)
	many := names(300) // more than 256 keys
	k := taker{db, make(map[string]driver.Token)}
	takeAll := func() {
		t.Helper()
		for range 2 {
			for _, d := range drivers {
				k.take(t, d, many[0])
				k.take(t, d, many[:2]...)
				k.take(t, d, many...)
				k.take(t, d, many[1])
			}
		}
	}

	takeAll()
	ahead := db.Now(t).Add(24 * time.Hour)
	db.Exec(t, `UPDATE token_origin SET origin = $1`, ahead)
	takeAll()
	for _, ref := range many {
		if k.last[ref] <= driver.TokenOf(ahead) {
			t.Errorf("token %s of %s is before the origin", k.last[ref].Time(), ref)
		}
	}
}

// A token shows since when a lock is held: tokens may be behind the clock, but not for long.
func TestTokensCatchUpWithTheClock(t *testing.T) {
	t.Parallel()
	for name, refs := range map[string][]string{"one ref": {mainRef}, "two refs": {mainRef, otherRef}} {
		db := dbtest.Postgres(t)
		for how, d := range aloneAndTogether(t, db) {
			k := taker{db, make(map[string]driver.Token)}
			// This is the state after an hour without any transaction.
			db.Exec(t, `UPDATE token_origin SET origin = origin - interval '1 hour', reached = reached - interval '1 hour'`)
			lag := func() time.Duration { now := db.Now(t); return now.Sub(k.take(t, d, refs...).Time()) }
			if lag := lag(); lag > 2*time.Second {
				t.Errorf("%s, %s: the first token is %s behind", name, how, lag)
			}
			db.Exec(t, `UPDATE token_origin SET origin = origin + interval '900 ms'`)
			eventually(t, "tokens keep up", func() bool {
				lag := lag()
				if lag > 2*time.Second {
					t.Fatalf("%s, %s: a token is %s behind", name, how, lag)
				}
				return lag < 100*time.Millisecond // tokens have caught up again
			})
		}
	}
}

// Tokens are unaffected by raises of the origin that other transactions make, or have not
// committed.
func TestTokensIncreaseWhileTheOriginIsRaised(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	for how, d := range aloneAndTogether(t, db) {
		const raise = `UPDATE token_origin SET origin = greatest(origin, clock_timestamp() - txid_current() * interval '1 microsecond')`
		meanwhile(t, db, raise, func() {
			var all sync.WaitGroup
			for n := range 4 {
				all.Go(func() {
					k := make(map[string]driver.Token)
					for i := range 100 {
						refs := []string{ref("raised", n), ref("raised", n+10)}[:1+i%2]
						a, err := d.Acquire(t.Context(), request(refs...))
						if err != nil {
							t.Error(err)
							return
						}
						for _, ref := range refs {
							if a.Token <= k[ref] {
								t.Errorf("%s: token %s of %s follows %s", how, a.Token.Time(), ref, k[ref].Time())
							}
							k[ref] = a.Token
						}
						if _, err := d.Release(t.Context(), ending(a.Token, refs...)); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
		})
	}
}

// A lock with a token from the future is left by a clock that was ahead, or by a program that
// doesn't know the origin.
func TestTokensIncreaseAfterOneFromTheFuture(t *testing.T) {
	t.Parallel()
	for name, refs := range map[string][]string{"one ref": {mainRef}, "two refs": {mainRef, otherRef}} {
		db := dbtest.Postgres(t)
		d := open(t, db.URL())
		future := db.Now(t).Add(time.Hour).Truncate(time.Microsecond)
		db.Exec(t, `INSERT INTO locks (project, ref, heartbeat, token, owner) VALUES ($1, $2, 'epoch', $3, 'other')`, project, mainRef, future)
		k := taker{db, map[string]driver.Token{mainRef: driver.TokenOf(future)}}
		for range 3 {
			k.take(t, d, refs...)
		}
		k.take(t, d, mainRef)
		if n := len(k.last); n != len(refs) {
			t.Errorf("%s: %d refs were taken", name, n)
		}
	}
}

// The tables were copied to another server, which has begun fewer transactions.
func TestTokensIncreaseOnAnotherServer(t *testing.T) {
	t.Parallel()
	for name, refs := range map[string][]string{"one ref": {mainRef}, "two refs": {mainRef, otherRef}} {
		for _, how := range []string{"alone", "together"} {
			db := dbtest.Postgres(t)
			d := aloneAndTogether(t, db)[how]
			k := taker{db, make(map[string]driver.Token)}
			k.take(t, d, refs...)
			fewer := func(by string) {
				t.Helper()
				db.Exec(t, `UPDATE token_origin SET origin = origin - $1::interval`, by)
				k.take(t, d, refs...)
				k.take(t, d, refs...)
			}
			fewer("1 day")
			fewer("3 s")
			if ahead := k.last[mainRef].Time().Sub(db.Now(t)); ahead > 10*time.Minute {
				t.Errorf("%s, %s: tokens are ahead by %s", name, how, ahead)
			}
			// The server's clock is behind, too.
			db.Exec(t, `UPDATE token_origin SET origin = origin + interval '1 day', reached = reached + interval '1 day'`)
			k.take(t, d, refs...)
			fewer("1 hour")
		}
	}
}

// Another transaction is raising the origin, and commits slowly.
func TestATokenIsAwaitedWhileTheOriginIsRaised(t *testing.T) {
	for name, refs := range map[string][]string{"one ref": {mainRef}, "two refs": {mainRef, otherRef}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Postgres(t)
			d := open(t, db.URL())
			db.Exec(t, `UPDATE token_origin SET origin = origin - interval '1 hour'`) // as after fewer transactions
			b := &blockade{t, session(t, db.URL()), session(t, db.URL())}
			exec(t, b.conn, `BEGIN`)
			exec(t, b.conn, `UPDATE token_origin SET origin = origin + interval '2 hours'`)
			var acquiring sync.WaitGroup
			acquiring.Go(func() {
				if _, err := d.Acquire(t.Context(), request(refs...)); err != nil {
					t.Error(err)
				}
			})
			b.wait()
			b.end()
			acquiring.Wait()
		})
	}
}

// Without the origin, the tokens of a ref would not be distinct.
func TestNoTokenIsIssuedWithoutAnOrigin(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	db.Exec(t, `DELETE FROM token_origin`)
	for how, d := range aloneAndTogether(t, db) {
		for _, refs := range [][]string{{mainRef}, {mainRef, otherRef}} {
			if a, err := d.Acquire(t.Context(), request(refs...)); !errors.Is(err, driver.ErrSchema) {
				t.Errorf("%s: got %+v, %v", how, a, err)
			}
			if _, ok := db.RowLock(t, project, mainRef); ok {
				t.Error("a lock was taken")
			}
		}
	}
}
