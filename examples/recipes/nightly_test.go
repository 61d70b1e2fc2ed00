package recipes

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// nightly runs work once a day on one machine of many. All of them call it, at any time of the day: one
// works, the others wait for it. If it fails the next one works.
func nightly(ctx context.Context, db *refdb.DB, work func(context.Context) error) error {
	now, err := db.Now(ctx) // the database's day, the same for all
	if err != nil {
		return err
	}
	today, report := refdb.Value(now.UTC().Format(time.DateOnly)), "refs/nightly/report"
	return db.WithLock(ctx, "ops", []string{report}, func(ctx context.Context, lock *refdb.Lock) error {
		last, err := lock.Value(report)
		if err != nil || last >= today {
			return err
		}
		if err := work(ctx); err != nil {
			return err
		}
		return lock.UpdateAndRelease(ctx, []refdb.Update{{Ref: report, Old: last, New: today}})
	})
}

func TestOneMachineOfManyWorksEachNight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var mu sync.Mutex
		worked := 0
		errWork := errors.New("the work failed")
		night := func(fail bool) (failed int) {
			var wg sync.WaitGroup
			for range 10 {
				db := w.machine()
				defer db.Close() // what it does by itself would take long each day
				wg.Go(func() {
					err := nightly(t.Context(), db, func(context.Context) error {
						mu.Lock()
						defer mu.Unlock()
						if worked++; fail {
							fail = false // only on the first machine
							return errWork
						}
						return nil
					})
					mu.Lock()
					defer mu.Unlock()
					switch {
					case errors.Is(err, errWork):
						failed++
					case err != nil:
						t.Error(err)
					}
				})
			}
			wg.Wait()
			return failed
		}
		for i, c := range []struct {
			fail           bool
			worked, failed int
		}{{false, 1, 0}, {true, 3, 1}, {false, 4, 0}} {
			if failed := night(c.fail); worked != c.worked || failed != c.failed {
				t.Errorf("after night %d: worked %d times, want %d; %d failed, want %d", i, worked, c.worked, failed, c.failed)
			}
			time.Sleep(24 * time.Hour)
		}
	})
}
