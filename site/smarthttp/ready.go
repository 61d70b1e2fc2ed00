package smarthttp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// answerValid is how long an answer of the database decides whether this server is ready.
const answerValid = 5 * time.Second

// A readiness is the result of the latest request for the database's admission. The zero value
// means that there was no request.
type readiness struct {
	mu       sync.Mutex // held during a request, so that concurrent probes share it
	at       time.Time  // when the latest request ended
	err      error
	answered time.Time // when the latest request began after which the database could be read
}

// ready returns nil if reads are served: the database answered within answerValid that it may be
// read; or the database is unavailable, but answered so recently that stale reads are allowed. No
// local copy is known to have been complete after the database's last answer, or before this
// process began. The text of the error is public.
func (s *Server) ready(ctx context.Context) error {
	if err := stopped(ctx); err != nil {
		return err
	}
	r := &s.readiness
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at.IsZero() || time.Since(r.at) >= answerValid {
		before, asked := r.err, time.Now()
		r.err, r.at = s.checkDatabase(ctx), time.Now()
		if r.err == nil {
			r.answered = asked
		}
		if r.err != nil && before == nil {
			s.o.Logger.WarnContext(ctx, "the database does not answer, or must not be read yet", "class", refdb.ClassOf(r.err).String())
		}
	}
	switch err := r.err; {
	case err == nil, unavailable(err) && !r.answered.IsZero() && since(r.answered) < s.o.StaleReads:
		return nil
	case unavailable(err):
		return errors.New("reads are refused, as the database does not answer")
	case errors.Is(err, refdb.ErrNotAdmitted), errors.Is(err, refdb.ErrLostChanges):
		return errors.New("reads are refused, as not all sites have compared the database, or it has lost changes: run `refdbctl recover --status`")
	}
	return errors.New("reads are refused, as the database refuses requests: see the log, and run `refdbctl doctor`")
}

// checkDatabase returns nil if the database answers and is admitted.
func (s *Server) checkDatabase(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, s.o.Config.Timeout)
	defer cancel()
	a, err := s.o.DB.Recovery().Admission(limited)
	switch {
	case err == nil:
		return a.Err()
	case limited.Err() != nil:
		return fmt.Errorf("%w: %w", errTimeout, err)
	}
	return err
}
