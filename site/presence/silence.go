package presence

import (
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// ReportsEvery is how often a daemon reports, whether or not it holds the lock on its name.
const ReportsEvery = time.Minute

// SilenceLimit returns the time without a sign of life after which the site counts as silent: the
// stale-after of the lock on its name, or a time within which a daemon without a lock would have
// reported.
func SilenceLimit(s Site) time.Duration {
	if s.Lock != nil {
		return s.Lock.StaleAfter
	}
	return refdb.DefaultStaleAfter + ReportsEvery
}
