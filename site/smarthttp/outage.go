package smarthttp

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
)

// StaleHeader is the header of a stale response. Its value is the number of seconds since the database last answered.
const StaleHeader = "Refdb-Stale"

// briefLimit is how long a database that is known to be away is asked before a stale response.
const briefLimit = time.Second

// An outage tells for how long the database has not answered this server.
type outage struct {
	logger *slog.Logger

	mu       sync.Mutex
	answered time.Time // when the newest request was sent that the database answered; zero: it never has
	away     bool      // it does not, and stale responses were served
	over     bool      // the time for them has ended
	served   int       // stale responses of this outage
}

// patience returns how long to wait for the database: limit, or less if it is known to be away. Each request asks it all the
// same, so that none is served a stale response that begins after the database is back.
func (o *outage) patience(limit, brief time.Duration) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.away {
		return min(limit, brief)
	}
	return limit
}

// answer records that the database answered a request that was sent at that time.
func (o *outage) answer(sent time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if sent.After(o.answered) {
		o.answered = sent
	}
	if o.away {
		o.logger.Info("the database answers again: no more stale reads", "served", o.served)
		o.away, o.over, o.served = false, false, 0
	}
}

// begin reports whether a stale response may be served: the database answered within the limit. It returns how long ago.
func (o *outage) begin(limit time.Duration) (age time.Duration, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.answered.IsZero() {
		return 0, false
	}
	age = time.Since(o.answered)
	if age >= limit {
		if o.away && !o.over {
			o.logger.Warn("the database has not answered for the time that stale reads are allowed: reads are refused", "served", o.served)
			o.over = true
		}
		return 0, false
	}
	if !o.away {
		o.logger.Warn("the database does not answer: reads are served from this site's copies, which may be stale", "for", (limit - age).Round(time.Second).String())
		o.away = true
	}
	o.served++
	return age, true
}

// readStale has git answer a reader from the copy here, if the database was not there to be asked and stale reads are allowed for now.
// Otherwise it returns err, the reason why the request was not served.
func (s *Server) readStale(w http.ResponseWriter, project string, q request, body *buffered, err error) error {
	ctx := q.http.Context()
	if s.o.StaleReads == 0 || !away(err) || ctx.Err() != nil {
		return err
	}
	r, ok := s.remembered(ctx, project)
	if !ok {
		return err
	}
	age, ok := s.outage.begin(s.o.StaleReads)
	if !ok {
		return err
	}
	w.Header().Set(StaleHeader, strconv.Itoa(int(age/time.Second)))
	q.dir, q.body = r.Path, body
	return s.passRead(q, body.whole, w, s.counts.stale)
}

// errSilent says that the database did not answer for as long as a request waits for it.
var errSilent = errors.New("the database does not answer in time")

// away reports whether an error says that the database did not answer. One that is not admitted yet is there.
func away(err error) bool {
	return (errors.Is(err, errSilent) || errors.Is(err, refdb.ErrUnavailable)) && !errors.Is(err, refdb.ErrNotAdmitted)
}

// remembered returns the repository of a project whose row this server read when the database was there.
func (s *Server) remembered(ctx context.Context, project string) (config.Repository, bool) {
	r, err := s.o.Config.Repository(project)
	if err != nil || r.Project != project || !s.guards(r) {
		return config.Repository{}, false
	}
	row := s.known(project).row
	id, err := s.ids.Of(ctx, r)
	return r, err == nil && row.Revision != 0 && id == row.ID
}
