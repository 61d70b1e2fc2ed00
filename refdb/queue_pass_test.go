package refdb

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// onRef is a refusal because of a lock, or an intent, on a ref.
func onRef(ref string, staleAfter time.Duration) error {
	return &LockedError{Holders: []LockInfo{{Project: "p", Ref: ref, Owner: "other/1", Token: 7, StaleAfter: staleAfter}}}
}

// A waiter for a held ref and a free one does not keep the free one from others for
// ever. It gets the free one in the end, unless the held one might never be free.
func TestAWaiterForAHeldRefLetsOthersHaveTheFreeOne(t *testing.T) {
	for name, row := range map[string]struct {
		staleAfter time.Duration
		ahead      [][]string // refs of waiters that come before the one for a and b
		want       int        // how many of more than MaxPassed callers get a
	}{
		"held by a lock":                         {DefaultStaleAfter, [][]string{}, driver.MaxPassed},
		"by an intent":                           {driver.NeverStale, [][]string{}, driver.MaxPassed + 5},
		"and behind another waiter":              {DefaultStaleAfter, [][]string{{"refs/b"}}, driver.MaxPassed},
		"and behind one that an intent stops":    {driver.NeverStale, [][]string{{"refs/b"}}, driver.MaxPassed + 5},
		"and behind one that is behind that one": {driver.NeverStale, [][]string{{"refs/b"}, {"refs/b", "refs/c"}}, driver.MaxPassed + 5},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{}
			var freed atomic.Bool
			f.acquire = func(_ int, r driver.AcquireRequest) (driver.Acquired, error) {
				if slices.Contains(r.Refs, "refs/b") && !freed.Load() {
					return driver.Acquired{}, onRef("refs/b", row.staleAfter)
				}
				return driver.Acquired{Token: 8}, nil
			}
			inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
				waiting := make(chan error, 10)
				all := append(row.ahead, []string{"refs/a", "refs/b"})
				for _, refs := range all {
					go func() {
						l, err := db.Lock(t.Context(), "p", refs...)
						if err == nil {
							err = l.Release(t.Context())
						}
						waiting <- err
					}()
					time.Sleep(time.Second)
				}
				got := 0
				for range driver.MaxPassed + 5 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					l, err := db.Lock(ctx, "p", "refs/a")
					cancel()
					if err != nil {
						wantIs(t, err, ErrLocked)
						if !strings.Contains(err.Error(), "of this process") {
							t.Errorf("%v does not say what it waited for", err)
						}
						continue
					}
					got++
					if err := l.Release(t.Context()); err != nil {
						t.Error(err)
					}
				}
				if got != row.want {
					t.Errorf("%d got the free ref, want %d", got, row.want)
				}
				freed.Store(true)
				for range all {
					if err := <-waiting; err != nil {
						t.Error(err)
					}
				}
				if n := db.queues.entries(); n != 0 {
					t.Errorf("%d entries are left", n)
				}
			})
		})
	}
}

func TestWaitersThatLeaveAreRemovedFromTheQueues(t *testing.T) {
	const n = 50
	ref := func(i int) string { return fmt.Sprint("refs/heads/", i) }
	for name, row := range map[string]struct {
		rounds int // of hand-overs before
		end    func(giveUp func(), ended chan error, d *notifyingFake, db *DB, ref string)
	}{
		"they give up": {0, func(giveUp func(), _ chan error, _ *notifyingFake, _ *DB, _ string) { giveUp() }},
		"they give up while the lock is handed over to them": {1, func(giveUp func(), ended chan error, _ *notifyingFake, _ *DB, _ string) {
			giveUp()
			<-ended
		}},
		"they give up when it is their turn": {1, func(giveUp func(), _ chan error, d *notifyingFake, db *DB, ref string) {
			d.notifyLast(ref)
			giveUp()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{}
			holder := map[string]bool{} // guarded by f.mu
			f.acquire = func(_ int, r driver.AcquireRequest) (driver.Acquired, error) {
				f.mu.Lock()
				defer f.mu.Unlock()
				if holder[r.Refs[0]] {
					return driver.Acquired{}, &LockedError{Holders: []LockInfo{{Project: "p", Ref: r.Refs[0], Owner: r.Owner, StaleAfter: DefaultStaleAfter}}}
				}
				holder[r.Refs[0]] = true
				return driver.Acquired{Token: 8}, nil
			}
			d := &notifyingFake{fake: f}
			inBubble(t, Options{}, f, d, func(t *testing.T, db *DB) {
				for i := range n {
					l := mustLock(t, db, ref(i))
					for round := range max(row.rounds, 1) {
						ctx, giveUp := context.WithCancel(t.Context())
						ended := make(chan error, 2)
						next := make(chan *Lock, 1)
						go func() {
							l, err := db.Lock(ctx, "p", ref(i))
							next <- l
							ended <- err
						}()
						time.Sleep(2 * time.Second)
						synctest.Wait()
						last := round+1 >= row.rounds
						f.release = func(_ int, r driver.ReleaseRequest) (driver.Released, error) {
							if last {
								row.end(giveUp, ended, d, db, ref(i))
							}
							f.mu.Lock()
							defer f.mu.Unlock()
							holder[r.Refs[0]] = false
							return driver.Released{}, nil
						}
						if err := l.Release(t.Context()); err != nil {
							t.Fatal(err)
						}
						if l = <-next; l == nil {
							giveUp()
							break
						}
						giveUp()
					}
					if l != nil {
						if err := l.Release(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if n := db.queues.entries(); n != 0 {
					t.Errorf("%d entries are left: %+v", n, &db.queues)
				}
			})
		})
	}
}
