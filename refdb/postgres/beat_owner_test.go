package postgres_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// hold inserts n locks of owner, with names of all kinds, in no particular order.
func hold(tb testing.TB, db *dbtest.Database, n int) []driver.LockID {
	tb.Helper()
	c := session(tb, db.URL())
	rows, err := c.Query(tb.Context(), `
		INSERT INTO locks (project, ref, heartbeat, token, owner, nonce, stale_after)
		SELECT repeat('pé/', n % 7) || 'project-' || n % 100, 'refs/heads/o''brien-日本-' || repeat('x', n % 50) || n,
		       clock_timestamp() - interval '10 minutes', clock_timestamp() - interval '1 hour', $1, 'nonce', 3600000000
		FROM generate_series(1, $2::int) n ORDER BY hashint4(n)
		RETURNING project, ref, token`, owner, n)
	if err != nil {
		tb.Fatal(err)
	}
	var held []driver.LockID
	for rows.Next() {
		h := driver.LockID{Owner: owner}
		var token time.Time
		if err := rows.Scan(&h.Project, &h.Ref, &token); err != nil {
			tb.Fatal(err)
		}
		h.Token = driver.TokenOf(token)
		held = append(held, h)
	}
	if rows.Err() != nil {
		tb.Fatal(rows.Err())
	}
	return held
}

// insertLike inserts a lock of owner with the token of h, or with a token that is larger by later.
func insertLike(tb testing.TB, db *dbtest.Database, h driver.LockID, ref string, later time.Duration) {
	tb.Helper()
	db.Exec(tb, `INSERT INTO locks (project, ref, heartbeat, token, owner, stale_after)
		VALUES ($1, $2, clock_timestamp() - interval '10 minutes', $3, $4, 3600000000)`, h.Project, ref, h.Token.Time().Add(later), owner)
}

func beat(tb testing.TB, d driver.Driver, held []driver.LockID) []driver.BeatResult {
	tb.Helper()
	results, err := d.Beat(tb.Context(), held)
	if err != nil {
		tb.Fatal(err)
	}
	return results
}

// wantBeaten checks the results for the rows; others are the rows with a result other than renewed.
func wantBeaten(tb testing.TB, results []driver.BeatResult, n int, others map[int]driver.BeatResult) {
	tb.Helper()
	if len(results) != n {
		tb.Fatalf("%d results for %d rows", len(results), n)
	}
	for i, got := range results {
		want, ok := others[i]
		if !ok {
			want = driver.BeatRenewed
		}
		if got != want {
			tb.Errorf("the beat of row %d says %v, want %v", i, got, want)
		}
	}
}

// renewed returns how many locks have been renewed since they were inserted.
func renewed(tb testing.TB, db *dbtest.Database) int64 {
	tb.Helper()
	return query[int64](tb, session(tb, db.URL()), `SELECT count(*) FROM locks WHERE heartbeat > clock_timestamp() - interval '5 minutes'`)[0]
}

// By key, the beats would be twenty transactions.
func TestAHundredThousandLocksAreRenewedInOneRoundTrip(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	w := newWire(t, db.URL())
	d := open(t, w.url)
	d.BePatient()
	const n = 100_000
	held := hold(t, db, n)
	beat(t, d, held) // prepares the statements
	db.Exec(t, `UPDATE locks SET heartbeat = heartbeat - interval '10 minutes'`)
	if trips := w.count(func() { wantBeaten(t, beat(t, d, held), n, nil) }); trips != 1 {
		t.Errorf("the beat took %d round trips", trips)
	}
	if got := renewed(t, db); got != n {
		t.Errorf("%d of %d rows were renewed", got, n)
	}
}

// A site holds both locks that it beats and intents, which need no beats.
func TestIntentsOfAnOwnerDoNotSlowItsBeats(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	w := newWire(t, db.URL())
	d := open(t, w.url)
	d.BePatient()
	const intents = 2000 // the index has them first
	refs := names(intents)
	p, err := d.Prepare(t.Context(), intention("", v1, refs...))
	if err != nil {
		t.Fatal(err)
	}
	db.Exec(t, `UPDATE locks SET token = token - interval '2 hours', heartbeat = heartbeat - interval '2 hours'`)
	held := hold(t, db, 6000)
	db.Exec(t, `UPDATE intents SET token = token - interval '2 hours'`)
	db.Exec(t, `ANALYZE locks`)
	beat(t, d, held) // prepares the statements
	db.Exec(t, `UPDATE locks SET heartbeat = heartbeat - interval '10 minutes'`)
	if trips := w.count(func() { wantBeaten(t, beat(t, d, held), len(held), nil) }); trips != 1 {
		t.Errorf("the beat took %d round trips", trips)
	}
	if got := renewed(t, db); got != int64(len(held)) {
		t.Errorf("%d rows were renewed, of %d", got, len(held))
	}
	if err := d.Finish(t.Context(), dropped(p.Token-driver.Token(2*time.Hour/time.Microsecond), refs...)); err != nil {
		t.Errorf("the intents were missing: %v", err)
	}
}

func TestLostLocksAreFoundAmongMany(t *testing.T) {
	for name, lose := range map[string]string{
		"a lock was purged":                   `DELETE FROM locks WHERE project = $1 AND ref = $2`,
		"another process took a lock over":    `UPDATE locks SET owner = 'site/2', token = clock_timestamp() WHERE project = $1 AND ref = $2`,
		"this process took its own lock over": `UPDATE locks SET token = clock_timestamp() WHERE project = $1 AND ref = $2`,
		"a lock is of an older acquisition":   `UPDATE locks SET token = token - interval '1 microsecond' WHERE project = $1 AND ref = $2`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Postgres(t)
			d := open(t, db.URL())
			held := hold(t, db, 6000)
			db.Exec(t, lose, held[4321].Project, held[4321].Ref)
			lost := map[int]driver.BeatResult{4321: driver.BeatLost}
			wantBeaten(t, beat(t, d, held), len(held), lost)
			if got := renewed(t, db); got != int64(len(held)-1) {
				t.Errorf("%d rows were renewed", got)
			}
			wantBeaten(t, beat(t, d, held), len(held), lost)
		})
	}
}

func TestAProcessThatReclaimedItsOwnLockHoldsOnlyTheNewOne(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	d := open(t, db.URL())
	held := hold(t, db, 1000)
	old := held[17]
	held[17].Token++
	db.Exec(t, `UPDATE locks SET token = $3 WHERE project = $1 AND ref = $2`, old.Project, old.Ref, held[17].Token.Time())
	wantBeaten(t, beat(t, d, append(held, old)), 1001, map[int]driver.BeatResult{1000: driver.BeatLost})
	wantBeaten(t, beat(t, d, held), 1000, nil)
}

// Locks left behind by an acquisition or a release whose reply was lost have to become stale.
func TestOnlyNamedLocksOfTheOwnerAreRenewed(t *testing.T) {
	for _, row := range []struct {
		name  string
		later time.Duration // than the newest held lock
		loses bool          // a held lock is lost at the same time
		trips int
	}{
		{"as new as a held lock", 0, false, 3},
		{"as new as a held lock that was lost", 0, true, 3},
		{"older", -time.Minute, false, 3},
		{"newer than all held locks", time.Second, false, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Postgres(t)
			w := newWire(t, db.URL())
			d := open(t, w.url)
			d.BePatient()
			held := hold(t, db, 6000)
			newest := slices.MaxFunc(held, func(a, b driver.LockID) int { return int(a.Token - b.Token) })
			insertLike(t, db, newest, "refs/heads/abandoned", row.later)
			others := make(map[int]driver.BeatResult)
			if row.loses {
				i := slices.Index(held, newest)
				db.Exec(t, `DELETE FROM locks WHERE project = $1 AND ref = $2`, newest.Project, newest.Ref)
				others[i] = driver.BeatLost
			}
			beat(t, d, held)
			if trips := w.count(func() { wantBeaten(t, beat(t, d, held), len(held), others) }); trips != row.trips {
				t.Errorf("the beat took %d round trips, want %d", trips, row.trips)
			}
			if l, _ := db.RowLock(t, newest.Project, "refs/heads/abandoned"); l.Age < 10*time.Minute {
				t.Errorf("the lock that was not named was renewed %s ago", l.Age)
			}
		})
	}
}

// The same holds for locks that are half-way to stale, and for stale ones.
func TestHeartbeatsOfOtherLocksOfTheOwnerDoNotChange(t *testing.T) {
	for name, age := range map[string]time.Duration{"half-way to stale": 40 * time.Minute, "stale": 2 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Postgres(t)
			d := open(t, db.URL())
			held := hold(t, db, 1000)
			insertLike(t, db, held[7], "refs/heads/abandoned", -time.Minute)
			db.Age(t, held[7].Project, "refs/heads/abandoned", age)
			for range 2 {
				wantBeaten(t, beat(t, d, held), len(held), nil)
				if l, _ := db.RowLock(t, held[7].Project, "refs/heads/abandoned"); l.Age < age {
					t.Errorf("the lock was renewed %s ago", l.Age)
				}
			}
		})
	}
}

// While a lock is stale, another process may be taking it over.
func TestManyLocksWithAStaleOneAreRenewedByKey(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	w := newWire(t, db.URL())
	d := open(t, w.url)
	d.BePatient()
	held := hold(t, db, 6000)
	beat(t, d, held) // prepares the statements, as does the next one
	beat(t, d, held[:1])
	db.Age(t, held[5].Project, held[5].Ref, time.Hour)
	for _, trips := range []int{3, 1} { // after the first beat, all locks are fresh
		if got := w.count(func() { wantBeaten(t, beat(t, d, held), len(held), nil) }); got != trips {
			t.Errorf("the beat took %d round trips, want %d", got, trips)
		}
	}
}

// The locks have different owners: each row is compared with its own.
func TestManyLocksOfTwoOwnersAreRenewedByKey(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	d := open(t, db.URL())
	held := hold(t, db, 1000)
	held[1].Owner, held[2].Owner = "site/2", "site/2"
	db.Exec(t, `UPDATE locks SET owner = 'site/2' WHERE project = $1 AND ref = $2`, held[2].Project, held[2].Ref)
	wantBeaten(t, beat(t, d, held), 1000, map[int]driver.BeatResult{1: driver.BeatLost})
	if got := renewed(t, db); got != 999 {
		t.Errorf("%d rows were renewed", got)
	}
}

func TestALockedRowAmongManyIsUnknown(t *testing.T) {
	for _, row := range []struct {
		name   string
		change string
		age    time.Duration // of the row
		frees  bool          // the other transaction ends while the beat waits
		left   bool          // the owner has another row, which was left behind and is half-way to stale
		want   driver.BeatResult
	}{
		{"it stays locked", ``, 0, false, false, driver.BeatUnknown},
		{"it becomes free", ``, 0, true, false, driver.BeatRenewed},
		{"it is deleted meanwhile", `DELETE FROM locks WHERE ref = $1`, 0, true, false, driver.BeatLost},
		{"it is deleted meanwhile, and another row might be counted for it", `DELETE FROM locks WHERE ref = $1`, 0, true, true, driver.BeatLost},
		{"another process takes it over meanwhile", `UPDATE locks SET owner = 'site/2', token = clock_timestamp() WHERE ref = $1`, time.Hour, true, false, driver.BeatLost},
		{"this process takes it over meanwhile", `UPDATE locks SET token = token + interval '1 microsecond' WHERE ref = $1`, time.Hour, true, false, driver.BeatLost},
		{"it gets a waiter meanwhile", `UPDATE locks SET waiting = '{refdb_x}' WHERE ref = $1`, 0, true, false, driver.BeatRenewed},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Postgres(t)
			d := open(t, db.URL())
			held := hold(t, db, 1000)
			db.Exec(t, `UPDATE locks SET project = $3 WHERE project = $1 AND ref = $2`, held[500].Project, held[500].Ref, project)
			held[500].Project = project
			db.Age(t, project, held[500].Ref, row.age)
			if row.left {
				insertLike(t, db, held[7], "refs/heads/abandoned", -time.Minute)
				db.Age(t, held[7].Project, "refs/heads/abandoned", 40*time.Minute)
			}
			exec(t, session(t, db.URL()), `CREATE TABLE before AS TABLE locks`)
			var results []driver.BeatResult
			untilInTime(t, func() (late bool) {
				b := block(t, db, held[500].Ref)
				if row.change != "" {
					exec(t, b.conn, row.change, held[500].Ref)
				}
				results = beatBeside(t, d, b, row.frees, held)
				late = row.frees && slices.Contains(results, driver.BeatUnknown)
				if late {
					exec(t, b.look, `DELETE FROM locks`)
					exec(t, b.look, `INSERT INTO locks SELECT * FROM before`)
				}
				return late
			})
			wantBeaten(t, results, len(held), map[int]driver.BeatResult{500: row.want})
		})
	}
}

// A beat by owner locks rows in the order in which they are stored; its neighbours lock them in the
// order of their keys. The beat yields.
func TestBeatsByOwnerNeverDeadlockWithOthers(t *testing.T) {
	a := newDeadlockArena(t)
	all := hold(t, a.db, 2000)
	byProject := make(map[string][]string)
	tokens := make(map[string]driver.Token)
	for _, h := range all {
		byProject[h.Project] = append(byProject[h.Project], h.Ref)
		tokens[h.Ref] = h.Token
	}
	// The fences need tokens of single acquisitions.
	var projects []string
	for p, refs := range byProject {
		slices.Sort(refs)
		projects = append(projects, p)
		a.db.Exec(t, `UPDATE locks SET token = $2 WHERE project = $1`, p, tokens[refs[0]].Time())
	}
	slices.Sort(projects)
	for i, h := range all {
		all[i].Token = tokens[byProject[h.Project][0]]
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var beats, neighbours atomic.Int64
	var work sync.WaitGroup
	neighbour := func(what string, do func() error) {
		if err := do(); err != nil && !errors.Is(err, driver.ErrLocked) {
			t.Errorf("%s: %v", what, err)
		}
		neighbours.Add(1)
	}
	work.Go(func() {
		defer cancel()
		for beats.Load() < deadlockRounds() {
			results, err := a.left.Beat(t.Context(), all)
			if err != nil || slices.Contains(results, driver.BeatLost) {
				t.Errorf("a beat of locks that are held: %v", err)
				return
			}
			beats.Add(1)
		}
	})
	for range 2 {
		work.Go(func() {
			for ctx.Err() == nil {
				p := projects[rand.N(len(projects))]
				refs := byProject[p]
				neighbour("a refused acquisition", func() error {
					r := request(refs...)
					r.Project, r.Owner = p, "site/2"
					_, err := a.right.Acquire(t.Context(), r)
					return err
				})
				neighbour("a refused update", func() error {
					r := update(refs...)
					r.Project = p
					return try(t.Context(), a.right, r)
				})
				neighbour("a fenced update", func() error {
					r := update(refs...)
					r.Project, r.Fence, r.Adopt = p, fence(tokens[refs[0]], refs...), true
					if err := try(t.Context(), a.right, r); !errors.Is(err, driver.ErrMismatch) {
						return err
					}
					return nil
				})
				neighbour("a release that finds other tokens", func() error {
					r := ending(1, refs...)
					r.Project = p
					_, err := a.right.Release(t.Context(), r)
					return err
				})
			}
		})
	}
	// Locks of another project of the same owner come and go, so the beat finds rows that it does
	// not hold.
	work.Go(func() {
		refs := names(50)
		for ctx.Err() == nil {
			neighbour("a lock and its release", func() error {
				got, err := a.right.Acquire(t.Context(), request(refs...))
				if err == nil {
					_, err = a.right.Release(t.Context(), ending(got.Token, refs...))
				}
				return err
			})
		}
	})
	work.Wait()
	t.Logf("%d beats, %d neighbours", beats.Load(), neighbours.Load())
	a.wantNoDeadlocks()
}
