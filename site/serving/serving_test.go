package serving_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/journal"
	"github.com/globalrefdb/globalrefdb/site/presence"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/serving"
)

var c = &config.Config{Timeout: time.Minute}

func newState(t *testing.T) *serving.State {
	db, err := refdb.New(memory.New().Open(), refdb.Options{Site: "b"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return serving.New(c, presence.New(db, slog.New(slog.DiscardHandler)))
}

func TestPushesAreDecidedOnceTheDaemonServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newState(t)
		wait := func() (inheritance, serves refusal.Reason) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return reasonOf(s.AwaitInheritance(ctx)), reasonOf(s.AwaitServing(ctx))
		}
		if a, b := wait(); a != refusal.Starting || b != refusal.Starting {
			t.Errorf("before its start: %q, %q", a, b)
		}
		s.Start()
		if a, b := wait(); a != refusal.Starting || b != refusal.Starting {
			t.Errorf("before it knows what others left: %q, %q", a, b)
		}
		s.Inherit()
		if a, b := wait(); a != "" || b == "" || b == refusal.Starting {
			t.Errorf("without its site's name: %q, %q", a, b)
		}
		s.Stop()
		if a, b := wait(); a != "" || b != refusal.Stopping {
			t.Errorf("when it stops: %q, %q", a, b)
		}
		if got := reasonOf(s.AwaitDeciding(t.Context())); got == "" || got == refusal.Stopping {
			t.Errorf("when it stops, without its site's name: %q", got)
		}
		s.Finish()
		if got := reasonOf(s.AwaitDeciding(t.Context())); got != refusal.Stopping {
			t.Errorf("at its end: %q", got)
		}
	})
}

func reasonOf(err error) refusal.Reason {
	if err == nil {
		return ""
	}
	return refusal.ReasonOf(err)
}

func TestARequestIsRepeatedWhileThatMayHelp(t *testing.T) {
	for name, test := range map[string]struct {
		err       error
		from, til time.Duration // when it gives up
	}{
		"not if refs are locked":               {&refdb.LockedError{}, 0, 0},
		"while the server is not admitted":     {refdb.ErrNotAdmitted, c.Timeout, c.Timeout},
		"as long as a restart takes":           {refdb.ErrUnavailable, serving.DefaultOutage, serving.DefaultOutage + time.Second},
		"not if the reply may be lost":         {refdb.ErrOutcomeUnknown, 0, 0},
		"not if the database has other values": {&refdb.MismatchError{}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newState(t)
				start := time.Now()
				request := func(context.Context) error { return test.err }
				if err, took := s.Retry(t.Context(), c, request), time.Since(start); !errors.Is(err, test.err) || took < test.from || took > test.til {
					t.Errorf("after %s: %v", took, err)
				}
				attempts := 0
				again := func(context.Context) error {
					if attempts++; attempts == 1 {
						return test.err
					}
					return nil
				}
				s.EndOutage() // the next outage is another one
				want := test.err
				if test.from > 0 {
					want = nil
				}
				if err := s.Retry(t.Context(), c, again); !errors.Is(err, want) {
					t.Errorf("once it would succeed: %v", err)
				}
			})
		})
	}
}

func TestAfterALongOutageRequestsDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newState(t)
		s.RecordHealth(refdb.ErrUnavailable)
		time.Sleep(serving.DefaultOutage)
		start := time.Now()
		if err := s.Retry(t.Context(), c, func(context.Context) error { return refdb.ErrUnavailable }); !errors.Is(err, refdb.ErrUnavailable) || time.Since(start) > 0 {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
	})
}

// A server that is not admitted answers what only reads, for as long as a person needs.
func TestOnlyWhatPushesNeedEndsAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &config.Config{Timeout: time.Second, DatabaseWait: time.Minute}
		s := newState(t)
		s.RecordHealth(refdb.ErrNotAdmitted)
		time.Sleep(time.Minute)
		s.RecordHealth(nil)
		if err := s.Health(); err != nil {
			t.Errorf("after an answer: %v", err)
		}
		if got := s.BeginOutage(); got != time.Minute {
			t.Errorf("the outage has lasted %s", got)
		}
		attempts, start := 0, time.Now()
		refused := func(context.Context) error { attempts++; return refdb.ErrNotAdmitted }
		if err := s.Retry(t.Context(), c, refused); !errors.Is(err, refdb.ErrNotAdmitted) || attempts != 1 || time.Since(start) > 0 {
			t.Errorf("after %d attempts in %s: %v", attempts, time.Since(start), err)
		}
		for name, answer := range map[string]error{"success": nil, "a refusal": &refdb.LockedError{}} {
			if err := s.Retry(t.Context(), c, func(context.Context) error { return answer }); !errors.Is(err, answer) {
				t.Errorf("%s: %v", name, err)
			}
			if got := s.BeginOutage(); got != 0 {
				t.Errorf("%s: the next outage has lasted %s", name, got)
			}
			time.Sleep(time.Minute)
		}
	})
}

// A driver says only that its server is not admitted; the comparison knows for whom it waits.
func TestARefusedRequestSaysWhatTheLatestComparisonKnows(t *testing.T) {
	s := newState(t)
	known := &driver.NotAdmittedError{Awaited: []driver.Witness{{Name: "us"}}}
	s.RecordHealth(known)
	err := s.Retry(t.Context(), &config.Config{Timeout: time.Nanosecond}, func(context.Context) error { return refdb.ErrNotAdmitted })
	if !errors.Is(err, known) || !errors.Is(s.Health(), known) {
		t.Errorf("%v; health: %v", err, s.Health())
	}
}

func TestARefusalByTheDatabaseIsAnAnswer(t *testing.T) {
	s := newState(t)
	if err := s.Health(); err == nil || !strings.Contains(err.Error(), "not answered yet") {
		t.Errorf("at the start: %v", err)
	}
	for _, refused := range []error{refdb.ErrLocked, driver.ErrNoPack, &journal.Error{Err: syscall.ENOSPC}} {
		s.RecordHealth(refused)
		if err := s.Health(); err != nil || s.Counts.Status().Failures != 0 {
			t.Errorf("after %v: %v; %d failures", refused, err, s.Counts.Status().Failures)
		}
	}
	s.RecordHealth(errors.Join(refdb.ErrLostChanges, &journal.Error{Err: syscall.ENOSPC}))
	if err := s.Health(); !errors.Is(err, refdb.ErrLostChanges) {
		t.Errorf("after lost changes, which could not be noted: %v", err)
	}
	s = newState(t)
	s.RecordHealth(nil)
	s.RecordHealth(fmt.Errorf("%w: %w", refdb.ErrUnavailable, context.Canceled))
	if err := s.Health(); err != nil || s.Counts.Status().Failures != 0 {
		t.Errorf("after a client left: %v; %d failures", err, s.Counts.Status().Failures)
	}
	s.RecordHealth(refdb.ErrUnavailable)
	if err := s.Health(); !errors.Is(err, refdb.ErrUnavailable) || s.Counts.Status().Failures != 1 {
		t.Errorf("after an outage: %v; %d failures", err, s.Counts.Status().Failures)
	}
}

func TestARequestThatComesWhileReconcilingIsNotLost(t *testing.T) {
	s := newState(t)
	r := &s.Reconcile
	if r.Outstanding() {
		t.Error("nobody has asked")
	}
	r.Request()
	r.Request()
	<-r.Wanted()
	select {
	case <-r.Wanted():
		t.Error("it is asked for twice")
	default:
	}
	done := r.Begin()
	r.Request()
	if done(); !r.Outstanding() {
		t.Error("what came later is done")
	}
	<-r.Wanted()
	if r.Begin()(); r.Outstanding() {
		t.Error("what was asked for is not done")
	}
}
