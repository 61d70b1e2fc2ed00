package recipes

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// lead runs work on one machine at a time. When the leader dies, another one takes over.
func lead(ctx context.Context, db *refdb.DB, work func(context.Context) error) error {
	for {
		err := db.WithLock(ctx, "ops", []string{"refs/leader/scheduler"},
			func(ctx context.Context, _ *refdb.Lock) error { return work(ctx) }) // ends when ctx does
		if refdb.ClassOf(err) != refdb.StaleOwner || ctx.Err() != nil {
			return err
		}
		// It was the leader no more. It stands for election again.
	}
}

func TestWhenTheLeaderDiesAnotherOneTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ctx, end := context.WithCancel(t.Context())
		defer end()
		leads := make(chan string)
		work := func(name string) func(context.Context) error {
			return func(ctx context.Context) error {
				leads <- name
				<-ctx.Done()
				return context.Cause(ctx)
			}
		}
		first, second := w.machine(), w.machine()
		ended := make(chan error)
		go func() { ended <- lead(ctx, first, work("first")) }()
		if got := <-leads; got != "first" {
			t.Fatal(got)
		}
		go func() { ended <- lead(ctx, second, work("second")) }()
		time.Sleep(refdb.DefaultStaleAfter / 2)
		select {
		case name := <-leads:
			t.Fatalf("%s leads too", name)
		default:
		}

		first.Close() // its lock stands until it is stale, as that of a machine that crashed
		if err := <-ended; !errors.Is(err, refdb.ErrClosed) {
			t.Error(err)
		}
		if got := <-leads; got != "second" {
			t.Error(got)
		}
		end()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func TestALeaderThatLostItsLockStandsForElectionAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		db, terms := w.machine(), 0
		err := lead(t.Context(), db, func(ctx context.Context) error {
			if terms++; terms == 2 {
				return nil
			}
			w.purgeAll()
			return nil // the release finds the loss
		})
		if err != nil || terms != 2 {
			t.Errorf("%d terms, %v", terms, err)
		}
	})
}
