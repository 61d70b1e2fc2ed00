package witness

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/journal"
	"github.com/globalrefdb/globalrefdb/site/presence"
	"github.com/globalrefdb/globalrefdb/site/serving"
)

// away is a database that is not there, or does not answer, for those that compare it.
type away struct {
	refdb.Driver
	is, silent atomic.Bool
	compared   atomic.Int64
}

func (a *away) fault(ctx context.Context) error {
	switch {
	case a.silent.Load():
		<-ctx.Done()
		return ctx.Err()
	case a.is.Load():
		return fmt.Errorf("%w: unplugged", refdb.ErrUnavailable)
	}
	return nil
}

func (a *away) Admission(ctx context.Context) (driver.Admission, error) {
	if err := a.fault(ctx); err != nil {
		return driver.Admission{}, err
	}
	return a.Driver.Admission(ctx)
}

func (a *away) Report(ctx context.Context, r driver.Report) (driver.Admission, error) {
	a.compared.Add(1)
	if err := a.fault(ctx); err != nil {
		return driver.Admission{}, err
	}
	return a.Driver.Report(ctx, r)
}

// A daemon to which nobody pushes asks for nothing else.
func TestAnOutageIsSeenAndItsEndWithoutAPush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		database := &away{Driver: memory.New().Open()}
		known := journal.New(dir)
		defer known.Close()
		db, err := refdb.New(database, refdb.Options{Site: "eu", Journal: known})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		log := slog.New(slog.DiscardHandler)
		c := &config.Config{Site: "eu", State: dir, Socket: filepath.Join(dir, "sock"), Timeout: time.Minute}
		state := serving.New(c, presence.New(db, log))
		if err := state.Presence.Acquire(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		defer state.Presence.End()
		w := &Witness{DB: db, Journal: known, State: state, Logger: log}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		ended := make(chan struct{})
		go func() {
			w.KeepComparing(ctx)
			close(ended)
		}()
		time.Sleep(5 * time.Second) // it has compared, and does so again in a minute
		if err := w.MayAct(ctx); err != nil || state.InOutage() || state.Health() != nil {
			t.Errorf("before: %v, %v", err, state.Health())
		}
		for fault, end := range map[*atomic.Bool]error{&database.is: refdb.ErrUnavailable, &database.silent: context.DeadlineExceeded} {
			fault.Store(true)
			if err := w.MayAct(ctx); !errors.Is(err, end) || !errors.Is(state.Health(), end) || !state.InOutage() {
				t.Errorf("the outage: %v, %v, in an outage: %t", err, state.Health(), state.InOutage())
			}
			fault.Store(false)
			time.Sleep(2 * compareAgain)
			if err := w.MayAct(ctx); err != nil || state.InOutage() || state.Health() != nil {
				t.Errorf("afterwards: %v, %v, in an outage: %t", err, state.Health(), state.InOutage())
			}
		}
		before := database.compared.Load()
		time.Sleep(10 * compareAgain)
		if n := database.compared.Load() - before; n > 1 {
			t.Errorf("it compared %d times in ten seconds without an outage", n)
		}
		// Who asks may give up: that says nothing about the database.
		gone, give := context.WithCancel(ctx)
		give()
		if err := w.MayAct(gone); err == nil || state.InOutage() {
			t.Errorf("who has given up was answered %v, in an outage: %t", err, state.InOutage())
		}
		cancel()
		<-ended
	})
}
