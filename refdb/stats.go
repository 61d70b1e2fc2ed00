package refdb

import (
	"math/bits"
	"time"
)

// Stats are the state of a [DB] at one moment, for metrics. They hold no names.
type Stats struct {
	Locks   int // that this process holds
	Waiting int // calls of Lock that are under way
	// Left is the time until the first of the locks is lost, unless a beat succeeds
	// before; 0 if there are none.
	Left   time.Duration
	Driver DriverStats
}

// DriverStats are a driver's connections and batches.
type DriverStats struct {
	Pools   []Pool
	Batches Batches
}

// A Pool is connections that requests share. Counters count since it was opened.
type Pool struct {
	Name             string // what it is for, such as "requests"
	Max, InUse, Idle int    // connections
	Acquired         uint64 // how often a request took a connection
	Waited           uint64 // how often it had to wait for one, or to connect
	WaitTime         time.Duration
}

// Batches are the transactions that requests shared (group commit), since the driver was opened.
type Batches struct {
	// Sizes[i] counts the batches of at most 1<<i requests that are too large for
	// Sizes[i-1]. The last one also counts all larger batches.
	Sizes    [10]uint64
	Requests uint64 // in all of them
}

// Count counts a batch of n requests, at least one.
func (b *Batches) Count(n int) {
	b.Sizes[min(bits.Len(uint(n-1)), len(b.Sizes)-1)]++
	b.Requests += uint64(n)
}

// A Meter is a [Driver] that counts the use of its connections and batches. Stats makes no
// request to the database, and may be called at any time, even after Close.
type Meter interface {
	Stats() DriverStats
}

// Stats returns the present state, without a request to the database. Driver is zero if the
// driver is no [Meter].
func (db *DB) Stats() Stats {
	k := db.keeper.Stats()
	s := Stats{Locks: k.Leases, Left: k.Left, Waiting: db.queues.count()}
	if m, ok := db.driver.(Meter); ok {
		s.Driver = m.Stats()
	}
	return s
}
