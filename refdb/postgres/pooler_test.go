package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// pooled is a database whose drivers go through PgBouncer, in transaction mode.
type pooled struct {
	*dbtest.Database
	url string
}

func newPooled(tb testing.TB) pooled {
	tb.Helper()
	db := dbtest.Postgres(tb)
	return pooled{db, dbtest.PgBouncer(tb, db.URL())}
}

func (p pooled) URL() string                      { return p.url }
func (p pooled) Open(tb testing.TB) driver.Driver { return open(tb, p.url) }
func (p pooled) Rounds() int                      { return 5 }

func TestConformanceThroughPgBouncer(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: the suite through PgBouncer; make test-all runs it")
	}
	refdbtest.Run(t, func(tb testing.TB) refdbtest.Database { return newPooled(tb) })
}

func TestThroughPgBouncerNotificationsAreUnsupported(t *testing.T) {
	t.Parallel()
	d := open(t, newPooled(t).url)
	err := d.Listen(t.Context(), "channel", func() { t.Error("started") }, nil)
	if !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
}

// PgBouncer 1.18 crashes when a client closes its connection while PgBouncer forwards a cancel
// request, as pgx's own handler of ended contexts does.
func TestPgBouncerSurvivesRequestsThatAreCancelled(t *testing.T) {
	t.Parallel()
	db := newPooled(t)
	d := open(t, db.url)
	acquire(t, d, mainRef)
	b := block(t, db.Database, mainRef)
	var work sync.WaitGroup
	for range 4 {
		work.Go(func() {
			for n := range 4 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(n)*time.Millisecond)
				if _, err := d.Acquire(ctx, request(mainRef, otherRef)); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	work.Wait()
	b.end()
	if _, err := open(t, db.url).Now(t.Context()); err != nil {
		t.Error(err)
	}
}

// Many clients share few connections to the server, and find the same statements there.
func TestManyDriversShareFewServerConnections(t *testing.T) {
	t.Parallel()
	db := newPooled(t)
	var work sync.WaitGroup
	for n := range 4 {
		d := open(t, db.url)
		for lane := range 4 {
			work.Go(func() {
				ref := fmt.Sprintf("refs/heads/%d-%d", n, lane)
				for range 25 {
					a, err := d.Acquire(t.Context(), request(ref))
					if err != nil {
						t.Error(err)
						return
					}
					r := driver.UpdateRequest{Project: project, Origin: driver.Origin{ID: "id"}, Updates: moves(value(a), v2, ref), Fence: releasing(a.Token, ref)}
					if err := try(t.Context(), d, r); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	work.Wait()
}

// The driver uses the mode that the URL requires.
func TestEveryModeOfExecutionWorks(t *testing.T) {
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Postgres(t)
			d := open(t, with(t, db.URL(), "default_query_exec_mode", mode))
			for _, refs := range [][]string{{mainRef}, {mainRef, otherRef}} {
				a := acquire(t, d, refs...)
				if results, err := d.Beat(t.Context(), ids(a.Token, refs...)); err != nil || results[0] != driver.BeatRenewed {
					t.Fatal(results, err)
				}
				r := update(refs...)
				r.Adopt, r.Fence = true, releasing(a.Token, refs...)
				if err := try(t.Context(), d, r); err != nil {
					t.Fatal(err)
				}
				a = acquire(t, d, refs...)
				w := request(refs...)
				w.Waiter = driver.Waiter{ID: "1", Channel: "channel", Turn: time.Minute}
				if _, err := d.Acquire(t.Context(), w); !errors.Is(err, driver.ErrLocked) {
					t.Fatal(err)
				}
				release(t, d, a, refs...)
				if a, err := d.Acquire(t.Context(), w); err != nil {
					t.Fatal(err)
				} else {
					release(t, d, a, refs...)
				}
				for _, end := range []func(token driver.Token) driver.FinishRequest{
					func(token driver.Token) driver.FinishRequest { return done(token, v1, v2, refs...) },
					func(token driver.Token) driver.FinishRequest { return dropped(token, refs...) },
				} {
					p := intention(v1, v2, refs...)
					got, err := d.Prepare(t.Context(), p)
					if err != nil {
						t.Fatal(err)
					}
					if err := d.Finish(t.Context(), end(got.Token)); err != nil {
						t.Fatal(err)
					}
					if err := try(t.Context(), d, driver.UpdateRequest{Project: project, Origin: driver.Origin{ID: "id"}, Adopt: true, Updates: moves(v2, v1, refs...)}); err != nil && !errors.Is(err, driver.ErrMismatch) {
						t.Fatal(err)
					}
				}
				if err := d.Revoke(t.Context(), intention(v1, v2, refs...)); err != nil {
					t.Fatal(err)
				}
				if _, err := d.PurgeTombstones(t.Context(), driver.TombstoneRequest{Project: project, Limit: 10}); err != nil {
					t.Fatal(err)
				}
				if n, err := d.Remove(t.Context(), driver.RemoveRequest{Project: project, Limit: 10}); err != nil || n != len(refs) {
					t.Fatal(n, err)
				}
				if _, err := d.Locks(t.Context(), driver.LockQuery{LockFilter: driver.LockFilter{Owner: "x", Prefix: "refs/", Stale: true, OlderThan: 1}, Limit: 1}); err != nil {
					t.Fatal(err)
				}
				if _, err := d.List(t.Context(), driver.RefQuery{Project: project, Prefix: "refs/", Limit: 1}); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
