package serving

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
)

// health is the outcome of the latest request to the database.
type health struct {
	mu    sync.Mutex
	err   error
	since time.Time // when the requests began to fail; zero if the last one did not
}

// RecordHealth records how a request to the database ended. A refusal by the database is a success.
func (s *State) RecordHealth(err error) {
	switch {
	case errors.Is(err, refdb.ErrLocked), errors.Is(err, refdb.ErrMismatch), errors.Is(err, refdb.ErrNameConflict), errors.Is(err, refdb.ErrLockLost),
		errors.Is(err, refdb.ErrInvalid), errors.Is(err, refdb.ErrTooMany):
		err = nil
	}
	if err != nil {
		s.Counts.Failures.Add(1)
	}
	h := &s.health
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
	if err == nil {
		h.since = time.Time{}
	} else if h.since.IsZero() {
		h.since = time.Now()
	}
}

// Health returns how the latest request to the database ended.
func (s *State) Health() error {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	return s.health.err
}

// FailingFor returns for how long all requests have failed; 0 if the last one did not.
func (s *State) FailingFor() time.Duration {
	h := &s.health
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.since.IsZero() {
		return 0
	}
	return time.Since(h.since)
}

// Retry repeats a request, for at most c.Timeout, and records how each attempt ended:
//   - while the database's server is not admitted. An idle site notices that it is only with its
//     next heartbeat;
//   - while the server is away, unless it has been for longer than a restart takes. Then the
//     request fails at once.
func (s *State) Retry(ctx context.Context, c *config.Config, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 20*time.Millisecond, 200*time.Millisecond
	for {
		err := request(ctx)
		s.RecordHealth(err)
		away := errors.Is(err, refdb.ErrUnavailable) && s.FailingFor() < s.Outage
		if !away && !errors.Is(err, refdb.ErrNotAdmitted) {
			return err
		}
		select {
		case <-time.After(pause.NextBackOff()):
		case <-ctx.Done():
			return err
		}
	}
}
