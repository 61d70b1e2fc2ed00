package spanner_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	databaseadmin "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// drop drops the database, and with it the sessions of all its clients.
func drop(tb testing.TB, db *dbtest.Database) {
	tb.Helper()
	administer(tb, func(a *databaseadmin.DatabaseAdminClient) error {
		return a.DropDatabase(tb.Context(), &databasepb.DropDatabaseRequest{Database: strings.TrimPrefix(db.URL(), "spanner://")})
	})
}

// create creates the database again, under its previous name.
func create(tb testing.TB, db *dbtest.Database) {
	tb.Helper()
	instance, id, _ := strings.Cut(strings.TrimPrefix(db.URL(), "spanner://"), "/databases/")
	administer(tb, func(a *databaseadmin.DatabaseAdminClient) error {
		op, err := a.CreateDatabase(tb.Context(), &databasepb.CreateDatabaseRequest{
			Parent: instance, CreateStatement: "CREATE DATABASE `" + id + "`",
		})
		if err == nil {
			_, err = op.Wait(tb.Context())
		}
		return err
	})
	migrate(tb, db.URL())
}

func administer(tb testing.TB, f func(*databaseadmin.DatabaseAdminClient) error) {
	tb.Helper()
	a, err := databaseadmin.NewDatabaseAdminClient(tb.Context())
	must(tb, err)
	defer a.Close()
	must(tb, f(a))
}

// count returns how often an RPC occurs in calls.
func count(calls []string, name string) int {
	n := 0
	for _, call := range calls {
		if call == name {
			n++
		}
	}
	return n
}

// sessionNotFound returns Spanner's error for an unknown session.
func sessionNotFound(tb testing.TB) error {
	tb.Helper()
	s, err := status.New(codes.NotFound, "injected: Session not found").WithDetails(
		&errdetails.ResourceInfo{ResourceType: "type.googleapis.com/google.spanner.v1.Session"})
	must(tb, err)
	return s.Err()
}

func TestADatabaseThatWasDroppedAndCreatedAgain(t *testing.T) {
	t.Parallel()
	methods := map[string]func(context.Context, driver.Driver) error{
		"now": func(ctx context.Context, d driver.Driver) error { _, err := d.Now(ctx); return err },
		"get": func(ctx context.Context, d driver.Driver) error {
			_, err := d.Get(ctx, project, []string{branch})
			return err
		},
		"list": func(ctx context.Context, d driver.Driver) error {
			_, err := d.List(ctx, driver.RefQuery{Project: project, Limit: 1})
			return err
		},
		"diagnose": func(ctx context.Context, d driver.Driver) error {
			_, err := d.(driver.Diagnoser).Diagnose(ctx)
			return err
		},
		"acquire": func(ctx context.Context, d driver.Driver) error {
			_, err := d.Acquire(ctx, request("n", branch))
			return err
		},
		"update": func(ctx context.Context, d driver.Driver) error {
			return d.Update(ctx, driver.UpdateRequest{Project: project, Origin: driver.Origin{ID: "u"}, Updates: []driver.Update{move(branch, "", v1)}})
		},
		"remove": func(ctx context.Context, d driver.Driver) error {
			_, err := d.Remove(ctx, driver.RemoveRequest{Project: project, Limit: 1})
			return err
		},
	}
	for name, method := range methods {
		t.Run(name+" works on the new database", func(t *testing.T) {
			t.Parallel()
			db := dbtest.Spanner(t)
			d := db.Open(t)
			drop(t, db)
			create(t, db)
			must(t, method(t.Context(), d))
		})
	}
	t.Run("calls that detect it at the same time share one new session", func(t *testing.T) {
		t.Parallel()
		db := dbtest.Spanner(t)
		w := &wire{}
		d := openWire(t, db, w)
		drop(t, db)
		create(t, db)
		const callers = 16
		var here sync.WaitGroup // calls whose first request is about to be sent
		here.Add(callers)
		var asked atomic.Int32
		w.set(func(w *wire) {
			w.calls = nil
			w.before = func(context.Context, string) error {
				if asked.Add(1) <= callers {
					here.Done()
					here.Wait()
				}
				return nil
			}
		})
		var all []func()
		for range callers {
			all = append(all, func() {
				if _, err := d.Now(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		race(all...)
		for i := range callers {
			acquire(t, d, "n", fmt.Sprintf("refs/heads/%d", i))
		}
		if n := count(w.take(), "CreateSession"); n != 1 {
			t.Errorf("%d sessions were created, want 1", n)
		}
	})
	t.Run("a call that is in flight when another call detects it succeeds", func(t *testing.T) {
		t.Parallel()
		db := dbtest.Spanner(t)
		w := &wire{}
		d := openWire(t, db, w)
		drop(t, db)
		create(t, db)
		sending, sent := context.WithCancel(t.Context())
		held, release := context.WithCancel(t.Context())
		defer release()
		var first atomic.Bool
		w.set(func(w *wire) {
			w.before = func(context.Context, string) error {
				if first.CompareAndSwap(false, true) {
					sent()
					<-held.Done()
				}
				return nil
			}
		})
		slow := make(chan error, 1)
		go func() {
			_, err := d.Now(t.Context())
			slow <- err
		}()
		<-sending.Done()
		acquire(t, d, "n", branch)
		release()
		if err := <-slow; err != nil {
			t.Error(err)
		}
	})
	t.Run("while the database is missing, the error says so and is permanent", func(t *testing.T) {
		t.Parallel()
		db := dbtest.Spanner(t)
		d := db.Open(t)
		drop(t, db)
		for name, method := range methods {
			err := method(t.Context(), d)
			if err == nil || errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "no such database: create it") {
				t.Errorf("%s: %v", name, err)
			}
		}
		create(t, db)
		acquire(t, d, "n", branch)
	})
}

func TestASessionThatIsLostAgainIsUnavailable(t *testing.T) {
	t.Parallel()
	w := &wire{}
	d := openWire(t, dbtest.Spanner(t), w)
	lost := sessionNotFound(t)
	w.set(func(w *wire) {
		w.before = func(context.Context, string) error { return lost }
		w.around = func(name string, send func() error) error {
			if name == "BeginTransaction" {
				return lost
			}
			return send()
		}
	})
	for name, method := range map[string]func() error{
		"StreamingRead":       func() error { _, err := d.Get(t.Context(), project, []string{branch}); return err },
		"ExecuteStreamingSql": func() error { _, err := d.Acquire(t.Context(), request("n", branch)); return err },
	} {
		w.take()
		err := method()
		if !errors.Is(err, driver.ErrUnavailable) || strings.Contains(err.Error(), "no such database") {
			t.Errorf("%s: %v", name, err)
		}
		calls := w.take()
		if count(calls, name) != 2 || count(calls, "CreateSession") != 1 {
			t.Errorf("the requests were %v, want %s twice, and one new session", calls, name)
		}
	}
	heal(w)
	acquire(t, d, "n", branch)
}

func TestASessionLostByACommitSentTwiceIsAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	db := dbtest.Spanner(t)
	w := &wire{}
	d := openWire(t, db, w)
	lost := sessionNotFound(t)
	var sent atomic.Int32
	w.set(func(w *wire) {
		w.around = func(name string, send func() error) error {
			if name != "Commit" {
				return send()
			}
			if sent.Add(1) > 1 {
				return lost
			}
			if err := send(); err != nil {
				return err
			}
			return status.Error(codes.Unavailable, "injected: the reply is lost")
		}
	})
	_, err := d.Acquire(t.Context(), request("n", branch))
	if !errors.Is(err, driver.ErrOutcomeUnknown) || errors.Is(err, driver.ErrUnavailable) {
		t.Error(err)
	}
	if _, ok := db.RowLock(t, project, branch); !ok {
		t.Error("the acquisition did not take effect")
	}
}
