package spanner_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/spanner"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// loseReply executes the next Commit, and drops its reply.
func loseReply(w *wire, code codes.Code) {
	var once atomic.Bool
	w.set(func(w *wire) {
		w.around = func(name string, send func() error) error {
			err := send()
			if name == "Commit" && err == nil && once.CompareAndSwap(false, true) {
				return status.Error(code, "injected: the reply is lost")
			}
			return err
		}
	})
}

// refuse answers every Commit with code instead of sending it.
func refuse(w *wire, code codes.Code) {
	w.set(func(w *wire) {
		w.around = func(name string, send func() error) error {
			if name == "Commit" {
				return status.Error(code, "injected: refused")
			}
			return send()
		}
	})
}

func heal(w *wire) { w.set(func(w *wire) { w.around, w.before, w.sent = nil, nil, nil }) }

func locks(tb testing.TB, d driver.Driver) []driver.LockInfo {
	tb.Helper()
	var all []driver.LockInfo
	for _, markers := range []bool{false, true} {
		page, err := d.Locks(tb.Context(), driver.LockQuery{Markers: markers, Limit: 100})
		must(tb, err)
		all = append(all, page.Locks...)
	}
	return all
}

func get(tb testing.TB, d driver.Driver, ref string) driver.Ref {
	tb.Helper()
	rows, err := d.Get(tb.Context(), project, []string{ref})
	must(tb, err)
	if len(rows) == 0 {
		return driver.Ref{}
	}
	return rows[0]
}

func TestLostReply(t *testing.T) {
	t.Parallel()
	for _, code := range []codes.Code{codes.Internal, codes.DeadlineExceeded, codes.Canceled, codes.Unknown} {
		t.Run(code.String()+" is an unknown outcome", func(t *testing.T) {
			t.Parallel()
			db := dbtest.Spanner(t)
			w := &wire{}
			d := openWire(t, db, w)
			unknown := func(what string, err error) {
				t.Helper()
				if !errors.Is(err, driver.ErrOutcomeUnknown) || errors.Is(err, driver.ErrUnavailable) {
					t.Fatalf("%s: %v", what, err)
				}
			}

			loseReply(w, code)
			_, err := d.Acquire(t.Context(), request("n", "HEAD", branch))
			unknown("acquire", err)
			stands, ok := db.RowLock(t, project, branch)
			if !ok {
				t.Fatal("the acquisition did not take effect")
			}
			again := acquire(t, d, "n", "HEAD", branch)
			if again.Token != stands.Token {
				t.Errorf("the repeated request returned token %d, the row has %d", again.Token, stands.Token)
			}

			change := func() error { return fenced(t, d, "u1", again.Token, true) }
			loseReply(w, code)
			unknown("update", change())
			first := get(t, d, branch)
			if first.Value != v1 || first.Op != "u1" {
				t.Fatalf("the update did not take effect: %+v", first)
			}
			// Neither the fence nor the old value exists any more, but the update happened.
			must(t, change())
			if second := get(t, d, branch); second != first {
				t.Errorf("the update was carried out twice: %+v, then %+v", first, second)
			}

			loseReply(w, code)
			_, err = d.Beat(t.Context(), lockIDs(again.Token, "HEAD"))
			unknown("beat", err)

			loseReply(w, code)
			_, err = d.Release(t.Context(), releasing(again.Token, "HEAD"))
			unknown("release", err)
			if l := locks(t, d); len(l) != 0 {
				t.Errorf("locks remain: %+v", l)
			}

			loseReply(w, code)
			_, err = d.Remove(t.Context(), driver.RemoveRequest{Project: project, Limit: 10})
			unknown("remove", err)
		})
	}
	for _, code := range []codes.Code{codes.Unavailable, codes.ResourceExhausted} {
		t.Run(code.String()+" is resolved by repeating the commit", func(t *testing.T) {
			t.Parallel()
			db := dbtest.Spanner(t)
			w := &wire{}
			d := openWire(t, db, w)
			loseReply(w, code)
			w.take()
			a := acquire(t, d, "n", branch)
			wantCalls(t, "acquire", w.take(), "ExecuteStreamingSql", "Commit", "Commit")
			if l, ok := db.RowLock(t, project, branch); !ok || l.Token != a.Token {
				t.Errorf("the token is %d, the row %+v", a.Token, l)
			}
			loseReply(w, code)
			must(t, update(t, d, "u", move("HEAD", "", v1)))
			loseReply(w, code)
			release(t, d, a.Token, branch)
		})
	}
	t.Run("a refusal whose commit is lost is not an unknown outcome", func(t *testing.T) {
		t.Parallel()
		w := &wire{}
		d := openWire(t, dbtest.Spanner(t), w)
		acquire(t, d, "other", branch)
		loseReply(w, codes.Internal)
		_, err := d.Acquire(t.Context(), request("n", branch))
		if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrOutcomeUnknown) {
			t.Error(err)
		}
	})
	t.Run("a context that ends while the commit is in flight is an unknown outcome", func(t *testing.T) {
		t.Parallel()
		w := &wire{}
		d := openWire(t, dbtest.Spanner(t), w)
		ctx, cancel := context.WithCancel(t.Context())
		w.set(func(w *wire) {
			w.around = func(name string, send func() error) error {
				if name == "Commit" {
					cancel()
				}
				return send()
			}
		})
		_, err := d.Acquire(ctx, request("n", branch))
		if !errors.Is(err, driver.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	t.Run("a context that ends before the commit is not an unknown outcome", func(t *testing.T) {
		t.Parallel()
		w := &wire{}
		d := openWire(t, dbtest.Spanner(t), w)
		ctx, cancel := context.WithCancel(t.Context())
		w.set(func(w *wire) {
			w.sent = func(context.Context, string, any) error {
				cancel()
				return nil
			}
		})
		_, err := d.Acquire(ctx, request("n", branch))
		if errors.Is(err, driver.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		heal(w)
		acquire(t, d, "n2", branch)
	})
}

func TestRefusedCommit(t *testing.T) {
	t.Parallel()
	for code, row := range map[codes.Code]struct {
		is   error
		says string
	}{
		codes.InvalidArgument:    {nil, ""},
		codes.FailedPrecondition: {nil, ""},
		codes.OutOfRange:         {nil, ""},
		codes.AlreadyExists:      {driver.ErrUnavailable, "purg"},
		codes.PermissionDenied:   {nil, "roles/spanner.databaseUser"},
		codes.Unauthenticated:    {nil, "GOOGLE_APPLICATION_CREDENTIALS"},
	} {
		t.Run(code.String()+" means that nothing was done", func(t *testing.T) {
			t.Parallel()
			w := &wire{}
			d := openWire(t, dbtest.Spanner(t), w)
			refuse(w, code)
			_, err := d.Acquire(t.Context(), request("n", branch))
			if err == nil || errors.Is(err, driver.ErrOutcomeUnknown) || errors.Is(err, driver.ErrUnavailable) != (row.is != nil) ||
				!strings.Contains(err.Error(), row.says) {
				t.Errorf("acquire: %v", err)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("the error has several lines: %q", err)
			}
			heal(w)
			if l := locks(t, d); len(l) != 0 {
				t.Errorf("locks: %+v", l)
			}
		})
	}
	t.Run("ABORTED is retried, and earlier decisions are discarded", func(t *testing.T) {
		t.Parallel()
		db := dbtest.Spanner(t)
		w := &wire{}
		d, other := openWire(t, db, w), db.Open(t)
		var aborted atomic.Bool
		w.set(func(w *wire) {
			w.around = func(name string, send func() error) error {
				if name == "Commit" && aborted.CompareAndSwap(false, true) {
					return status.Error(codes.Aborted, "injected: aborted before it was carried out")
				}
				// The first attempt finds a free ref, the second finds this lock.
				if name == "BeginTransaction" {
					acquire(t, other, "other", branch)
				}
				return send()
			}
		})
		_, err := d.Acquire(t.Context(), request("n", "HEAD", branch))
		var locked *driver.LockedError
		if !errors.As(err, &locked) || len(locked.Holders) != 1 || locked.Holders[0].Ref != branch {
			t.Fatal(err)
		}
		if l := locks(t, d); len(l) != 1 {
			t.Errorf("locks: %+v", l)
		}
	})
}

func TestFailedQuery(t *testing.T) {
	t.Parallel()
	fail := func(w *wire, code codes.Code, times int64) {
		var n atomic.Int64
		w.set(func(w *wire) {
			w.before = func(context.Context, string) error {
				if n.Add(1) <= times {
					return status.Error(code, "injected: failed")
				}
				return nil
			}
		})
	}
	calls := func(d *spanner.Driver) map[string]func(context.Context) error {
		return map[string]func(context.Context) error{
			"acquire": func(ctx context.Context) error { _, err := d.Acquire(ctx, request("n", branch)); return err },
			"beat":    func(ctx context.Context) error { _, err := d.Beat(ctx, lockIDs(1, branch)); return err },
			"get":     func(ctx context.Context) error { _, err := d.Get(ctx, project, []string{branch}); return err },
			"locks":   func(ctx context.Context) error { _, err := d.Locks(ctx, driver.LockQuery{Limit: 1}); return err },
		}
	}
	for _, code := range []codes.Code{codes.Internal, codes.Unknown, codes.DeadlineExceeded, codes.ResourceExhausted} {
		t.Run(code.String()+" is unavailable, and changes nothing", func(t *testing.T) {
			t.Parallel()
			w := &wire{}
			d := openWire(t, dbtest.Spanner(t), w)
			for name, call := range calls(d) {
				fail(w, code, 1000)
				if err := call(t.Context()); !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrOutcomeUnknown) {
					t.Errorf("%s: %v", name, err)
				}
			}
			heal(w)
			if l := locks(t, d); len(l) != 0 {
				t.Errorf("locks: %+v", l)
			}
		})
	}
	t.Run("a request is repeated while a server is briefly unavailable", func(t *testing.T) {
		t.Parallel()
		w := &wire{}
		d := openWire(t, dbtest.Spanner(t), w)
		for name, call := range calls(d) {
			fail(w, codes.Unavailable, 2)
			if err := call(t.Context()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
	t.Run("a server that stays unreachable is unavailable before the request's time limit, whatever the context", func(t *testing.T) {
		t.Parallel()
		w := &wire{}
		d := openWireWithLimits(t, dbtest.Spanner(t), w)
		fail(w, codes.Unavailable, 1<<60)
		var all []func()
		for name, call := range calls(d) {
			all = append(all, func() {
				err := call(t.Context())
				if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrOutcomeUnknown) {
					t.Errorf("%s: %v", name, err)
				}
				// The request ended for that reason, and not by its own time limit. On a busy
				// machine, the time limit of a beat may expire first.
				if name != "beat" && (err == nil || !strings.Contains(err.Error(), "the server can't be reached")) {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		race(all...)
	})
	t.Run("a missing permission is named", func(t *testing.T) {
		t.Parallel()
		w := &wire{}
		d := openWire(t, dbtest.Spanner(t), w)
		fail(w, codes.PermissionDenied, 1000)
		for name, call := range calls(d) {
			err := call(t.Context())
			if err == nil || errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "roles/spanner.databaseUser") {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestADroppedSchema(t *testing.T) {
	t.Parallel()
	for statement, missing := range map[string]string{
		"ALTER TABLE locks DROP COLUMN nonce": "column locks.nonce",
		"DROP TABLE locks":                    "table locks",
	} {
		t.Run(statement+" is named, and the error's advice repairs it", func(t *testing.T) {
			t.Parallel()
			db := dbtest.Spanner(t)
			d := db.Open(t)
			db.Exec(t, statement)
			_, err := d.Acquire(t.Context(), request("n", branch))
			if !errors.Is(err, driver.ErrSchema) || !strings.Contains(err.Error(), missing) || !strings.Contains(err.Error(), "`refdbctl migrate force 0`, then `refdbctl migrate up`") {
				t.Errorf("acquire: %v", err)
			}
			m, err := spanner.Migrator(t.Context(), db.URL())
			must(t, err)
			defer m.Close()
			must(t, m.Force(t.Context(), 0))
			must(t, m.Up(t.Context()))
			acquire(t, d, "n", branch)
		})
	}
}
