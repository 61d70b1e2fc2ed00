package serving

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/journal"
)

// health is the outcome of the latest request to the database, and how long the database has not
// done what pushes need.
type health struct {
	mu    sync.Mutex
	err   error
	since time.Time // when the outage began; zero if there is none
}

// RecordHealth records how a request to the database ended. A refusal by the database is a success,
// and a journal that can't be written is no failure of the database. A request that its client
// abandoned says nothing about the database.
//
// A failure begins an outage. A success does not end it: a server that is not admitted answers
// requests that only read.
func (s *State) RecordHealth(err error) {
	switch failed := (*journal.Error)(nil); {
	case errors.Is(err, context.Canceled):
		return
	case errors.Is(err, refdb.ErrNotAdmitted), errors.Is(err, refdb.ErrLostChanges):
	case errors.As(err, &failed), errors.Is(err, refdb.ErrLocked), errors.Is(err, refdb.ErrMismatch), errors.Is(err, refdb.ErrNameConflict), errors.Is(err, refdb.ErrFrozen), errors.Is(err, refdb.ErrLockLost),
		errors.Is(err, refdb.ErrInvalid), errors.Is(err, refdb.ErrTooMany), errors.Is(err, driver.ErrNoPack):
		err = nil
	}
	if err != nil {
		s.Counts.Failures.Add(1)
	}
	h := &s.health
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = h.explain(err)
	if err != nil {
		h.begin()
	}
}

// explain returns the error of the latest comparison in place of one that says no more than that
// the server is not admitted. h.mu is held.
func (h *health) explain(err error) error {
	known := (*driver.NotAdmittedError)(nil)
	if errors.Is(err, refdb.ErrNotAdmitted) && !errors.As(err, &known) && errors.As(h.err, &known) {
		return h.err
	}
	return err
}

// begin begins an outage, unless there is one. h.mu is held.
func (h *health) begin() {
	if h.since.IsZero() {
		h.since = time.Now()
	}
}

// BeginOutage records that the database did not do what pushes need, and returns for how long it has
// not.
func (s *State) BeginOutage() time.Duration {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	s.health.begin()
	return time.Since(s.health.since)
}

// EndOutage records that the database did what pushes need, at a server that is admitted.
func (s *State) EndOutage() {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	s.health.err, s.health.since = nil, time.Time{}
}

// Health returns how the latest request to the database ended.
func (s *State) Health() error {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	return s.health.err
}

// InOutage reports whether the database did not do what pushes need when it was last asked for that.
func (s *State) InOutage() bool {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	return !s.health.since.IsZero()
}

// outage returns for how long the database has not done what pushes need; 0 if it does.
func (s *State) outage() time.Duration {
	h := &s.health
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.since.IsZero() {
		return 0
	}
	return time.Since(h.since)
}

// Retry repeats a request that needs an admitted server, for at most c.Timeout, and records how each
// attempt ended:
//   - while the database's server is not admitted. An idle site notices that it is only with its
//     next heartbeat;
//   - while the server is away, unless it has been for longer than a restart takes.
//
// If no push waits for the database any more, because the outage has lasted too long, the request
// is made once.
func (s *State) Retry(ctx context.Context, c *config.Config, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 20*time.Millisecond, 200*time.Millisecond
	for {
		err := request(ctx)
		s.RecordHealth(err)
		if err == nil || errors.Is(err, refdb.ErrLocked) || errors.Is(err, refdb.ErrMismatch) || errors.Is(err, refdb.ErrNameConflict) || errors.Is(err, refdb.ErrFrozen) {
			s.EndOutage()
			return err
		}
		away := errors.Is(err, refdb.ErrUnavailable) && s.outage() < s.Outage
		compared := errors.Is(err, refdb.ErrNotAdmitted) && s.outage() < max(c.Timeout, c.DatabaseWait)
		if away || compared {
			select {
			case <-time.After(pause.NextBackOff()):
				continue
			case <-ctx.Done():
			}
		}
		s.health.mu.Lock()
		defer s.health.mu.Unlock()
		return s.health.explain(err)
	}
}
