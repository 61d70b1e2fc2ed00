package postgres_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/postgres"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

func TestABeatWaitsForALockedRowOnlyBriefly(t *testing.T) {
	refs := []string{"refs/heads/a", "refs/heads/b", "refs/heads/c"}
	const unknown, beaten, lost = driver.BeatUnknown, driver.BeatRenewed, driver.BeatLost
	for _, row := range []struct {
		name   string
		change string // what the blocking transaction does to b
		frees  bool   // it ends while the beat waits
		want   []driver.BeatResult
	}{
		{"only a row that stays locked is unknown", ``, false, []driver.BeatResult{beaten, unknown, beaten}},
		{"a row that becomes free is renewed", ``, true, []driver.BeatResult{beaten, beaten, beaten}},
		{"a row that is deleted meanwhile is lost", `DELETE FROM locks WHERE ref = 'refs/heads/b'`, true, []driver.BeatResult{beaten, lost, beaten}},
		{"a row that is taken over meanwhile is lost", `UPDATE locks SET token = clock_timestamp() WHERE ref = 'refs/heads/b'`, true, []driver.BeatResult{beaten, lost, beaten}},
		{"a row that gets a waiter meanwhile is renewed", `UPDATE locks SET waiting = '{refdb_x}' WHERE ref = 'refs/heads/b'`, true, []driver.BeatResult{beaten, beaten, beaten}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Postgres(t)
			d := open(t, db.URL())
			var got []driver.BeatResult
			untilInTime(t, func() (late bool) {
				db.Exec(t, `DELETE FROM locks`)
				a := acquire(t, d, refs...)
				db.Exec(t, `UPDATE locks SET heartbeat = heartbeat - interval '1 hour'`)
				b := block(t, db, "refs/heads/b")
				if row.change != "" {
					exec(t, b.conn, row.change)
				}
				got = beatBeside(t, d, b, row.frees, ids(a.Token, refs...))
				return row.frees && slices.Contains(got, unknown)
			})
			if !slices.Equal(got, row.want) {
				t.Errorf("got %v, want %v", got, row.want)
			}
			for i, ref := range refs {
				l, _ := db.RowLock(t, project, ref)
				if renewed := l.Age < 50*time.Minute; renewed != (row.want[i] == beaten) && row.want[i] != lost {
					t.Errorf("%s: %v, and its age is %s", ref, row.want[i], l.Age)
				}
			}
		})
	}
}

// While one row stays locked, another row that was locked when the beat began is renewed.
func TestAnUnlockedRowIsRenewedBesideALockedOne(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	d := open(t, db.URL())
	refs := []string{"refs/heads/a", "refs/heads/b"}
	a := acquire(t, d, refs...)
	stays := block(t, db, refs[0])
	var got []driver.BeatResult
	untilInTime(t, func() (late bool) {
		goes := block(t, db, refs[1])
		got = beatBeside(t, d, goes, true, ids(a.Token, refs...))
		return slices.Equal(got, []driver.BeatResult{driver.BeatUnknown, driver.BeatUnknown})
	})
	if want := []driver.BeatResult{driver.BeatUnknown, driver.BeatRenewed}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	stays.end()
}

// A process may hold a lock that it has lost without knowing it, and also that lock's successor.
func TestABeatAndAPurgeDistinguishLocksOnOneRef(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	d := open(t, db.URL())
	old := acquire(t, d, mainRef)
	db.Age(t, project, mainRef, 2*time.Hour)
	successor := acquire(t, d, mainRef)
	both := []driver.LockID{ids(successor.Token, mainRef)[0], ids(old.Token, mainRef)[0]}
	results, err := d.Beat(t.Context(), both)
	if want := []driver.BeatResult{driver.BeatRenewed, driver.BeatLost}; err != nil || !slices.Equal(results, want) {
		t.Errorf("beat: %v, %v; want %v", results, err, want)
	}
	purged, err := d.Purge(t.Context(), []driver.StandingLock{{LockID: both[1]}, {LockID: both[0]}})
	if want := []bool{false, true}; err != nil || !slices.Equal(purged, want) {
		t.Errorf("purge: %v, %v; want %v", purged, err, want)
	}
}

// A valid token with another owner identifies no lock and no intent.
func TestRowsOfAnotherOwnerAreNotChanged(t *testing.T) {
	t.Parallel()
	const stranger = "site/2"
	for _, shared := range []bool{false, true} {
		for _, refs := range [][]string{{mainRef}, {mainRef, otherRef}} {
			db := dbtest.Postgres(t)
			d := open(t, db.URL())
			if shared {
				d.ShareAll()
			}
			r := request(refs...)
			a, err := d.Acquire(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			db.Age(t, project, mainRef, time.Minute)
			strange := ids(a.Token, refs...)
			var standing []driver.StandingLock
			for i := range strange {
				strange[i].Owner = stranger
				standing = append(standing, driver.StandingLock{LockID: strange[i]})
			}
			if results, err := d.Beat(t.Context(), strange); err != nil || slices.ContainsFunc(results, func(r driver.BeatResult) bool { return r != driver.BeatLost }) {
				t.Errorf("a beat: %v, %v", results, err)
			}
			e := ending(a.Token, refs...)
			e.Owner = stranger
			if got, err := d.Release(t.Context(), e); err != nil || !slices.Equal(got.Missing, refs) {
				t.Errorf("a release: %v, %v", got, err)
			}
			if purged, err := d.Purge(t.Context(), standing); err != nil || slices.Contains(purged, true) {
				t.Errorf("a purge: %v, %v", purged, err)
			}
			if err := d.Abandon(t.Context(), driver.AbandonRequest{Project: project, Refs: refs, Owner: stranger, Nonce: r.Nonce}); err != nil {
				t.Error(err)
			}
			for _, f := range []*driver.Fence{fence(a.Token, refs...), releasing(a.Token, refs...)} {
				f.Owner = stranger
				u := update(refs...)
				u.Fence = f
				if err := try(t.Context(), d, u); !errors.Is(err, driver.ErrLockLost) {
					t.Errorf("an update: %v", err)
				}
			}
			if l, ok := db.RowLock(t, project, mainRef); !ok || l.Token != a.Token || l.Age < time.Minute {
				t.Fatalf("the lock is %+v", l)
			}
			release(t, d, a, refs...)

			p, err := d.Prepare(t.Context(), intention("", v1, refs...))
			if err != nil {
				t.Fatal(err)
			}
			strange = ids(p.Token, refs...)
			for i := range strange {
				strange[i].Owner = stranger
			}
			for _, f := range []driver.FinishRequest{done(p.Token, "", v1, refs...), dropped(p.Token, refs...)} {
				f.Owner = stranger
				var lost *driver.LostError
				if err := d.Finish(t.Context(), f); !errors.As(err, &lost) || !slices.Equal(lost.Refs, refs) {
					t.Errorf("a finish: %v", err)
				}
			}
			resolve := driver.ResolveRequest{Intents: strange, Decision: driver.KeepOld, Origin: driver.Origin{By: "by"}, Reason: "reason"}
			if ended, err := d.Resolve(t.Context(), resolve); err != nil || slices.Contains(ended, true) {
				t.Errorf("a resolution: %v, %v", ended, err)
			}
			resolve.Intents = ids(p.Token, refs...)
			if ended, err := d.Resolve(t.Context(), resolve); err != nil || slices.Contains(ended, false) {
				t.Errorf("a resolution by the right owner: %v, %v", ended, err)
			}
			if err := d.Forget(t.Context(), strange); err != nil {
				t.Error(err)
			}
			page, err := d.Intents(t.Context(), driver.IntentQuery{IntentFilter: driver.IntentFilter{Decided: true}, Limit: 10})
			if err != nil || len(page.Intents) != len(refs) {
				t.Errorf("the decisions are %v, %v", page, err)
			}
		}
	}
}

// No other test may run meanwhile: dead rows stay, and occupy space, until the oldest transaction
// of the whole server ends.
func TestBeatsAreWrittenInPlace(t *testing.T) {
	db := dbtest.Postgres(t)
	d := open(t, db.URL())
	refs := names(1000)
	a := acquire(t, d, refs...)
	const beats = 20
	for range beats {
		if _, err := d.Beat(t.Context(), ids(a.Token, refs...)); err != nil {
			t.Fatal(err)
		}
	}
	d.Close() // makes the server count the updates
	c := session(t, db.URL())
	eventually(t, "all updates are counted", func() bool {
		return query[int64](t, c, `SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'locks'`)[0] == beats*1000
	})
	if n := query[int64](t, c, `SELECT n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'locks'`)[0]; n < beats*1000*3/4 {
		t.Errorf("%[2]d of %[1]d updates were in place", beats*1000, n)
	}
}

// beatBeside makes a beat beside a blockade. The blockade ends once the beat waits for it, if
// frees, and otherwise once the beat has ended.
func beatBeside(t *testing.T, d *postgres.Driver, b *blockade, frees bool, locks []driver.LockID) (results []driver.BeatResult) {
	t.Helper()
	done := make(chan []driver.BeatResult, 1)
	go func() {
		results, err := d.Beat(t.Context(), locks)
		if err != nil {
			t.Error(err)
		}
		done <- results
	}()
	if frees {
		b.waitUnless(func() bool { return len(done) > 0 })
		b.end()
	}
	results = <-done
	if !frees {
		b.end()
	}
	return results
}
