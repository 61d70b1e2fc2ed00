package metrics_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/metrics"
	"github.com/globalrefdb/globalrefdb/refdb/operator"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// text returns the response to a scrape of c.
func text(tb testing.TB, c prometheus.Collector) string {
	tb.Helper()
	r := prometheus.NewPedanticRegistry()
	if err := r.Register(c); err != nil {
		tb.Fatal(err)
	}
	w := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != http.StatusOK {
		tb.Fatalf("%d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func has(tb testing.TB, text string, lines ...string) {
	tb.Helper()
	for _, line := range lines {
		if !strings.Contains("\n"+text, "\n"+line) {
			tb.Errorf("no %q in\n%s", line, text)
		}
	}
}

// patience is how long to wait for what must happen: only what never happens takes longer.
const patience = 5 * time.Minute

// await waits until a scrape of c contains what.
func await(tb testing.TB, c prometheus.Collector, what string) {
	tb.Helper()
	for deadline := time.Now().Add(patience); !strings.Contains(text(tb, c), what); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("no %s in\n%s", what, text(tb, c))
		}
	}
}

func open(tb testing.TB, database *local.Database) (*refdb.DB, *metrics.Collector) {
	tb.Helper()
	m := metrics.New()
	db, err := refdb.New(database.Open(tb), refdb.Options{
		Site: "secret-site", Observe: m.Observe, Heartbeat: 20 * time.Millisecond, StaleAfter: time.Hour,
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { db.Close() })
	m.Watch(db)
	return db, m
}

func TestMain(m *testing.M) { local.Main(m) }

func TestOperationsAreExported(t *testing.T) {
	for name, open := range map[string]func(testing.TB) (*refdb.DB, *metrics.Collector){
		"PostgreSQL": func(tb testing.TB) (*refdb.DB, *metrics.Collector) { return open(tb, local.Postgres(tb)) },
		"SQLite":     func(tb testing.TB) (*refdb.DB, *metrics.Collector) { return open(tb, local.SQLite(tb)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, m := open(t)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			has(t, text(t, m), "refdb_locks_held 0", "refdb_locks_lost_total 0", `refdb_operations_total{op="update",outcome="mismatch"} 0`)
			if strings.Contains(text(t, m), "refdb_lease_left_seconds ") {
				t.Error("without a lock there is a lease")
			}
			const project, ref = "secret/project", "refs/heads/secret"
			ok, err := db.CompareAndPut(ctx, project, ref, refdb.Unknown, "secret-value")
			if err != nil || !ok {
				t.Fatal(ok, err)
			}
			if ok, err = db.CompareAndPut(ctx, project, ref, "another", "secret-2"); err != nil || ok {
				t.Fatal(ok, err)
			}
			held, err := db.TryLock(ctx, project, ref)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := db.TryLock(ctx, project, ref); !errors.Is(err, refdb.ErrLocked) {
				t.Fatal(err)
			}
			second := make(chan *refdb.Lock, 1)
			go func() {
				l, err := db.Lock(ctx, project, ref)
				if err != nil {
					t.Error(err)
				}
				second <- l
			}()
			await(t, m, "refdb_lock_waiters 1")
			await(t, m, `refdb_operation_duration_seconds_count{op="beat",outcome="ok"}`)
			has(t, text(t, m), "refdb_locks_held 1", "refdb_lock_waiters 1", "refdb_lease_left_seconds ")
			if err := held.Release(ctx); err != nil {
				t.Fatal(err)
			}
			l := <-second
			if l == nil {
				t.FailNow()
			}
			if err := l.UpdateAndRelease(ctx, []refdb.Update{{Ref: ref, Old: "secret-value", New: "secret-2"}}); err != nil {
				t.Fatal(err)
			}
			lost, err := db.TryLock(ctx, project, ref)
			if err != nil {
				t.Fatal(err)
			}
			for info, err := range db.Locks(ctx, refdb.LockFilter{Project: project}) {
				if err == nil {
					_, err = db.Operator().Purge(ctx, []refdb.LockInfo{info}, operator.PurgeFresh())
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			<-lost.Done()
			await(t, m, "refdb_locks_lost_total 1")
			got := text(t, m)
			has(t, got,
				`refdb_operations_total{op="update",outcome="ok"} 2`,
				`refdb_operations_total{op="update",outcome="mismatch"} 1`,
				`refdb_operations_total{op="trylock",outcome="ok"} 2`,
				`refdb_operations_total{op="trylock",outcome="locked"} 1`,
				`refdb_operations_total{op="lock",outcome="ok"} 1`,
				`refdb_operation_duration_seconds_count{op="lock",outcome="ok"} 1`,
				`refdb_operation_refs_total{op="update"} 3`,
				"refdb_lock_wait_seconds_count 1",
				"refdb_lock_handover_seconds_count 1",
				`refdb_lock_held_seconds_count{end="release"} 1`,
				`refdb_lock_held_seconds_count{end="update"} 1`,
				`refdb_lock_held_seconds_count{end="lost"} 1`,
				"refdb_lock_attempts_total ",
				"refdb_beat_lateness_seconds_count ",
				"refdb_locks_held 0", "refdb_lock_waiters 0",
				`refdb_batch_requests_bucket{le="1"} `,
				"refdb_batch_requests_sum ",
			)
			if name == "PostgreSQL" {
				has(t, got,
					`refdb_pool_connections{pool="requests",state="in_use"} 0`,
					`refdb_pool_max_connections{pool="requests"} `,
					`refdb_pool_acquires_total{pool="beats"} `,
					`refdb_pool_waits_total{pool="requests"} `,
					`refdb_pool_wait_seconds_total{pool="requests"} `,
				)
			}
			if strings.Contains(got, "secret") { // P9
				t.Errorf("a name is in it:\n%s", got)
			}
		})
	}
}

func TestARetriedReleaseIsOneLockHeld(t *testing.T) {
	t.Parallel()
	m := metrics.New()
	for _, outcome := range []string{"unavailable", "unavailable", "ok"} {
		m.Observe(refdb.Event{Op: driver.OpRelease, Outcome: outcome, Held: time.Second})
	}
	has(t, text(t, m), `refdb_lock_held_seconds_count{end="release"} 1`, `refdb_operations_total{op="release",outcome="unavailable"} 2`)
}

// A git hook runs for each ref of each push, and a user of the library may have other metrics, or
// none.
func TestOnlyUsersOfMetricsLinkPrometheus(t *testing.T) {
	t.Parallel()
	for _, pkg := range []string{"cmd/refdb-hook", "refdb", "refdb/drivers", "refdb/memory"} {
		out, err := exec.Command("go", "list", "-deps", "github.com/globalrefdb/globalrefdb/"+pkg).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "globalrefdb/globalrefdb/") {
			t.Fatalf("%v: %s", err, out)
		}
		if strings.Contains(string(out), "github.com/prometheus/") {
			t.Errorf("%s links github.com/prometheus", pkg)
		}
	}
}
