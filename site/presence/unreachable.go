package presence

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// Witnesses returns the witnesses of the admission, with the locks on their names, in the order of
// their names. It makes one request.
func Witnesses(ctx context.Context, db *refdb.DB, a driver.Admission) (all []Site, err error) {
	locks, err := NameLocks(ctx, db)
	if err != nil {
		return nil, err
	}
	for _, w := range a.Witnesses {
		s := Site{Name: w.Name, Witness: &w}
		if l, ok := locks[w.Name]; ok {
			s.Lock = &l
		}
		all = append(all, s)
	}
	return all, nil
}

// Unreachable returns those of the sites that are awaited and hold no fresh lock on their name: their
// daemons don't run, or don't reach the database. While they don't, and no other site has testified
// about them, the database's next server is not admitted.
func Unreachable(sites []Site) []Site {
	return slices.DeleteFunc(slices.Clone(sites), func(s Site) bool { return !s.Awaited() || s.Alive() })
}

// Awaited reports whether a new server of the database is admitted only once the site has compared
// it.
func (s Site) Awaited() bool { return s.Witness != nil && !s.Witness.Away && !s.Witness.Without }

// Testified reports whether another site has testified about the site, so that no server waits for it.
func (s Site) Testified() bool { return s.Witness != nil && s.Witness.Testified() }

// UnreachableAdvice says what follows from a site's being unreachable, or testified about, and what an
// operator does.
func UnreachableAdvice(s Site) string { return SilentAdvice(s.Name, s.Seen(), s.Testified()) }

// SilentAdvice is [UnreachableAdvice] for a site that another site's daemon has reported.
func SilentAdvice(site string, seen time.Time, testified bool) string {
	then := "no other site has testified about it: after a restart of the database's server all sites would refuse pushes until it is back"
	if testified {
		then = "another site has testified about it, so that no other site waits for it"
	}
	return fmt.Sprintf("%s: its daemon does not run, or can't reach the database (last seen %s); %s: start the daemon or repair the network; if the site is gone for good: `%s`",
		site, seen.UTC().Format(time.RFC3339), then, RetireCommand(site))
}

// RetireCommand returns the command line that retires a site.
func RetireCommand(site string) string {
	if strings.HasPrefix(site, "-") {
		return "refdbctl sites retire --reason TEXT -- " + wire.ShellWord(site)
	}
	return "refdbctl sites retire " + wire.ShellWord(site) + " --reason TEXT"
}
