package smarthttp

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

func TestTheServerIsReadyWhileReadsAreServed(t *testing.T) {
	t.Parallel()
	lost, refused := refdb.ErrLostChanges, errors.New("no privilege")
	for name, row := range map[string]struct {
		away, silent bool
		fails        error
		stale        time.Duration
		answered     time.Duration // how long ago the database last answered; 0: never
		says         string        // "" if it is ready
	}{
		"the database answers":                               {},
		"it does not answer":                                 {away: true, says: "does not answer"},
		"it does not answer, and stale reads are allowed":    {away: true, stale: time.Hour, answered: 30 * time.Minute},
		"it has not answered for longer than is allowed":     {away: true, stale: time.Hour, answered: 2 * time.Hour, says: "does not answer"},
		"it has not answered since the server began":         {away: true, stale: time.Hour, says: "does not answer"},
		"it does not answer, and no stale reads are allowed": {away: true, answered: time.Millisecond, says: "does not answer"},
		"it is silent": {silent: true, says: "does not answer"},
		"it is silent, and stale reads are allowed":         {silent: true, stale: time.Hour, answered: 30 * time.Minute},
		"it has lost changes":                               {fails: lost, says: "recover --status"},
		"it has lost changes, and stale reads are allowed":  {fails: lost, stale: time.Hour, says: "recover --status"},
		"it refuses requests":                               {fails: refused, says: "refdbctl doctor"},
		"it refuses requests, though stale reads are there": {fails: refused, stale: time.Hour, says: "refdbctl doctor"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.o.StaleReads = row.stale
			if row.answered > 0 {
				r.must(r.ready(t.Context()))
				r.readiness.at, r.readiness.answered = time.Time{}, r.readiness.answered.Add(-row.answered)
			}
			r.outage(row.away)
			if row.silent {
				r.config.Timeout = 10 * time.Millisecond
				r.driver.silent.Store(true)
			}
			if row.fails != nil {
				r.driver.fails.Store(&row.fails)
			}
			err := r.ready(t.Context())
			if err == nil != (row.says == "") || err != nil && !strings.Contains(err.Error(), row.says) {
				t.Errorf("it says %v", err)
			}
		})
	}
}

func TestManyProbesAskTheDatabaseOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for range 10 {
		r.must(r.ready(t.Context()))
	}
	if n := r.driver.admissions.Load(); n != 1 {
		t.Errorf("%d requests", n)
	}
	r.outage(true)
	r.must(r.ready(t.Context())) // it answered recently
	r.readiness.at = r.readiness.at.Add(-answerValid)
	if err := r.ready(t.Context()); err == nil {
		t.Error("it is ready although the database has not answered recently")
	}
	r.outage(false)
	r.readiness.at = r.readiness.at.Add(-answerValid)
	r.must(r.ready(t.Context()))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.ready(ended); err == nil || !strings.Contains(err.Error(), "stops") {
		t.Errorf("once it stops it says %v", err)
	}
}
