package sqlite_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/sqlite"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// rounds returns how often to run a race: n times, or less with -short.
func rounds(n int) int {
	if testing.Short() {
		return n / 10
	}
	return n
}

// drivers returns n drivers on one new file, each as a separate process would have it. Commits
// don't wait for the disk, because the races are about visibility.
func drivers(t *testing.T, n int) []*sqlite.Driver {
	t.Helper()
	url := local.SQLite(t).URL()
	all := make([]*sqlite.Driver, n)
	for i := range all {
		all[i] = openAgain(t, url+"?synchronous=normal")
	}
	return all
}

// race runs all functions at the same time.
func race(runners ...func()) {
	start := make(chan struct{})
	var all sync.WaitGroup
	for _, run := range runners {
		all.Go(func() {
			<-start
			run()
		})
	}
	close(start)
	all.Wait()
}

func TestOfAnAcquisitionAndAnUpdateTheUpdateIsRefusedOrItsValueAcquired(t *testing.T) {
	t.Parallel()
	d := drivers(t, 2)
	var refused int
	for i := range rounds(1000) {
		ref := fmt.Sprintf("refs/heads/%d", i)
		var acquired driver.Acquired
		var lockErr, updateErr error
		race(
			func() { acquired, lockErr = d[0].Acquire(t.Context(), request(owner, ref)) },
			func() {
				if i%2 == 0 {
					// An acquisition reads before it writes: in half of the rounds, the update is
					// as late.
					_, _ = d[1].Get(t.Context(), project, []string{ref})
				}
				updateErr = put(t.Context(), d[1], ref, "", v1)
			},
		)
		if lockErr != nil {
			t.Fatal(lockErr)
		}
		switch {
		case errors.Is(updateErr, driver.ErrLocked):
			refused++
			if len(acquired.Refs) != 0 || value(t, d[0], ref) != driver.Unknown {
				t.Fatalf("round %d: acquired %v, but the update was refused", i, acquired.Refs)
			}
		case updateErr == nil:
			if len(acquired.Refs) != 1 || acquired.Refs[0].Value != v1 {
				t.Fatalf("round %d: acquired %v, but the update succeeded", i, acquired.Refs)
			}
		default:
			t.Fatal(updateErr)
		}
	}
	t.Logf("the acquisition was first %d times", refused)
}

func TestOfTwoAcquisitionsThatOverlapOneWinsAndTheOtherLeavesNothing(t *testing.T) {
	t.Parallel()
	d := drivers(t, 2)
	sets := [][]string{{"refs/a", "refs/b"}, {"refs/b", "refs/c"}}
	var last driver.Token
	for i := range rounds(1000) {
		var acquired [2]driver.Acquired
		var errs [2]error
		try := func(n int) func() {
			return func() {
				acquired[n], errs[n] = d[n].Acquire(t.Context(), request(fmt.Sprintf("owner/%d", n), sets[n]...))
			}
		}
		race(try(0), try(1))
		winner := slices.Index(errs[:], nil)
		if winner < 0 {
			t.Fatalf("round %d: both failed: %v", i, errs)
		}
		var locked *driver.LockedError
		if !errors.As(errs[1-winner], &locked) || len(locked.Holders) != 1 || locked.Holders[0].Ref != "refs/b" ||
			locked.Holders[0].Token != acquired[winner].Token {
			t.Fatalf("round %d: the other got %v", i, errs[1-winner])
		}
		if acquired[winner].Token <= last {
			t.Fatalf("round %d: token %d after %d", i, acquired[winner].Token, last)
		}
		last = acquired[winner].Token
		var refs []string
		for _, l := range locks(t, d[1-winner]) {
			refs = append(refs, l.Ref)
		}
		if err := release(t.Context(), d[winner], fmt.Sprintf("owner/%d", winner), last, refs...); err != nil || len(refs) != 2 {
			t.Fatalf("round %d: there were %v; %v", i, refs, err)
		}
	}
}

func TestOfManyContendersForAStaleLockOneWins(t *testing.T) {
	t.Parallel()
	d := drivers(t, 4)
	for i := range rounds(250) {
		ref := fmt.Sprintf("refs/heads/%d", i)
		old := driver.Token(1000 + i)
		write(t, d[0], `INSERT INTO locks (project, ref, heartbeat, token, owner) VALUES (?, ?, 1, ?, 'gone')`, project, ref, int64(old))
		var mu sync.Mutex
		var won []driver.Acquired
		var runners []func()
		for n := range d {
			runners = append(runners, func() {
				a, err := d[n].Acquire(t.Context(), request(fmt.Sprintf("owner/%d", n), ref))
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won = append(won, a)
				} else if !errors.Is(err, driver.ErrLocked) {
					t.Error(err)
				}
			})
		}
		race(runners...)
		if len(won) != 1 || won[0].Token <= old || len(won[0].Reclaimed) != 1 || won[0].Reclaimed[0].Token != old {
			t.Fatalf("round %d: won %v", i, won)
		}
	}
}

func TestOfAFencedUpdateAndAReclaimTheUpdateIsLostOrItsValueAcquired(t *testing.T) {
	t.Parallel()
	d := drivers(t, 2)
	for i := range rounds(500) {
		ref := fmt.Sprintf("refs/heads/%d", i)
		old := acquire(t, d[0], ref)
		write(t, d[0], `UPDATE locks SET heartbeat = 1 WHERE ref = ?`, ref)
		var reclaimed driver.Acquired
		var lockErr, updateErr error
		race(
			func() { reclaimed, lockErr = d[1].Acquire(t.Context(), request("owner/2", ref)) },
			func() {
				updateErr = change(t.Context(), d[0], driver.UpdateRequest{Updates: []driver.Update{{Ref: ref, New: v1}},
					Fence: &driver.Fence{Refs: []string{ref}, Owner: owner, Token: old.Token}})
			},
		)
		if lockErr != nil {
			t.Fatal(lockErr)
		}
		switch wrote := updateErr == nil; {
		case !wrote && !errors.Is(updateErr, driver.ErrLockLost):
			t.Fatal(updateErr)
		case wrote != (len(reclaimed.Refs) == 1):
			t.Fatalf("round %d: the update: %v, reclaimed with %v", i, updateErr, reclaimed.Refs)
		}
	}
}
