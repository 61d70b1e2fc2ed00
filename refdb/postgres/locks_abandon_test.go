package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/postgres"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// All connections of the pool may be in use when a batch is to be sent.
func TestAnAcquisitionAbandonedInASaturatedPoolLeavesNothing(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	c := session(t, db.URL())
	d, other := onlyOne(t, db.URL()), open(t, db.URL())
	d.ShareAll()
	exec(t, c, `SELECT pg_advisory_lock(1)`)
	busy := make(chan error, 1)
	go func() { busy <- d.RoundTrip(t.Context(), nil, `SELECT pg_advisory_lock_shared(1)`) }()
	eventually(t, "the connection is in use", func() bool {
		return query[int64](t, c, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'`)[0] == 1
	})

	givenUp, wanted := request(mainRef), request(otherRef)
	got := make(chan error, 1)
	go func() {
		_, err := d.Acquire(t.Context(), wanted)
		got <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := d.Acquire(ctx, givenUp); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, driver.ErrOutcomeUnknown) {
		t.Errorf("given up: %v", err)
	}
	// Abandoned through another connection, before the batch has one.
	if err := other.Abandon(t.Context(), driver.AbandonRequest{Project: project, Refs: givenUp.Refs, Owner: owner, Nonce: givenUp.Nonce}); err != nil {
		t.Fatal(err)
	}
	exec(t, c, `SELECT pg_advisory_unlock(1)`)
	if err := errors.Join(<-busy, <-got); err != nil {
		t.Fatal(err)
	}
	if row, ok := db.RowLock(t, project, mainRef); ok {
		t.Errorf("the lock was taken: %+v", row)
	}
	if _, ok := db.RowLock(t, project, otherRef); !ok {
		t.Error("the lock of the other request was not taken")
	}
}

// The batch was sent, and waits inside the server.
func TestAnAcquisitionAbandonedInARunningBatchIsReleased(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	c := session(t, db.URL())
	d := open(t, db.URL())
	d.ShareAll()
	exec(t, c, `BEGIN`)
	exec(t, c, `LOCK TABLE locks IN ACCESS EXCLUSIVE MODE`)
	got := make(chan error, 1)
	go func() {
		_, err := d.Acquire(t.Context(), request(otherRef))
		got <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := d.Acquire(ctx, request(mainRef)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("given up: %v", err)
	}
	exec(t, c, `COMMIT`)
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	eventually(t, "nothing is left", func() bool {
		_, stands := db.RowLock(t, project, mainRef)
		return !stands
	})
}

// Another session has locked the table of locks, as ALTER TABLE and VACUUM FULL do.
func TestLockReturnsAtItsWaitLimitWhileTheTableIsLocked(t *testing.T) {
	t.Parallel()
	database := dbtest.Postgres(t)
	c := session(t, database.URL())
	d, err := postgres.Open(t.Context(), database.URL())
	if err != nil {
		t.Fatal(err)
	}
	db, err := refdb.New(d, refdb.Options{MaxWait: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	exec(t, c, `BEGIN`)
	exec(t, c, `LOCK TABLE locks IN ACCESS EXCLUSIVE MODE`)
	ended := make(chan error, 1)
	go func() {
		_, err := db.Lock(t.Context(), project, mainRef)
		ended <- err
	}()
	select {
	case err := <-ended:
		if !errors.Is(err, driver.ErrUnavailable) {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("Lock waits for the table")
	}
	exec(t, c, `COMMIT`)
	eventually(t, "nothing is left", func() bool {
		l, err := db.TryLock(t.Context(), project, mainRef)
		if err != nil {
			return false
		}
		return l.Release(t.Context()) == nil
	})
}
