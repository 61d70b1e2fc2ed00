package presence

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// Unreachable returns the awaited sites that hold no fresh lock on their name, in the order of their
// names: their daemons don't run, or don't reach the database. While they don't, the database's next
// server is not admitted. It makes one request.
func Unreachable(ctx context.Context, db *refdb.DB, a driver.Admission) (unreachable []Site, err error) {
	locks, err := NameLocks(ctx, db)
	if err != nil {
		return nil, err
	}
	for _, w := range a.Witnesses {
		s := Site{Name: w.Name, Witness: &w}
		if l, ok := locks[w.Name]; ok {
			s.Lock = &l
		}
		if s.Awaited() && !s.Alive() {
			unreachable = append(unreachable, s)
		}
	}
	return unreachable, nil
}

// Awaited reports whether a new server of the database is admitted only once the site has compared
// it.
func (s Site) Awaited() bool { return s.Witness != nil && !s.Witness.Away && !s.Witness.Without }

// UnreachableAdvice says what an unreachable site leads to, and what an operator does.
func UnreachableAdvice(site string, seen time.Time) string {
	return fmt.Sprintf("%s: its daemon does not run, or can't reach the database (last seen %s): after a restart of the database's server all sites would "+
		"refuse pushes until it is back: start the daemon or repair the network; if the site is gone for good: `%s`",
		site, seen.UTC().Format(time.RFC3339), RetireCommand(site))
}

// RetireCommand returns the command line that retires a site.
func RetireCommand(site string) string {
	if strings.HasPrefix(site, "-") {
		return "refdbctl sites retire --reason TEXT -- " + wire.ShellWord(site)
	}
	return "refdbctl sites retire " + wire.ShellWord(site) + " --reason TEXT"
}
