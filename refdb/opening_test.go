package refdb_test

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
)

// A clock is a driver that knows only the time.
type clock struct {
	refdb.Driver
	closed atomic.Int32
}

var epoch = time.Unix(0, 0)

func (c *clock) Now(context.Context) (time.Time, error) { return epoch, nil }
func (c *clock) Close() error                           { c.closed.Add(1); return nil }

// downFor returns an open function that fails for that length of time, then returns d.
func downFor(length time.Duration, d refdb.Driver) func(context.Context) (refdb.Driver, error) {
	from := time.Now()
	return func(context.Context) (refdb.Driver, error) {
		if since := time.Since(from); since < length {
			return nil, errors.New("down for " + since.Truncate(time.Second).String())
		}
		return d, nil
	}
}

func openDB(t *testing.T, open func(context.Context) (refdb.Driver, error), o refdb.Options) *refdb.DB {
	t.Helper()
	db, err := refdb.Open(open, o)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func closeDB(t *testing.T, db *refdb.DB) {
	t.Helper()
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

func TestADatabaseThatIsUpServesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, d := time.Now(), &clock{}
		db := openDB(t, downFor(0, d), refdb.Options{})
		if now, err := db.Now(t.Context()); now != epoch || err != nil {
			t.Errorf("%s, %v", now, err)
		}
		closeDB(t, db)
		closeDB(t, db)
		if d.closed.Load() != 1 || time.Since(start) != 0 {
			t.Errorf("closed %d times after %s", d.closed.Load(), time.Since(start))
		}
	})
}

func TestOptionsThatCannotWorkAreRefusedBeforeTheDatabaseIsOpened(t *testing.T) {
	t.Parallel()
	open := func(context.Context) (refdb.Driver, error) {
		t.Error("open was called")
		return &clock{}, nil
	}
	if _, err := refdb.Open(open, refdb.Options{Site: "a/b"}); !errors.Is(err, refdb.ErrInvalid) {
		t.Error(err)
	}
}

func TestUntilTheDatabaseIsUpEveryRequestSaysWhyItIsNot(t *testing.T) {
	const ref = "refs/heads/main"
	v := refdb.Value(strings.Repeat("1", 40))
	synctest.Test(t, func(t *testing.T) {
		db := openDB(t, downFor(time.Hour, &clock{}), refdb.Options{Site: "eu-1"})
		defer closeDB(t, db)
		time.Sleep(time.Minute)
		ctx := t.Context()
		first := func(all func(func(error) bool)) (found error) {
			all(func(err error) bool { found = err; return false })
			return found
		}
		for name, request := range map[string]func() error{
			"Now":      func() error { _, err := db.Now(ctx); return err },
			"Diagnose": func() error { _, err := db.Operator().Diagnose(ctx); return err },
			"Get":      func() error { _, err := db.Get(ctx, "p", ref); return err },
			"States":   func() error { _, err := db.Intents().States(ctx, "p", []string{ref}); return err },
			"Update":   func() error { return db.Update(ctx, "p", []refdb.Update{{Ref: ref, New: v}}) },
			"TryLock":  func() error { _, err := db.TryLock(ctx, "p", ref); return err },
			"Prepare": func() error {
				_, err := db.Intents().Prepare(ctx, "p", []refdb.Update{{Ref: ref, New: v}}, "agent")
				return err
			},
			"Project":       func() error { _, _, err := db.Projects().Get(ctx, "p"); return err },
			"RemoveProject": func() error { _, err := db.Projects().Remove(ctx, "p"); return err },
			"HistoryState":  func() error { _, err := db.HistoryState(ctx); return err },
			"StateKey":      func() error { _, err := db.StateKey(ctx, "p"); return err },
			"Admission":     func() error { _, err := db.Recovery().Admission(ctx); return err },
			"Compare":       func() error { _, err := db.Recovery().Compare(ctx); return err },
			"PackUsage":     func() error { _, err := db.Packs().Usage(ctx, "p"); return err },
			"Refs": func() error {
				return first(func(yield func(error) bool) {
					db.Refs(ctx, "p", "")(func(_ refdb.Ref, err error) bool { return yield(err) })
				})
			},
		} {
			if err := request(); !errors.Is(err, refdb.ErrUnavailable) || !strings.Contains(err.Error(), "down for ") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if s := db.Stats(); len(s.Driver.Pools) > 0 {
			t.Errorf("Stats: %+v", s)
		}
	})
}

func TestADatabaseThatComesUpIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := openDB(t, downFor(time.Minute, &clock{}), refdb.Options{})
		defer closeDB(t, db)
		time.Sleep(70 * time.Second) // a minute, and the longest pause
		if now, err := db.Now(t.Context()); now != epoch || err != nil {
			t.Errorf("%s, %v", now, err)
		}
	})
}

func TestFailedAttemptsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		db := openDB(t, downFor(2*time.Second, &clock{}), refdb.Options{Logger: slog.New(slog.NewTextHandler(&out, nil))})
		time.Sleep(10 * time.Second)
		closeDB(t, db)
		if lines := strings.Count(out.String(), "trying again"); lines < 3 || !strings.Contains(out.String(), `error="down for 1s"`) {
			t.Errorf("%s", out.String())
		}
	})
}

func TestAnAttemptThatHangsDelaysNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var ended error
		db := openDB(t, func(ctx context.Context) (refdb.Driver, error) {
			<-ctx.Done()
			ended = ctx.Err()
			return nil, ended
		}, refdb.Options{})
		if took := time.Since(start); took != time.Second {
			t.Errorf("opening took %s", took)
		}
		if _, err := db.Now(t.Context()); !errors.Is(err, refdb.ErrUnavailable) {
			t.Error(err)
		}
		closeDB(t, db)
		if ended == nil {
			t.Error("Close did not end the attempt")
		}
		if _, err := db.Now(t.Context()); !errors.Is(err, refdb.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

func TestADriverThatOpensWhileTheDBIsClosedIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &clock{}
		db := openDB(t, func(ctx context.Context) (refdb.Driver, error) {
			<-ctx.Done()
			return d, nil
		}, refdb.Options{})
		closeDB(t, db)
		if n := d.closed.Load(); n != 1 {
			t.Errorf("closed %d times", n)
		}
	})
}

// A busyClock refuses all locks, and can wake waiters. It has settings, stats and rights.
type busyClock struct {
	*clock
	listened chan struct{}
}

func (b *busyClock) Acquire(context.Context, driver.AcquireRequest) (driver.Acquired, error) {
	return driver.Acquired{}, &refdb.LockedError{Holders: []refdb.LockInfo{{Project: "p", Ref: "refs/heads/main", Owner: "o", StaleAfter: time.Hour}}}
}

func (b *busyClock) Abandon(context.Context, driver.AbandonRequest) error { return nil }

func (b *busyClock) Listen(ctx context.Context, _ string, started func(), _ func(driver.Wakeup)) error {
	started()
	close(b.listened)
	<-ctx.Done()
	return ctx.Err()
}

func (b *busyClock) Diagnose(context.Context) ([]driver.Diagnosis, error) {
	return []driver.Diagnosis{{Name: "setting"}}, nil
}

func (b *busyClock) Stats() driver.DriverStats {
	return driver.DriverStats{Pools: []driver.Pool{{Name: "requests"}}}
}

func (b *busyClock) CheckSchema(context.Context) error { return refdb.ErrSchema }

// A driver shows its optional roles once it is open.
func TestOptionalRolesAreFoundOnceTheDatabaseIsUp(t *testing.T) {
	for name, wrap := range map[string]func(refdb.Driver) refdb.Driver{
		"of the driver":            func(d refdb.Driver) refdb.Driver { return d },
		"of one that it wraps":     func(d refdb.Driver) refdb.Driver { return wrapper{d} },
		"of one wrapped two times": func(d refdb.Driver) refdb.Driver { return wrapper{wrapper{d}} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				busy := &busyClock{&clock{}, make(chan struct{})}
				db := openDB(t, downFor(10*time.Second, wrap(busy)), refdb.Options{})
				defer closeDB(t, db)
				if s := db.Stats(); len(s.Driver.Pools) > 0 {
					t.Errorf("stats while it is down: %+v", s)
				}
				time.Sleep(time.Minute) // the longest pause, and more than one look at the schema
				if s := db.Stats(); len(s.Driver.Pools) != 1 {
					t.Errorf("stats once it is up: %+v", s)
				}
				if found, err := db.Operator().Diagnose(t.Context()); len(found) != 1 || err != nil {
					t.Errorf("diagnoses %v, %v", found, err)
				}
				if _, err := db.TryLock(t.Context(), "p", "refs/heads/main"); !errors.Is(err, refdb.ErrSchema) {
					t.Errorf("the schema is not checked: %v", err)
				}
			})
		})
	}
}

func TestWaitersListenOnceTheDatabaseIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := &busyClock{&clock{}, make(chan struct{})}
		up := make(chan struct{})
		db := openDB(t, func(context.Context) (refdb.Driver, error) {
			<-up
			return struct {
				refdb.Driver
				driver.Notifier
			}{busy, busy}, nil
		}, refdb.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		waited := make(chan error)
		go func() { _, err := db.Lock(ctx, "p", "refs/heads/main"); waited <- err }()
		close(up)
		<-busy.listened
		cancel()
		if err := <-waited; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		closeDB(t, db)
	})
}

func TestADriverWithoutRolesAnswersAsIfItHadNothingToTell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := openDB(t, downFor(10*time.Second, &clock{}), refdb.Options{})
		defer closeDB(t, db)
		time.Sleep(20 * time.Second)
		if found, err := db.Operator().Diagnose(t.Context()); len(found) != 0 || err != nil {
			t.Errorf("diagnoses %v, %v", found, err)
		}
		if _, err := db.Packs().Usage(t.Context(), "p"); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("packs: %v", err)
		}
		if err := db.Operator().CheckRights(t.Context(), "prune"); err != nil {
			t.Errorf("rights: %v", err)
		}
	})
}

func TestOnceItIsUpEveryRequestIsForwarded(t *testing.T) {
	synctest.Test(t, everyRequestIsForwarded)
}

func everyRequestIsForwarded(t *testing.T) {
	ctx := t.Context()
	const ref, old, new = "refs/heads/main", "old", "new"
	db := openDB(t, func(context.Context) (refdb.Driver, error) { return memory.New().Open(), nil }, refdb.Options{Site: "eu-1"})
	defer closeDB(t, db)
	must := func(err error) {
		if t.Helper(); err != nil {
			t.Fatal(err)
		}
	}
	is := func(what string, got, want any) {
		if t.Helper(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	must(db.Update(ctx, "p", []refdb.Update{{Ref: ref, New: old}}))
	lock, err := db.TryLock(ctx, "p", ref)
	must(err)
	states, err := db.Intents().States(ctx, "p", []string{ref})
	must(err)
	is("lock of the state", states[0].Lock.ID(), driver.LockID{Project: "p", Ref: ref, Owner: db.Owner(), Token: lock.Token()})
	must(lock.Release(ctx))
	p, err := db.Intents().Prepare(ctx, "p", []refdb.Update{{Ref: ref, Old: old, New: new}}, "agent")
	must(err)
	must(db.Intents().Finish(ctx, p, []string{ref}, nil))
	v, err := db.Get(ctx, "p", ref)
	must(err)
	is("value", v, refdb.Value(new))
	n, err := db.Projects().Remove(ctx, "p")
	must(err)
	is("removed", n, 1)
}
