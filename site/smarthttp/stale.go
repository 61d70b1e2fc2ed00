package smarthttp

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
)

// StaleHeader is the header of a stale response: one that was not confirmed by the database. Its
// value is the number of seconds since the local copy was last known to have all acknowledged
// pushes.
const StaleHeader = "Refdb-Stale"

// staleLogEvery is the minimum interval between log lines about stale responses.
const staleLogEvery = time.Minute

// errTimeout means that the database did not answer within the time that a request waits for it.
var errTimeout = errors.New("the database does not answer in time")

// unavailable reports whether err says that the database did not answer. A database that answers
// that it is not admitted, or that it has lost changes, is there.
func unavailable(err error) bool {
	if errors.Is(err, refdb.ErrNotAdmitted) || errors.Is(err, refdb.ErrLostChanges) {
		return false
	}
	return errors.Is(err, errTimeout) || errors.Is(err, refdb.ErrUnavailable)
}

// readStale serves a read from the local copy if the database was unavailable, stale reads are
// allowed, and the copy was complete recently enough. Otherwise it returns err, the reason why the
// read was not confirmed. It does not wait for capacity: by then the database may be back.
func (s *Server) readStale(w http.ResponseWriter, project string, q request, body *buffered, err error) error {
	ctx := q.http.Context()
	if s.o.StaleReads == 0 || !unavailable(err) || ctx.Err() != nil {
		return err
	}
	r, age, ok := s.remembered(ctx, project)
	if !ok || age >= s.o.StaleReads {
		return err
	}
	if served, due := s.staleLog.add(); due {
		s.o.Logger.WarnContext(ctx, "the database does not answer: reads are served from this site's copies, which may be stale", "served", served)
	}
	w.Header().Set(StaleHeader, strconv.Itoa(int(age/time.Second)))
	q.dir, q.body = r.Path, body
	return s.passRead(q, body.whole, w, 0, s.counts.stale)
}

// remembered returns the repository of a project, and the time since the repository was last known
// to be complete. It returns false if the repository never was, or may have been replaced.
func (s *Server) remembered(ctx context.Context, project string) (r config.Repository, age time.Duration, ok bool) {
	r, err := s.o.Config.Repository(project)
	if err != nil || r.Project != project || !s.guards(r) {
		return r, 0, false
	}
	p := s.known(project)
	file, err := os.Stat(filepath.Join(r.Path, "config"))
	if err != nil || p.complete.IsZero() || !unchanged(p.file, file) {
		return r, 0, false
	}
	id, err := s.ids.Of(ctx, r)
	return r, since(p.complete), err == nil && id == p.row.ID
}

// since returns the time since t, including the time during which the machine was suspended.
func since(t time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(t), now.Round(0).Sub(t.Round(0)))
}

// setComplete records that the repository of p had all acknowledged pushes at the given time. The
// zero time means that it lacks some.
func (s *Server) setComplete(p knownProject, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	have, ok := s.projects[p.repository.Project]
	if !ok || have.row.Revision != p.row.Revision || have.file != p.file || !at.IsZero() && at.Before(have.complete) {
		return
	}
	have.complete = at
	s.projects[p.repository.Project] = have
}

// A staleLog bounds the number of log lines about stale responses.
type staleLog struct {
	mu     sync.Mutex
	logged time.Time
	served int // stale responses since logged
}

// add counts a stale response. If a log line is due, add returns the number of responses since the
// last line.
func (l *staleLog) add() (served int, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.served++
	if !l.logged.IsZero() && time.Since(l.logged) < staleLogEvery {
		return 0, false
	}
	served, l.logged, l.served = l.served, time.Now(), 0
	return served, true
}
