package presence

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Missing returns the sites, in the order of their names, without which the database's next server would not be admitted: they are
// waited for, and their daemons don't run. It makes one request.
func Missing(ctx context.Context, db *refdb.DB, a refdb.Admission) (missing []Site, err error) {
	locks := map[string]*refdb.LockInfo{}
	for l, err := range db.Locks(ctx, refdb.LockFilter{Project: Project, Prefix: refPrefix}) {
		if err != nil {
			return nil, err
		}
		locks[strings.TrimPrefix(l.Ref, refPrefix)] = &l
	}
	for _, w := range a.Witnesses {
		s := Site{Name: w.Name, Lock: locks[w.Name], Witness: &w}
		if s.Awaited() && !s.Alive() {
			missing = append(missing, s)
		}
	}
	return missing, nil
}

// Awaited reports whether nothing is written at a new server of the database before the site has compared it.
func (s Site) Awaited() bool { return s.Witness != nil && !s.Witness.Away && !s.Witness.Without }

// MissingAdvice says what a missing site leads to, and what an operator does.
func MissingAdvice(site string, seen time.Time) string {
	return fmt.Sprintf("%s: its daemon does not run, last seen %s: after a restart of the database's server all sites would refuse pushes until it is back: "+
		"start the daemon or, if the site is gone for good, run `refdbctl sites retire %s`", site, seen.UTC().Format(time.RFC3339), site)
}
