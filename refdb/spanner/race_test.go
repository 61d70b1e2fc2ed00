package spanner_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// rounds returns how often to run a race: n times, or a few times with -short. REFDB_TEST_LONG=1 makes it four times as often.
func rounds(n int) int {
	switch {
	case testing.Short():
		return n / 3
	case long():
		return 4 * n
	}
	return n
}

// race runs all functions at the same time.
func race(f ...func()) {
	start := make(chan struct{})
	var wait sync.WaitGroup
	for _, f := range f {
		wait.Go(func() {
			<-start
			f()
		})
	}
	close(start)
	wait.Wait()
}

func clients(tb testing.TB, n int) (*dbtest.Database, []driver.Driver) {
	tb.Helper()
	db := dbtest.Spanner(tb)
	all := make([]driver.Driver, n)
	for i := range all {
		all[i] = patient(tb, db)
	}
	return db, all
}

// A missing row that was read has to be locked, too: an update that comes second must see the lock,
// and an acquisition that comes second must see the value.
func TestRaceOfAnAcquisitionAndUpdatesOfARefThatDoesNotExist(t *testing.T) {
	t.Parallel()
	_, d := clients(t, 3)
	var updatesFirst int
	for n := range rounds(60) {
		ref := fmt.Sprintf("refs/heads/%d", n)
		var a driver.Acquired
		var acquireErr error
		updateErrs := make([]error, 2)
		race(
			func() { a, acquireErr = d[0].Acquire(t.Context(), request("n", ref)) },
			func() { updateErrs[0] = update(t, d[1], fmt.Sprint("u1/", n), move(ref, "", v1)) },
			func() { updateErrs[1] = update(t, d[2], fmt.Sprint("u2/", n), move(ref, "", v2)) },
		)
		must(t, acquireErr)
		var won driver.Value
		for i, err := range updateErrs {
			switch {
			case err == nil && won == "":
				won = []driver.Value{v1, v2}[i]
			case err == nil:
				t.Fatalf("%s was created twice", ref)
			case !errors.Is(err, driver.ErrLocked) && !errors.Is(err, driver.ErrMismatch):
				t.Fatal(err)
			}
		}
		var seen driver.Value
		if len(a.Refs) > 0 {
			seen = a.Refs[0].Value
		}
		if seen != won {
			t.Fatalf("%s was locked with %q, an update put %q", ref, seen, won)
		}
		if won != "" {
			updatesFirst++
		}
	}
	t.Logf("an update came first in %d of %d rounds", updatesFirst, rounds(60))
}

func TestRaceOfOverlappingSets(t *testing.T) {
	t.Parallel()
	_, d := clients(t, 3)
	sets := [][]string{{"refs/a", "refs/b"}, {"refs/b", "refs/c"}, {"refs/a", "refs/c"}}
	var last driver.Token
	for n := range rounds(30) {
		a := make([]driver.Acquired, 3)
		errs := make([]error, 3)
		var contenders []func()
		for i := range sets {
			contenders = append(contenders, func() {
				a[i], errs[i] = d[i].Acquire(t.Context(), request(fmt.Sprint("n", i, "/", n), sets[i]...))
			})
		}
		race(contenders...)
		winner := -1
		for i, err := range errs {
			var locked *driver.LockedError
			switch {
			case err == nil && winner < 0:
				winner = i
			case err == nil:
				t.Fatalf("%v and %v were both acquired", sets[winner], sets[i])
			case !errors.As(err, &locked) || len(locked.Holders) != 1:
				t.Fatalf("%v: %v", sets[i], err)
			}
		}
		if winner < 0 {
			t.Fatal("no contender won")
		}
		if a[winner].Token <= last {
			t.Fatalf("token %d follows %d", a[winner].Token, last)
		}
		last = a[winner].Token
		if l := locks(t, d[0]); len(l) != 2 || l[0].Token != last || l[1].Token != last {
			t.Fatalf("the locks are %+v", l)
		}
		release(t, d[winner], last, sets[winner]...)
	}
}

func TestRaceOfContendersForAStaleLock(t *testing.T) {
	t.Parallel()
	const contenders = 6
	db, d := clients(t, 3) // two contenders in each process
	last := acquire(t, d[0], "first", branch).Token
	for n := range rounds(18) {
		db.Age(t, project, branch, time.Hour)
		a := make([]driver.Acquired, contenders)
		errs := make([]error, contenders)
		var all []func()
		for i := range contenders {
			all = append(all, func() {
				a[i], errs[i] = d[i%len(d)].Acquire(t.Context(), request(fmt.Sprint(i, "/", n), branch))
			})
		}
		var beat []driver.BeatResult
		var beatErr, fencedErr error
		all = append(all, func() { beat, beatErr = d[0].Beat(t.Context(), lockIDs(last, branch)) },
			func() {
				fencedErr = d[1].Update(t.Context(), driver.UpdateRequest{Project: project, Origin: driver.Origin{ID: fmt.Sprint("u", n)},
					Updates: []driver.Update{move(fmt.Sprint("refs/heads/", n), "", v1)},
					Fence:   &driver.Fence{Refs: []string{branch}, Owner: owner, Token: last}})
			})
		race(all...)
		must(t, beatErr)
		winner := -1
		for i, err := range errs {
			switch {
			case err == nil && winner < 0:
				winner = i
			case err == nil:
				t.Fatalf("contenders %d and %d both won", winner, i)
			case !errors.Is(err, driver.ErrLocked):
				t.Fatal(err)
			}
		}
		if fencedErr != nil && !errors.Is(fencedErr, driver.ErrLockLost) {
			t.Fatal(fencedErr)
		}
		if winner < 0 {
			// The beat came first, so no contender may have the lock.
			if beat[0] != driver.BeatRenewed {
				t.Fatalf("no contender won, and the result of the beat is %v", beat)
			}
			continue
		}
		if len(a[winner].Reclaimed) != 1 || a[winner].Reclaimed[0].Token != last || a[winner].Token <= last {
			t.Fatalf("token %d reclaimed as %+v", last, a[winner])
		}
		last = a[winner].Token
		if l, ok := db.RowLock(t, project, branch); !ok || l.Token != last {
			t.Fatalf("the lock is %+v", l)
		}
	}
}
