package refdb_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
)

// An observed driver notes how it is asked for changes.
type observed struct {
	refdb.Driver
	mu    sync.Mutex
	asked []driver.ChangesRequest
	// answer, unless nil, changes the answers.
	answer func(driver.ChangesRequest, *driver.ChangesPage) error
}

func (o *observed) Changes(ctx context.Context, r driver.ChangesRequest) (driver.ChangesPage, error) {
	p, err := o.Driver.Changes(ctx, r)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked = append(o.asked, r)
	if o.answer != nil && err == nil {
		err = o.answer(r, &p)
	}
	return p, err
}

func (o *observed) set(answer func(driver.ChangesRequest, *driver.ChangesPage) error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answer = answer
}

// during returns how the driver is asked for changes while do runs.
func (o *observed) during(do func()) []driver.ChangesRequest {
	o.mu.Lock()
	before := len(o.asked)
	o.mu.Unlock()
	do()
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.asked[before:])
}

func observedInMemory(t *testing.T) (*refdb.DB, *observed) {
	t.Helper()
	o := &observed{Driver: memory.New().Open()}
	db, err := refdb.New(o, refdb.Options{Site: "a"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db, o
}

// A reading is an iteration over changes in a goroutine of its own.
type reading struct {
	stop context.CancelFunc
	busy chan struct{} // while it has an element, the loop's body waits

	mu     sync.Mutex
	got    []refdb.Change
	told   int // how often there was none
	cursor refdb.Cursor
	err    error
}

func follow(t *testing.T, db *refdb.DB, q refdb.ChangeQuery) *reading {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r := &reading{stop: stop, busy: make(chan struct{}, 1)}
	go func() {
		for c, err := range db.Changes(ctx, q) {
			r.busy <- struct{}{}
			<-r.busy
			r.mu.Lock()
			if r.err = err; err == nil {
				r.cursor = c.Cursor
			}
			r.got = append(r.got, c.Changes...)
			if len(c.Changes) == 0 {
				r.told++
			}
			r.mu.Unlock()
		}
	}()
	return r
}

// refs returns the names that were received, one letter each.
func (r *reading) refs() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all string
	for _, c := range r.got {
		all += strings.TrimPrefix(c.Ref, "refs/heads/")
	}
	return all
}

func (r *reading) state() (told int, c refdb.Cursor, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.told, r.cursor, r.err
}

// settle lets all readers catch up.
func settle() {
	time.Sleep(10 * time.Second)
	synctest.Wait()
}

func TestReadersThatHaveCaughtUpAreOneToTheDatabase(t *testing.T) {
	asked := func(readers int) (n int) {
		synctest.Test(t, func(t *testing.T) {
			db, d := observedInMemory(t)
			var all []*reading
			for range readers {
				all = append(all, follow(t, db, refdb.ChangeQuery{}))
			}
			settle()
			n = len(d.during(func() {
				for _, name := range []string{"a", "b", "c"} {
					create(t, db, "refs/heads/"+name)
					settle()
				}
			}))
			for i, r := range all {
				if got := r.refs(); got != "abc" {
					t.Errorf("reader %d got %q", i, got)
				}
			}
		})
		return n
	}
	if one, hundred := asked(1), asked(100); hundred > 2*one { // pauses are jittered
		t.Errorf("100 readers ask %d times, one asks %d times", hundred, one)
	}
}

// While there are changes all the time, the database is asked every 3 ms, and less often by 0.1 ms
// for each reader.
func TestTheMoreReadersAreWokenTheRarerTheDatabaseIsAsked(t *testing.T) {
	for readers, pause := range map[int]time.Duration{
		1:    3100 * time.Microsecond,
		50:   8 * time.Millisecond,
		5000: 400 * time.Millisecond, // and no less often
	} {
		t.Run(fmt.Sprint(readers), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db, d := observedInMemory(t)
				for range readers {
					follow(t, db, refdb.ChangeQuery{})
				}
				settle()
				const looks = 20
				asked := d.during(func() {
					for i := range 2 * looks {
						create(t, db, fmt.Sprint("refs/heads/", i))
						time.Sleep(pause / 2)
					}
				})
				if n := len(asked); n < looks-1 || n > looks+1 {
					t.Errorf("asked %d times, want %d", n, looks)
				}
			})
		})
	}
}

// After a change of another process the next one is expected soon. Those of this process are
// announced.
func TestTheDatabaseIsAskedMoreOftenAfterAChangeOfAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memory.New()
		d := &observed{Driver: shared.Open()}
		var dbs [2]*refdb.DB
		for i, driver := range []refdb.Driver{d, shared.Open()} {
			db, err := refdb.New(driver, refdb.Options{Site: fmt.Sprint("s", i)})
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			dbs[i] = db
		}
		r := follow(t, dbs[0], refdb.ChangeQuery{})
		settle()
		settle()
		for i, row := range []struct {
			name     string
			by       *refdb.DB // who makes a change
			from, to int       // how often the database is asked in the ten seconds after that
		}{
			{"without changes", nil, 18, 34},
			{"after one of this process", dbs[0], 20, 50},
			{"after one of another", dbs[1], 80, 150},
			{"ten seconds later", nil, 18, 40},
		} {
			if row.by != nil {
				create(t, row.by, fmt.Sprint("refs/heads/", i))
			}
			if n := len(d.during(settle)); n < row.from || n > row.to {
				t.Errorf("%s it is asked %d times, want %d to %d", row.name, n, row.from, row.to)
			}
		}
		if got := r.refs(); got != "12" {
			t.Errorf("the reader got %q", got)
		}
	})
}

func TestAChangeOfThisProcessWakesReaders(t *testing.T) {
	for name, change := range map[string]func(*refdb.DB) error{
		"an update": func(db *refdb.DB) error {
			return db.Update(context.Background(), "p", []refdb.Update{{Ref: "refs/heads/a", Old: oldMain, New: refdb.Deleted}})
		},
		"a removed project": func(db *refdb.DB) error {
			_, err := db.Projects().Remove(context.Background(), "p")
			return err
		},
		"a finished intent": func(db *refdb.DB) error {
			p, err := db.Intents().Prepare(context.Background(), "p", []refdb.Update{{Ref: "refs/heads/a", Old: oldMain, New: refdb.Deleted}}, "agent")
			return errors.Join(err, db.Intents().Finish(context.Background(), p, []string{"refs/heads/a"}, nil))
		},
		"a resolved intent": func(db *refdb.DB) error {
			_, err := db.Intents().Prepare(context.Background(), "p", []refdb.Update{{Ref: "refs/heads/a", Old: oldMain, New: refdb.Deleted}}, "agent")
			for i, listed := range db.Intents().All(context.Background(), driver.IntentFilter{}) {
				_, resolved := db.Intents().Resolve(context.Background(), []driver.Intent{i}, driver.TakeNew, "me", "test")
				err = errors.Join(err, listed, resolved)
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := inMemory(t)
				create(t, db, "refs/heads/a")
				r := follow(t, db, refdb.ChangeQuery{})
				settle()
				time.Sleep(time.Nanosecond) // no poll is due now
				if err := change(db); err != nil {
					t.Fatal(err)
				}
				time.Sleep(4 * time.Millisecond) // the feed asks at once, but not more often than every 3 ms
				synctest.Wait()
				if got := r.refs(); got != "aa" {
					t.Errorf("it has got %q", got)
				}
			})
		})
	}
}

func TestASlowReaderHoldsUpNobodyAndMissesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := inMemory(t)
		slow, fast := follow(t, db, refdb.ChangeQuery{}), follow(t, db, refdb.ChangeQuery{})
		settle()
		slow.busy <- struct{}{}
		n := 0
		for range 8 { // more than the feed keeps
			var refs []string
			for range 900 {
				refs = append(refs, fmt.Sprintf("refs/heads/%05d", n))
				n++
			}
			create(t, db, refs...)
			settle()
			if got := len(fast.refs()); got != 5*n {
				t.Fatalf("the fast one has %d of %d changes", got/5, n)
			}
		}
		<-slow.busy
		settle()
		if slow.refs() != fast.refs() {
			t.Errorf("the slow one got %d changes, the fast one %d, or others", len(slow.refs())/5, len(fast.refs())/5)
		}
	})
}

func TestWhileAllReadersAreBusyTheDatabaseIsNotAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, d := observedInMemory(t)
		r := follow(t, db, refdb.ChangeQuery{})
		settle()
		r.busy <- struct{}{}
		settle()
		if asked := d.during(func() { create(t, db, "refs/heads/a"); settle() }); len(asked) > 0 {
			t.Errorf("it is asked %d times", len(asked))
		}
		if feedRuns() { // and has stopped where the busy one is: it would hold up a new reader
			t.Error("nobody has waited for long, and the feed goes on")
		}
		other := follow(t, db, refdb.ChangeQuery{})
		settle()
		create(t, db, "refs/heads/b")
		time.Sleep(100 * time.Millisecond) // the feed may have looked in this very moment, and waits a few milliseconds between two looks
		synctest.Wait()
		if got := other.refs(); got != "ab" {
			t.Errorf("a new reader got %q", got)
		}
		<-r.busy
		settle()
		if got := r.refs(); got != "ab" {
			t.Errorf("the busy one got %q", got)
		}
	})
}

func TestAReaderEndsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, d := observedInMemory(t)
		one, other := follow(t, db, refdb.ChangeQuery{}), follow(t, db, refdb.ChangeQuery{})
		settle()
		one.stop()
		synctest.Wait()
		if _, _, err := one.state(); !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
		create(t, db, "refs/heads/a")
		settle()
		if got := other.refs(); got != "a" {
			t.Errorf("the other one got %q", got)
		}
		other.stop()
		synctest.Wait()
		if feedRuns() {
			t.Error("the last one has ended, and the feed goes on")
		}
		if asked := d.during(settle); len(asked) > 0 {
			t.Errorf("the last one has ended, and the database is asked %d times", len(asked))
		}
	})
}

// feedRuns reports whether there is a goroutine of a feed.
func feedRuns() bool {
	stacks := make([]byte, 1<<20)
	return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "refdb.(*feed).run(")
}

func TestAReaderThatWasBusyIsServedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := inMemory(t)
		r := follow(t, db, refdb.ChangeQuery{})
		settle()
		r.busy <- struct{}{}
		create(t, db, "refs/heads/a")
		time.Sleep(500 * time.Millisecond) // the feed stops when nobody has waited for a second
		create(t, db, "refs/heads/b")
		time.Sleep(100 * time.Millisecond)
		<-r.busy
		synctest.Wait() // no time passes
		if got := r.refs(); got != "ab" {
			t.Errorf("it has got %q", got)
		}
	})
}

func TestAReaderThatIsAheadOfTheDatabaseIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, d := observedInMemory(t)
		follow(t, db, refdb.ChangeQuery{})
		settle()
		d.set(func(r driver.ChangesRequest, page *driver.ChangesPage) error {
			if r.Project == "p" { // the reader by itself, before the database goes back
				page.State.Upto += 100
				page.Next.Position += 100
			}
			return nil
		})
		r := follow(t, db, refdb.ChangeQuery{Project: "p"})
		synctest.Wait()
		d.set(nil)
		settle()
		if _, _, err := r.state(); !errors.Is(err, refdb.ErrRewound) {
			t.Errorf("it goes on: %v", err)
		}
	})
}
