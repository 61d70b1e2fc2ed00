package presence

import (
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// ReportsEvery is how often a daemon reports, whether or not it has the lock on its name.
const ReportsEvery = time.Minute

// SilenceLimit returns after which time without a sign of life the site counts as silent: the
// stale-after of the lock on its name, or a time in which a daemon without a lock would have reported.
func SilenceLimit(s Site) time.Duration {
	if s.Lock != nil {
		return s.Lock.StaleAfter
	}
	return refdb.DefaultStaleAfter + ReportsEvery
}
