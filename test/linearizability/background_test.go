package linearizability

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
)

// A slow driver takes a second for each release, and for acquisitions of slowRef.
type slow struct{ refdb.Driver }

const slowRef = "refs/heads/slow"

func (s slow) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.Acquired, error) {
	if r.Refs[0] == slowRef {
		time.Sleep(time.Second)
	}
	return s.Driver.Acquire(ctx, r)
}

func (s slow) Release(ctx context.Context, r driver.ReleaseRequest) (driver.Released, error) {
	time.Sleep(time.Second)
	return s.Driver.Release(ctx, r)
}

// giveUpRelease releases a lock with a context that ends before the release does.
func giveUpRelease(t *testing.T, c *Client) {
	t.Helper()
	lock, err := c.TryLock(t.Context(), "project", "refs/heads/x")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := lock.Release(ctx); err == nil {
		t.Error("the release did not give up")
	}
}

// A call that gave up leaves a request behind, which is carried out all the same.
func TestWhatGoesOnInTheBackgroundIsUnresolved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var recorded bytes.Buffer
		c, err := Open(NewRecorder(&recorded), slow{memory.New().Open()}, refdb.Options{Site: "site"})
		if err != nil {
			t.Fatal(err)
		}
		giveUpRelease(t, c)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := c.Lock(ctx, "project", slowRef); err == nil {
			t.Error("the lock did not give up")
		}
		synctest.Wait()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		ops, err := Read(&recorded)
		if err != nil {
			t.Fatal(err)
		}
		for _, op := range ops {
			switch {
			case op.Input.Kind == Release && op.Output.Result != Unknown,
				op.Input.Kind == Acquire && op.Output.Token == 0 && !op.Output.Unresolved:
				t.Errorf("%s is recorded as %+v", op.Input.Kind, op.Output)
			}
		}
		if len(ops) < 3 {
			t.Errorf("%d calls are recorded", len(ops))
		}
	})
}

// A caller that gives up a release may do so after the rows are gone.
func TestAReleaseThatWasCarriedOutIsRecordedSoThoughItsCallerGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var recorded bytes.Buffer
		c, err := Open(NewRecorder(&recorded), memory.New().Open(), refdb.Options{Site: "site", Observe: func(e refdb.Event) {
			if e.Op == driver.OpRelease {
				time.Sleep(time.Second) // between the driver's answer and the caller's
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		giveUpRelease(t, c)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		ops, err := Read(&recorded)
		if err != nil {
			t.Fatal(err)
		}
		for _, op := range ops {
			if op.Input.Kind == Release && (op.Output.Result != Done || len(op.Output.Deleted) != 1) {
				t.Errorf("it is recorded as %+v", op.Output)
			}
		}
	})
}
