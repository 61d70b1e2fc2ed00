package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
)

func TestASubjectHasItsShareOfTheTurnsAndDelaysNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTurns(16)
		begin := func(subject string, acquisition bool) func() {
			t.Helper()
			end, err := q.begin(t.Context(), subject, acquisition)
			if err != nil {
				t.Error(err)
				return func() {}
			}
			return end
		}
		for range 1000 {
			go q.begin(t.Context(), "greedy", false)
		}
		synctest.Wait()
		if q.used.all != 4 {
			t.Errorf("a subject has %d turns", q.used.all)
		}
		began := time.Now()
		for i := range 8 { // acquisitions that don't end
			begin(fmt.Sprint("subject-", i/3), true)
		}
		if time.Since(began) > 0 {
			t.Error("others wait for a subject without turns")
		}
		if _, err := q.begin(t.Context(), "late", true); !errors.Is(err, refdb.ErrUnavailable) {
			t.Errorf("with half of the turns taken by acquisitions: %v", err)
		}
		synctest.Wait()
		if len(q.waiting) > 0 {
			t.Errorf("%d wait for longer than the limit", len(q.waiting))
		}
		var ends []func()
		for range 4 {
			ends = append(ends, begin("reader", false))
		}
		if q.used.all != 16 {
			t.Fatalf("%d turns are taken", q.used.all)
		}
		// A turn that ends is that of the longest waiter whose subject has one left.
		var order []string
		for _, subject := range []string{"greedy", "first", "second"} {
			go func() {
				if _, err := q.begin(t.Context(), subject, false); err == nil {
					order = append(order, subject)
				}
			}()
			synctest.Wait()
		}
		ends[0]()
		ends[0]() // again, without effect
		synctest.Wait()
		ends[1]()
		synctest.Wait()
		if fmt.Sprint(order) != "[first second]" || q.used.all != 16 {
			t.Errorf("%q, %d turns are taken", order, q.used.all)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := q.begin(ctx, "new", false); !errors.Is(err, errNotBegun) {
			t.Errorf("after the end of the call: %v", err)
		}
		time.Sleep(time.Minute)
	})
}

func TestATurnOfACallThatHasEndedIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTurns(4)
		end, err := q.begin(t.Context(), "ci", true)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := q.begin(ctx, "ci", true)
			failed <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-failed; !errors.Is(err, errNotBegun) {
			t.Error(err)
		}
		end()
		if q.used.all != 0 || len(q.bySubject) != 0 || len(q.waiting) != 0 {
			t.Errorf("%+v", q)
		}
	})
}

// A pooled driver has a pool of connections, once it is open.
type pooled struct {
	refdb.Driver
	max atomic.Int64
}

func (d *pooled) Stats() (s driver.DriverStats) {
	if n := int(d.max.Load()); n > 0 {
		s.Pools = []driver.Pool{{Name: "requests", Max: n}, {Name: "beats", Max: 1}}
	}
	return s
}

func TestThereAreAsManyTurnsAsThePoolHasConnections(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		configured, pool, want int
		warned                 bool
	}{{0, 0, defaultTurns, false}, {0, 40, 40, false}, {0, 4, 4, false}, {0, 2, 2, true}, {8, 40, 8, false}} {
		d := &pooled{Driver: memory.New().Open()}
		db, err := refdb.New(d, refdb.Options{Site: "server"})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		var log strings.Builder
		s := New(db, slog.New(slog.NewTextHandler(&log, nil)), row.configured)
		s.fitTurns() // the pool is not known yet
		d.max.Store(int64(row.pool))
		s.fitTurns()
		s.fitTurns()
		if got := s.turns.all.total; got != row.want {
			t.Errorf("%+v: %d turns", row, got)
		}
		if n := strings.Count(log.String(), "level=WARN"); n > 1 || (n == 1) != row.warned {
			t.Errorf("%+v: %s", row, log.String())
		}
	}
}

func TestAcquisitionsLeaveTurnsToOtherCalls(t *testing.T) {
	t.Parallel()
	for n := 2; n <= 100; n++ {
		q := newTurns(n)
		if a := q.acquisitions; a.subject < 1 || a.subject >= q.all.subject || a.total < 1 || a.total >= q.all.total {
			t.Errorf("of %d turns: %+v, acquisitions %+v", n, q.all, a)
		}
	}
}

func TestAcquisitionsOfASubjectComeAfterItsOtherCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newTurns(4)
		var ends []func()
		for _, subject := range []string{"a", "a", "b", "b"} { // all turns
			end, err := q.begin(t.Context(), subject, false)
			if err != nil {
				t.Fatal(err)
			}
			ends = append(ends, end)
		}
		order := make(chan string, 10)
		for _, row := range []struct {
			name, subject string
			acquisition   bool
		}{
			{"lock 1", "c", true}, {"d 1", "d", false}, {"lock 2", "c", true},
			{"d 2", "d", false}, {"extend 1", "c", false}, {"extend 2", "c", false},
		} {
			go func() {
				if end, err := q.begin(t.Context(), row.subject, row.acquisition); err == nil {
					order <- row.name
					time.Sleep(time.Second)
					end()
				}
			}()
			synctest.Wait()
		}
		ends[0]()
		var names []string
		for range 6 {
			names = append(names, <-order)
		}
		time.Sleep(time.Second)
		if got, want := strings.Join(names, ", "), "extend 1, d 1, extend 2, d 2, lock 1, lock 2"; got != want {
			t.Errorf("%s, not %s", got, want)
		}
	})
}
