package smarthttp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// answerValid is how long what the database has answered says whether this server is ready.
const answerValid = 5 * time.Second

// readiness is what the database has answered last. The zero value is nothing.
type readiness struct {
	mu       sync.Mutex // held while the database is asked, so that it is asked once for many probes
	at       time.Time
	err      error
	answered time.Time // when the database was asked that last answered that it may be read
}

// ready returns nil if reads are served: the database answered within the last seconds that it may
// be read, or it does not answer, but did so recently enough for stale reads: no local copy is known to
// have been complete after its last answer, or before this process began. The text of its error is public.
func (s *Server) ready(ctx context.Context) error {
	if err := stopped(ctx); err != nil {
		return err
	}
	r := &s.readiness
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at.IsZero() || time.Since(r.at) >= answerValid {
		before, asked := r.err, time.Now()
		r.err, r.at = s.ask(ctx), time.Now()
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

// ask returns nil if the database answers, and is what the sites have compared.
func (s *Server) ask(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, s.o.Config.Timeout)
	defer cancel()
	a, err := s.o.DB.Recovery().Admission(limited)
	switch {
	case err == nil:
		return a.Err()
	case limited.Err() != nil:
		return fmt.Errorf("%w: %w", errSilent, err)
	}
	return err
}
