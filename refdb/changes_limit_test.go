package refdb_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// createMany creates refs in one transaction.
func createMany(t *testing.T, db *refdb.DB, prefix string, n int) {
	t.Helper()
	var updates []refdb.Update
	for i := range n {
		updates = append(updates, refdb.Update{Ref: fmt.Sprintf("refs/heads/%s%03d", prefix, i), New: "1"})
	}
	if err := db.Update(t.Context(), "p", updates); err != nil {
		t.Fatal(err)
	}
}

// A reader with a limit gets each change once, whether it reads by itself or from the feed.
func TestAReaderGetsNoMoreChangesAtATimeThanItAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, _ := observedInMemory(t)
		createMany(t, db, "a", 250)
		ctx, cancel := context.WithCancel(t.Context())
		seen := map[string]int{}
		var sizes []int
		var mu sync.Mutex
		var reading sync.WaitGroup
		reading.Go(func() {
			for c, err := range db.Changes(ctx, refdb.ChangeQuery{Project: "p", Limit: 100}) {
				mu.Lock()
				for _, change := range c.Changes {
					seen[change.Ref]++
				}
				if n := len(c.Changes); err == nil && n > 0 {
					sizes = append(sizes, n)
				}
				mu.Unlock()
			}
		})
		settle()
		createMany(t, db, "b", 250)
		settle()
		cancel()
		reading.Wait()
		if got := fmt.Sprint(sizes); got != "[100 100 50 100 100 50]" || len(seen) != 500 {
			t.Errorf("%d changes, in pages of %s", len(seen), got)
		}
		for ref, n := range seen {
			if n != 1 {
				t.Errorf("%s came %d times", ref, n)
			}
		}
	})
}

// When the feed ends, its readers read by themselves, some at a time.
func TestReadersWithoutAFeedTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, d := observedInMemory(t)
		slow := &slowChanges{Driver: d}
		readers, err := refdb.New(slow, refdb.Options{Site: "b"})
		if err != nil {
			t.Fatal(err)
		}
		defer readers.Close()
		var all []*reading
		for range 50 {
			all = append(all, follow(t, readers, refdb.ChangeQuery{}))
		}
		settle()
		slow.set(driver.ErrUnavailable) // which ends the feed
		settle()
		slow.set(nil)
		create(t, db, "refs/heads/a")
		settle()
		for i, r := range all {
			if got := r.refs(); got != "a" {
				t.Errorf("reader %d got %q", i, got)
			}
			r.stop()
		}
		slow.mu.Lock()
		defer slow.mu.Unlock()
		if slow.failed < len(all) {
			t.Errorf("%d requests failed: the feed did not end", slow.failed)
		}
		if slow.most > 5 { // and the feed
			t.Errorf("%d read at a time", slow.most)
		}
	})
}

// slowChanges notes how many requests for changes there are at a time.
type slowChanges struct {
	refdb.Driver
	mu        sync.Mutex
	now, most int
	failed    int // requests
	err       error
}

func (d *slowChanges) set(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

func (d *slowChanges) Changes(ctx context.Context, r driver.ChangesRequest) (driver.ChangesPage, error) {
	d.mu.Lock()
	d.now++
	d.most = max(d.most, d.now)
	failure := d.err
	if failure != nil {
		d.failed++
	}
	d.mu.Unlock()
	time.Sleep(time.Millisecond)
	page, err := d.Driver.Changes(ctx, r)
	if failure != nil {
		page, err = driver.ChangesPage{}, failure
	}
	d.mu.Lock()
	d.now--
	d.mu.Unlock()
	return page, err
}

// The pages of a group are read one after the other, so that no other reader waits for many of them.
func TestAGroupOfReadersTakesOneTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, d := observedInMemory(t)
		createMany(t, db, "a", 999)
		slow := &slowChanges{Driver: d}
		readers, err := refdb.New(slow, refdb.Options{Site: "b"})
		if err != nil {
			t.Fatal(err)
		}
		defer readers.Close()
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		for range 50 {
			group.Go(func() {
				for range readers.Changes(ctx, refdb.ChangeQuery{Project: "p", Limit: 10, Group: "a"}) {
				}
			})
		}
		time.Sleep(10 * time.Millisecond)
		slow.mu.Lock()
		most := slow.most
		slow.mu.Unlock()
		if most != 1 {
			t.Errorf("%d of a group read at a time", most)
		}
		began := time.Now()
		for range readers.Changes(ctx, refdb.ChangeQuery{Project: "p", Limit: 10, Group: "b"}) {
			break
		}
		if took := time.Since(began); took > 2*time.Millisecond { // its own page takes one
			t.Errorf("another reader waited for %s", took)
		}
		cancel()
		group.Wait()
	})
}

// A request that is never answered is made again.
func TestAPageThatDoesNotComeIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, d := observedInMemory(t)
		create(t, db, "refs/heads/a")
		readers, err := refdb.New(&blackHole{Driver: d}, refdb.Options{Site: "b"})
		if err != nil {
			t.Fatal(err)
		}
		defer readers.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for c, err := range readers.Changes(ctx, refdb.ChangeQuery{}) {
			if err != nil || len(c.Changes) != 1 {
				t.Errorf("%v, %v", c, err)
			}
			break
		}
	})
}

// A blackHole does not answer its first request for changes.
type blackHole struct {
	refdb.Driver
	asked sync.Once
}

func (d *blackHole) Changes(ctx context.Context, r driver.ChangesRequest) (driver.ChangesPage, error) {
	d.asked.Do(func() { <-ctx.Done() })
	if err := ctx.Err(); err != nil {
		return driver.ChangesPage{}, err
	}
	return d.Driver.Changes(ctx, r)
}

// A database that takes longer for a page than a reader waits at first would otherwise be asked for that page again and
// again, and do all of its work each time.
func TestAReaderGetsAheadOnASlowDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, d := observedInMemory(t)
		createMany(t, db, "a", 250)
		slow := &tardyChanges{Driver: d, takes: 25 * time.Second}
		readers, err := refdb.New(slow, refdb.Options{Site: "b"})
		if err != nil {
			t.Fatal(err)
		}
		defer readers.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		read := 0
		for c, err := range readers.Changes(ctx, refdb.ChangeQuery{Project: "p", Limit: 100}) {
			if err != nil {
				t.Fatalf("after %d changes: %v", read, err)
			}
			if read += len(c.Changes); len(c.Changes) > 0 && read == 250 {
				createMany(t, db, "b", 1) // which comes from the feed
			}
			if read == 251 {
				break
			}
		}
		if slow.abandoned != 2 { // after 10 s and 20 s; the limit stays as long as pages take long
			t.Errorf("%d requests were abandoned", slow.abandoned)
		}
	})
}

// tardyChanges takes long for each page.
type tardyChanges struct {
	refdb.Driver
	takes     time.Duration
	abandoned int
}

func (d *tardyChanges) Changes(ctx context.Context, r driver.ChangesRequest) (driver.ChangesPage, error) {
	select {
	case <-time.After(d.takes):
		return d.Driver.Changes(ctx, r)
	case <-ctx.Done():
		d.abandoned++
		return driver.ChangesPage{}, ctx.Err()
	}
}
