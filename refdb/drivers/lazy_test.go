package drivers_test

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
	"github.com/globalrefdb/globalrefdb/refdb/drivers"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
)

var quiet = slog.New(slog.DiscardHandler)

// fake is a driver whose clock stands at epoch.
type fake struct {
	refdb.Driver
	closed atomic.Int32
}

var epoch = time.Unix(0, 0)

func (f *fake) Now(context.Context) (time.Time, error) { return epoch, nil }
func (f *fake) Close() error                           { f.closed.Add(1); return nil }

// notifier is a fake that can wake waiters, and check its settings.
type notifier struct{ *fake }

var errListened = errors.New("listened")

func (n *notifier) Listen(_ context.Context, channel string, started func(), wake func(refdb.Wakeup)) error {
	started()
	wake(refdb.Wakeup{Project: channel})
	return errListened
}

func (n *notifier) Diagnose(context.Context) ([]refdb.Diagnosis, error) {
	return []refdb.Diagnosis{{Name: "setting"}}, nil
}

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

func TestADatabaseThatIsUpServesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, f := time.Now(), &fake{}
		d := drivers.OpenLazy(downFor(0, f), quiet)
		if now, err := d.Now(t.Context()); now != epoch || err != nil {
			t.Errorf("%s, %v", now, err)
		}
		must(t, d.Close())
		must(t, d.Close())
		if f.closed.Load() == 0 || time.Since(start) != 0 {
			t.Errorf("closed %d times after %s", f.closed.Load(), time.Since(start))
		}
	})
}

func TestUntilTheDatabaseIsUpEveryRequestSaysWhyItIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := drivers.OpenLazy(downFor(time.Minute, &fake{}), quiet)
		defer d.Close()
		time.Sleep(30 * time.Second)
		for method := range reflect.TypeFor[refdb.Driver]().NumMethod() {
			m := reflect.TypeFor[refdb.Driver]().Method(method)
			if m.Name == "Close" {
				continue
			}
			args := []reflect.Value{reflect.ValueOf(t.Context())}
			for i := 1; i < m.Type.NumIn(); i++ {
				args = append(args, reflect.Zero(m.Type.In(i)))
			}
			results := reflect.ValueOf(d).MethodByName(m.Name).Call(args)
			err, _ := results[len(results)-1].Interface().(error)
			if !errors.Is(err, refdb.ErrUnavailable) || !strings.Contains(err.Error(), "down for 2") {
				t.Errorf("%s: %v", m.Name, err)
			}
		}
		if _, err := d.(refdb.Diagnoser).Diagnose(t.Context()); !errors.Is(err, refdb.ErrUnavailable) {
			t.Errorf("Diagnose: %v", err)
		}

		time.Sleep(40 * time.Second) // a minute, and the longest pause
		if now, err := d.Now(t.Context()); now != epoch || err != nil {
			t.Errorf("%s, %v", now, err)
		}
	})
}

func TestOnceItIsUpEveryRequestIsForwarded(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	const ref, old, new = "refs/heads/main", "old", "new"
	lazy := drivers.OpenLazy(func(context.Context) (refdb.Driver, error) { return memory.New().Open(), nil }, quiet)
	db, err := refdb.New(lazy, refdb.Options{Site: "eu-1"})
	must(t, err)
	defer db.Close()
	is := func(what string, got, want any) {
		if t.Helper(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	holds := func(want refdb.Value) {
		t.Helper()
		for r, err := range db.Refs(ctx, "p", "") {
			must(t, err)
			is("listed", r.Value, want)
		}
		v, err := db.Get(ctx, "p", ref)
		must(t, err)
		is("value", v, want)
	}

	must(t, db.Update(ctx, "p", []refdb.Update{{Ref: ref, New: old}}))
	holds(old)
	lock, err := db.TryLock(ctx, "p", ref)
	must(t, err)
	states, err := db.States(ctx, "p", []string{ref})
	must(t, err)
	is("lock of the state", states[0].Lock.ID(), refdb.LockID{Project: "p", Ref: ref, Owner: db.Owner(), Token: lock.Token()})
	beats, err := lazy.Beat(ctx, []refdb.LockID{states[0].Lock.ID()})
	must(t, err)
	is("beats", beats, []refdb.BeatResult{refdb.BeatRenewed})
	must(t, lock.Release(ctx))
	must(t, lazy.Abandon(ctx, refdb.AbandonRequest{Project: "p", Refs: []string{ref}, Owner: "o", Nonce: "n"}))

	move := []refdb.Update{{Ref: ref, Old: old, New: new}}
	p, err := db.Prepare(ctx, "p", move, "agent")
	must(t, err)
	must(t, db.Finish(ctx, p, []string{ref}, nil))
	holds(new)
	back := []refdb.Update{{Ref: ref, Old: new, New: old}}
	_, err = db.Prepare(ctx, "p", back, "agent")
	must(t, err)
	for i, err := range db.Intents(ctx, refdb.IntentFilter{}) {
		must(t, err)
		resolved, err := db.Resolve(ctx, []refdb.Intent{i}, refdb.TakeNew, "me", "a test")
		must(t, err)
		is("resolved", len(resolved), 1)
		must(t, db.Forget(ctx, resolved))
	}
	holds(old)
	p, err = db.Prepare(ctx, "p", move, "agent")
	must(t, err)
	must(t, db.Revoke(ctx, p))

	_, err = db.TryLock(ctx, "p", ref)
	must(t, err)
	for l, err := range db.Locks(ctx, refdb.LockFilter{}) {
		must(t, err)
		purged, err := db.Purge(ctx, []refdb.LockInfo{l}, refdb.PurgeFresh())
		must(t, err)
		is("purged", len(purged), 1)
	}
	must(t, db.Update(ctx, "p", []refdb.Update{{Ref: ref, Old: old, New: refdb.Deleted}}))
	n, err := db.PurgeTombstones(ctx, "p", 0)
	must(t, err)
	is("tombstones", n, 1)
	must(t, db.Update(ctx, "p", []refdb.Update{{Ref: ref, New: old}}))
	n, err = db.RemoveProject(ctx, "p")
	must(t, err)
	is("removed", n, 1)
}

func TestFailedAttemptsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		d := drivers.OpenLazy(downFor(2*time.Second, &fake{}), slog.New(slog.NewTextHandler(&out, nil)))
		time.Sleep(10 * time.Second)
		must(t, d.Close())
		if lines := strings.Count(out.String(), "trying again"); lines < 3 || !strings.Contains(out.String(), `error="down for 1s"`) {
			t.Errorf("%s", out.String())
		}
	})
}

func TestAnAttemptThatHangsDelaysNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var ended error
		d := drivers.OpenLazy(func(ctx context.Context) (refdb.Driver, error) {
			<-ctx.Done()
			ended = ctx.Err()
			return nil, ended
		}, quiet)
		if took := time.Since(start); took != time.Second {
			t.Errorf("opening took %s", took)
		}
		if _, err := d.Now(t.Context()); !errors.Is(err, refdb.ErrUnavailable) {
			t.Error(err)
		}
		must(t, d.Close())
		if ended == nil {
			t.Error("Close did not end the attempt")
		}
		if _, err := d.Now(t.Context()); !errors.Is(err, refdb.ErrUnavailable) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// wrapper is a driver that says which one it wraps, and nothing else.
type wrapper struct{ refdb.Driver }

func (w wrapper) Unwrap() refdb.Driver { return w.Driver }

func TestListenWaitsForTheDatabase(t *testing.T) {
	listen := func(ctx context.Context, d refdb.Driver) (started bool, woken string, err error) {
		err = d.(refdb.Notifier).Listen(ctx, "channel", func() { started = true }, func(w refdb.Wakeup) { woken = w.Project })
		return started, woken, err
	}
	for name, n := range map[string]refdb.Driver{"and is forwarded": &notifier{&fake{}}, "and to one that is wrapped": wrapper{&notifier{&fake{}}}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := drivers.OpenLazy(downFor(10*time.Second, n), quiet)
				defer d.Close()
				if started, woken, err := listen(t.Context(), d); !started || woken != "channel" || err != errListened {
					t.Errorf("started %t, woken %q, %v", started, woken, err)
				}
				if found, err := d.(refdb.Diagnoser).Diagnose(t.Context()); len(found) != 1 || err != nil {
					t.Errorf("diagnoses %v, %v", found, err)
				}
			})
		})
	}
	t.Run("and says if there are no notifications", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			d := drivers.OpenLazy(downFor(10*time.Second, &fake{}), quiet)
			defer d.Close()
			if _, _, err := listen(t.Context(), d); !errors.Is(err, errors.ErrUnsupported) {
				t.Error(err)
			}
			if found, err := d.(refdb.Diagnoser).Diagnose(t.Context()); len(found) != 0 || err != nil {
				t.Errorf("diagnoses %v, %v", found, err)
			}
		})
	})
	t.Run("until its context ends", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			d := drivers.OpenLazy(downFor(time.Hour, &fake{}), quiet)
			defer d.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			if _, _, err := listen(ctx, d); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
	})
	t.Run("or the driver is closed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			d := drivers.OpenLazy(downFor(time.Hour, &fake{}), quiet)
			time.AfterFunc(5*time.Second, func() { d.Close() })
			if _, _, err := listen(t.Context(), d); !errors.Is(err, refdb.ErrUnavailable) {
				t.Error(err)
			}
		})
	})
}

// meter is a fake that has stats.
type meter struct{ *fake }

func (meter) Stats() refdb.DriverStats {
	return refdb.DriverStats{Pools: []refdb.Pool{{Name: "requests"}}}
}

func TestStatsBeforeAndAfterTheDatabaseIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := drivers.OpenLazy(downFor(10*time.Second, meter{&fake{}}), quiet)
		defer d.Close()
		stats := d.(refdb.Meter).Stats
		if s := stats(); len(s.Pools) > 0 {
			t.Errorf("while it is down: %+v", s)
		}
		time.Sleep(20 * time.Second)
		if s := stats(); len(s.Pools) != 1 {
			t.Errorf("once it is up: %+v", s)
		}
	})
}
