package memory_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
)

const (
	project = "my/project"
	mainRef = "refs/heads/main"
)

// open returns a DB of a site, which is closed when the test ends.
func open(t *testing.T, db *memory.Database, site string) *refdb.DB {
	t.Helper()
	d, err := refdb.New(db.Open(), refdb.Options{Site: site})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func TestALockGoesStaleAtOnceInASynctestBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memory.New()
		eu, us := open(t, db, "eu-1"), open(t, db, "us-1")
		left, err := eu.TryLock(t.Context(), project, mainRef)
		if err != nil {
			t.Fatal(err)
		}
		eu.Close() // the lock stands, as that of a process that crashed
		if _, err := us.TryLock(t.Context(), project, mainRef); !errors.Is(err, driver.ErrLocked) {
			t.Fatalf("got %v while the lock is fresh", err)
		}

		start := time.Now()
		lock, err := us.Lock(t.Context(), project, mainRef)
		if err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(start); waited < driver.DefaultStaleAfter || waited > driver.DefaultStaleAfter+time.Second {
			t.Errorf("the lock was taken over after %s, stale-after is %s", waited, driver.DefaultStaleAfter)
		}
		if lock.Token() <= left.Token() {
			t.Errorf("token %d follows %d", lock.Token(), left.Token())
		}
		late := us.Update(t.Context(), project, []driver.Update{{Ref: mainRef, New: "late"}}, refdb.Under(left.Owner(), left.Token(), mainRef))
		if !errors.Is(late, driver.ErrLockLost) {
			t.Errorf("got %v from a write under the lock that was taken over", late)
		}
	})
}

func TestTokensIncreaseWhateverTheClockDoes(t *testing.T) {
	db := memory.New()
	d := db.Open()
	var last driver.Token
	take := func(t *testing.T) {
		t.Helper()
		r := driver.AcquireRequest{Project: project, Refs: []string{mainRef}, Owner: "eu-1/1", Nonce: "nonce", StaleAfter: time.Minute}
		got, err := d.Acquire(t.Context(), r)
		if err != nil || got.Token <= last {
			t.Fatalf("got %+v, %v after token %d", got, err, last)
		}
		last = got.Token
		_, err = d.Release(t.Context(), driver.ReleaseRequest{Project: r.Project, Refs: r.Refs, Owner: r.Owner, Token: got.Token})
		if err != nil {
			t.Fatal(err)
		}
	}
	take(t)
	// A bubble's time starts with the year 2000, and stands still while a goroutine runs.
	synctest.Test(t, func(t *testing.T) {
		for range 3 {
			take(t)
		}
	})
	take(t)
}
