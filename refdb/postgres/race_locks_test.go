package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/postgres"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// The races that single statements lose (docs/DRIVERS.md, "PostgreSQL"). Each round has its own
// refs, which are prepared for all rounds together. It is judged by the answers, and the final
// contents of the tables are compared with them.
const raceLanes = 4 // concurrent rounds

// REFDB_TEST_LONG=1 makes it more rounds.
func raceRounds() int {
	switch {
	case testing.Short():
		return 150
	case long():
		return 2000
	}
	return 500
}

func long() bool { return os.Getenv("REFDB_TEST_LONG") != "" }

// An arena is a database with the two sides of a race.
type arena struct {
	testing.TB
	db          *dbtest.Database
	left, right *postgres.Driver
}

func newArena(t *testing.T) *arena {
	t.Parallel()
	db := dbtest.Postgres(t)
	return &arena{t, db, open(t, db.URL()), open(t, db.URL())}
}

// deadlockRounds is how many beats a test sends beside requests that they may deadlock with.
func deadlockRounds() int64 {
	switch {
	case testing.Short():
		return 10
	case long():
		return 200
	}
	return 50
}

// newDeadlockArena returns an arena in which only the server ends a deadlock, and so late that a
// beat, which yields after a second at most, leaves no deadlock to find.
func newDeadlockArena(t *testing.T) *arena {
	t.Parallel()
	db := dbtest.Postgres(t)
	db.Exec(t, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET deadlock_timeout = ''20s''', current_database()); END $$`)
	patient := with(t, db.URL(), "lock_timeout", "0")
	return &arena{t, db, open(t, patient), open(t, patient)}
}

// wantNoDeadlocks closes the drivers, and checks that the server has found no deadlock.
func (a *arena) wantNoDeadlocks() {
	a.Helper()
	a.left.Close()
	a.right.Close()
	c := session(a, a.db.URL())
	if n := query[int64](a, c, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`)[0]; n > 0 {
		a.Errorf("%d deadlocks", n)
	}
}

// race runs both functions at about the same time, round after round.
func (a *arena) race(left, right, judge func(round int)) {
	a.Helper()
	var next atomic.Int64
	var lanes sync.WaitGroup
	for range raceLanes {
		lanes.Go(func() {
			for n := int(next.Add(1)); n <= raceRounds() && !a.Failed(); n = int(next.Add(1)) {
				var both sync.WaitGroup
				start := make(chan struct{})
				for _, side := range []func(int){left, right} {
					both.Go(func() {
						<-start
						stagger()
						side(n)
					})
				}
				close(start)
				both.Wait()
				judge(n)
			}
		})
	}
	lanes.Wait()
}

// stagger waits for up to 150 µs, which is about the duration of a statement.
func stagger() {
	for end := time.Now().Add(rand.N(150 * time.Microsecond)); time.Now().Before(end); {
	}
}

func ref(kind string, round int) string { return fmt.Sprintf("refs/heads/%s-%d", kind, round) }

// all returns the refs of all rounds, sorted.
func all(kinds ...string) []string {
	var refs []string
	for n := range raceRounds() {
		for _, k := range kinds {
			refs = append(refs, ref(k, n+1))
		}
	}
	slices.Sort(refs)
	return refs
}

// create gives refs the value v1.
func (a *arena) create(refs []string) {
	a.Helper()
	for chunk := range slices.Chunk(refs, 1000) {
		a.must(try(a.Context(), a.left, update(chunk...)))
	}
}

// hold takes the locks on refs for the left side, under one token, either stale or fresh.
func (a *arena) hold(refs []string, stale bool) driver.Token {
	a.Helper()
	got := acquire(a, a.left, refs...)
	if stale {
		a.db.Exec(a, `UPDATE locks SET heartbeat = heartbeat - interval '2 hours'`)
	}
	return got.Token
}

func (a *arena) must(err error) {
	a.Helper()
	if err != nil {
		a.Fatal(err)
	}
}

// is reports whether err is the given refusal. Any other error fails the test.
func (a *arena) is(err, refusal error) bool {
	if err != nil && !errors.Is(err, refusal) {
		a.Error(err)
	}
	return err != nil
}

func value(got driver.Acquired) driver.Value {
	if len(got.Refs) == 0 {
		return driver.Unknown
	}
	return got.Refs[0].Value
}

func TestAnAcquisitionSeesTheUpdateThatItsLockDidNotRefuse(t *testing.T) {
	for _, exists := range []bool{true, false} {
		t.Run(fmt.Sprintf("the ref exists: %v", exists), func(t *testing.T) {
			a := newArena(t)
			before := driver.Unknown
			if exists {
				a.create(all("x"))
				before = v1
			}
			took := make([]driver.Acquired, raceRounds()+1)
			errs, refused := make([]error, raceRounds()+1), make([]error, raceRounds()+1)
			a.race(
				func(n int) { took[n], errs[n] = a.left.Acquire(a.Context(), request(ref("x", n))) },
				func(n int) {
					refused[n] = try(a.Context(), a.right, driver.UpdateRequest{Project: project, Origin: driver.Origin{ID: "id"}, Updates: moves(before, v2, ref("x", n))})
				},
				func(n int) {
					if errs[n] != nil {
						a.Error(errs[n])
					}
					want := v2
					if a.is(refused[n], driver.ErrLocked) {
						want = before
					}
					if got := value(took[n]); got != want {
						a.Errorf("the update ended with %v, and the acquisition saw %q", refused[n], got)
					}
				})
		})
	}
}

func TestOfTwoOverlappingAcquisitionsOneLeavesNothing(t *testing.T) {
	for _, stale := range []bool{false, true} {
		t.Run(fmt.Sprintf("stale locks in between: %v", stale), func(t *testing.T) {
			a := newArena(t)
			var before driver.Token
			if stale {
				before = a.hold(all("b"), true)
			}
			type answer struct {
				driver.Acquired
				err error
			}
			left, right := make([]answer, raceRounds()+1), make([]answer, raceRounds()+1)
			tokens := make(map[string]driver.Token)
			var mu sync.Mutex
			a.race(
				func(n int) {
					left[n].Acquired, left[n].err = a.left.Acquire(a.Context(), request(ref("a", n), ref("b", n)))
				},
				func(n int) {
					right[n].Acquired, right[n].err = a.right.Acquire(a.Context(), request(ref("b", n), ref("c", n)))
				},
				func(n int) {
					winner, loser, more := left[n], right[n], "a"
					if a.is(left[n].err, driver.ErrLocked) {
						winner, loser, more = right[n], left[n], "c"
					}
					var locked *driver.LockedError
					if winner.err != nil || !errors.As(loser.err, &locked) {
						a.Errorf("the two ended with %v and %v", left[n].err, right[n].err)
						return
					}
					if h := locked.Holders; len(h) != 1 || h[0].Ref != ref("b", n) || h[0].Token != winner.Token || winner.Token <= before {
						a.Errorf("token %d won, after %d, and the other saw %+v", winner.Token, before, h)
					}
					mu.Lock()
					defer mu.Unlock()
					tokens[ref(more, n)], tokens[ref("b", n)] = winner.Token, winner.Token
				})
			page, err := a.left.Locks(a.Context(), driver.LockQuery{Limit: 10 * raceRounds()})
			a.must(err)
			for _, l := range page.Locks {
				if tokens[l.Ref] != l.Token {
					a.Errorf("a lock with token %d remains on %s", l.Token, l.Ref)
				}
				delete(tokens, l.Ref)
			}
			if len(tokens) > 0 {
				a.Errorf("%d locks that were granted are missing", len(tokens))
			}
		})
	}
}

// A fenced update locks the rows of its fence FOR KEY SHARE only.
func TestARequestThatEndsAFenceReadsTheFencedUpdate(t *testing.T) {
	fenced := func(token driver.Token, n int) driver.UpdateRequest {
		return driver.UpdateRequest{
			Project: project, Origin: driver.Origin{ID: "id"}, Updates: moves("", v2, ref("x", n)), Fence: fence(token, ref("x", n), ref("y", n)),
		}
	}
	ends := map[string]func(a *arena, token driver.Token, n int) (driver.Acquired, error){
		"a reclaim": func(a *arena, _ driver.Token, n int) (driver.Acquired, error) {
			return a.right.Acquire(a.Context(), request(ref("x", n)))
		},
		"a purge": func(a *arena, token driver.Token, n int) (driver.Acquired, error) {
			purged, err := a.right.Purge(a.Context(), []driver.StandingLock{{LockID: ids(token, ref("y", n))[0]}})
			if err == nil && !purged[0] {
				err = errors.New("nothing was purged")
			}
			a.is(err, nil)
			rows, err := a.right.Get(a.Context(), project, []string{ref("x", n)})
			return driver.Acquired{Refs: rows}, err
		},
		"an update that passes the stale lock": func(a *arena, _ driver.Token, n int) (driver.Acquired, error) {
			err := try(a.Context(), a.right, update(ref("y", n)))
			a.is(err, nil)
			rows, err := a.right.Get(a.Context(), project, []string{ref("x", n)})
			return driver.Acquired{Refs: rows}, err
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			a := newArena(t)
			token := a.hold(all("x", "y"), true)
			lost := make([]error, raceRounds()+1)
			saw, errs := make([]driver.Acquired, raceRounds()+1), make([]error, raceRounds()+1)
			a.race(
				func(n int) { lost[n] = try(a.Context(), a.left, fenced(token, n)) },
				func(n int) { saw[n], errs[n] = end(a, token, n) },
				func(n int) {
					if errs[n] != nil {
						a.Error(errs[n])
					}
					want := v2
					if a.is(lost[n], driver.ErrLockLost) {
						want = driver.Unknown
					}
					if got := value(saw[n]); got != want {
						a.Errorf("the fenced update ended with %v, and the request that ended its fence saw %q", lost[n], got)
					}
				})
		})
	}
}

func TestOfABeatAndAnUpdatePastTheStaleLockOneIsRefused(t *testing.T) {
	a := newArena(t)
	token := a.hold(all("x"), true)
	beats, errs := make([][]driver.BeatResult, raceRounds()+1), make([]error, raceRounds()+1)
	refused := make([]error, raceRounds()+1)
	a.race(
		func(n int) {
			beats[n], errs[n] = a.left.Beat(a.Context(), ids(token, ref("x", n)))
		},
		func(n int) { refused[n] = try(a.Context(), a.right, update(ref("x", n))) },
		func(n int) {
			want := driver.BeatLost
			if a.is(refused[n], driver.ErrLocked) {
				want = driver.BeatRenewed
			}
			if errs[n] != nil || beats[n][0] != want {
				a.Errorf("the update ended with %v, the beat with %v, %v", refused[n], beats[n], errs[n])
			}
		})
}

// More than 256 refs are locked by the project's key, fewer by their own keys.
func TestLargeTransactionsExcludeSmallOnes(t *testing.T) {
	a := newArena(t)
	refs, rounds := names(300), raceRounds()/5
	updated := make([]error, rounds+1)
	errs := make([]error, rounds+1)
	large, small := make([]driver.Acquired, rounds+1), make([]driver.Value, rounds+1)
	for n := range rounds {
		small[n+1] = driver.Value(fmt.Sprintf("%040x", n+1))
	}
	current := driver.Unknown
	for n := 1; n <= rounds && !t.Failed(); n++ {
		var both sync.WaitGroup
		both.Go(func() { large[n], errs[n] = a.left.Acquire(a.Context(), request(refs...)) })
		both.Go(func() {
			stagger()
			updated[n] = try(a.Context(), a.right, driver.UpdateRequest{Project: project, Origin: driver.Origin{ID: "id"}, Updates: moves(current, small[n], refs[150])})
		})
		both.Wait()
		a.must(errs[n])
		if !a.is(updated[n], driver.ErrLocked) {
			current = small[n]
		}
		if got := value(large[n]); got != current {
			t.Errorf("the update ended with %v, and the acquisition saw %q", updated[n], got)
		}
		release(t, a.left, large[n], refs...)
	}
}

// Beats lock rows in any order, and never wait; fenced updates don't wait for them.
func TestBeatsInAnyOrderAndFencedUpdatesNeverDeadlock(t *testing.T) {
	a := newDeadlockArena(t)
	refs := names(400)
	token := a.hold(refs, false)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	var beats, updates, unknown atomic.Int64
	var work sync.WaitGroup
	for range 2 {
		work.Go(func() {
			defer cancel()
			rows := ids(token, refs...)
			for beats.Load() < deadlockRounds() {
				rand.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
				results, err := a.left.Beat(t.Context(), rows)
				if err != nil || slices.Contains(results, driver.BeatLost) {
					t.Errorf("a beat of locks that are held: %v", err)
					return
				}
				if slices.Contains(results, driver.BeatUnknown) {
					unknown.Add(1)
				}
				beats.Add(1)
			}
		})
		work.Go(func() {
			for n := 1; ctx.Err() == nil; n++ {
				r := update(refs...)
				r.Locks, r.Adopt, r.Fence = driver.AdvisoryLocks, true, fence(token, refs...)
				if err := try(t.Context(), a.right, r); err != nil && !errors.Is(err, driver.ErrMismatch) {
					t.Errorf("a fenced update under a lock that is held: %v", err)
					return
				}
				updates.Add(1)
			}
		})
	}
	work.Wait()
	t.Logf("%d beats, %d of them with unknown rows, %d updates", beats.Load(), unknown.Load(), updates.Load())
	a.wantNoDeadlocks()
}
