package sqlite_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/sqlite"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// TestMain runs the tests or, in a process that a test started, the process's part.
func TestMain(m *testing.M) {
	if part, ok := parts()[os.Getenv(partVariable)]; ok {
		if err := part(os.Args[1:]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// dbtest links the client of Cloud Spanner, which starts this goroutine permanently.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

const (
	project = "project"
	refA    = "refs/heads/a"
	refB    = "refs/heads/b"
	owner   = "owner/1"

	v1 driver.Value = "1111111111111111111111111111111111111111"
	v2 driver.Value = "2222222222222222222222222222222222222222"
)

// open returns a driver on a new migrated file, and the file's address.
func open(t testing.TB) (*sqlite.Driver, string) {
	t.Helper()
	url := local.SQLite(t).URL()
	return openAgain(t, url), url
}

// patience is how long a driver waits for other processes, however busy the machine is.
const patience = 5 * time.Minute

// openAgain returns another driver on a file.
func openAgain(t testing.TB, url string) *sqlite.Driver {
	t.Helper()
	d := openWithLimits(t, url)
	d.SetPatience(patience)
	return d
}

// openWithLimits is openAgain for the tests of the time limits.
func openWithLimits(t testing.TB, url string) *sqlite.Driver {
	t.Helper()
	d, err := sqlite.Open(context.WithoutCancel(t.Context()), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// request returns a request for locks that stay fresh during a test.
func request(owner string, refs ...string) driver.AcquireRequest {
	return driver.AcquireRequest{Project: project, Refs: refs, Owner: owner, StaleAfter: time.Hour}
}

// preparation returns a request to record intents.
func preparation(updates ...driver.Update) driver.PrepareRequest {
	return driver.PrepareRequest{Project: project, Owner: owner, Updates: updates, Agent: "agent"}
}

// acquire takes locks, or ends the test.
func acquire(t testing.TB, d *sqlite.Driver, refs ...string) driver.Acquired {
	t.Helper()
	a, err := d.Acquire(t.Context(), request(owner, refs...))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// update moves a ref, or ends the test.
func update(t testing.TB, d *sqlite.Driver, ref string, from, to driver.Value) {
	t.Helper()
	if err := put(t.Context(), d, ref, from, to); err != nil {
		t.Fatal(err)
	}
}

func put(ctx context.Context, d *sqlite.Driver, ref string, from, to driver.Value) error {
	return change(ctx, d, driver.UpdateRequest{Origin: driver.Origin{ID: "op"}, Updates: []driver.Update{{Ref: ref, Old: from, New: to}}})
}

// change makes an update of the project.
func change(ctx context.Context, d *sqlite.Driver, r driver.UpdateRequest) error {
	r.Project = project
	return d.Update(ctx, r)
}

// release releases all of a lock that was acquired with the given token.
func release(ctx context.Context, d *sqlite.Driver, owner string, token driver.Token, refs ...string) error {
	released, err := d.Release(ctx, driver.ReleaseRequest{Project: project, Refs: refs, Owner: owner, Token: token})
	if err == nil && len(released.Missing) > 0 {
		err = fmt.Errorf("%s were not released", released.Missing)
	}
	return err
}

// value returns the value of a ref.
func value(t testing.TB, d *sqlite.Driver, ref string) driver.Value {
	t.Helper()
	rows, err := d.Get(context.WithoutCancel(t.Context()), project, []string{ref})
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) == 0 {
		return driver.Unknown
	}
	return rows[0].Value
}

// locks returns all locks.
func locks(t testing.TB, d *sqlite.Driver) []driver.LockInfo {
	t.Helper()
	page, err := d.Locks(context.WithoutCancel(t.Context()), driver.LockQuery{Limit: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	return page.Locks
}

// write executes a statement that the driver does not have.
func write(t testing.TB, d *sqlite.Driver, query string, args ...any) {
	t.Helper()
	if err := d.Write(t.Context(), func(exec func(string, ...any) error) error { return exec(query, args...) }); err != nil {
		t.Fatal(err)
	}
}
