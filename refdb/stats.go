package refdb

import (
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/engine"
)

// Stats are the state of a [DB] at one moment, for metrics. They hold no names.
type Stats struct {
	Locks   int // that this process holds
	Waiting int // calls of Lock that are under way
	// Left is the time until the first of the locks is lost, unless a beat succeeds
	// before; 0 if there are none.
	Left   time.Duration
	Driver driver.DriverStats
}

// Stats returns the present state, without a request to the database. Driver is zero before the
// driver is open, and if it is no [driver.Meter].
func (db *DB) Stats() Stats {
	k := db.keeper.Stats()
	s := Stats{Locks: k.Leases, Left: k.Left, Waiting: db.queues.count()}
	if m, ok, _ := engine.RoleOf[driver.Meter](db.engine); ok {
		s.Driver = m.Stats()
	}
	return s
}
