package driver

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math/bits"
	"time"
)

// The values of [Event].Op.
const (
	OpGet     = "get"     // Get, GetAll, Exists, IsUpToDate, States
	OpList    = "list"    // a page of Refs, RefsAt, Projects, Locks, Orphans, Intents, History, Changes, LostChanges or Audit
	OpUpdate  = "update"  // Update, CompareAndPut, Put, fenced or not, releasing or not; Finish of an intent whose move was made
	OpRemove  = "remove"  // the removal of a project, PurgeTombstones, PruneHistory
	OpTryLock = "trylock" // TryLock
	OpLock    = "lock"    // Lock, its waiting included
	OpRelease = "release" // Release, and each of its retries in the background; ReleaseRefs; Finish of intents whose moves were not made
	OpBeat    = "beat"    // a beat of all held locks
	OpLost    = "lost"    // the loss of a lock; Held is how long its holder had held it
	OpPurge   = "purge"   // Purge
	OpPrepare = "prepare" // Prepare
	OpResolve = "resolve" // Resolve
)

// An Event is one finished operation. It contains no names, so that its fields can be labels of a
// metric.
type Event struct {
	Op       string
	Outcome  string // "ok", "locked", "mismatch", "frozen", "lost", "unknown", "unavailable", "invalid" or "error"
	Class    Class
	Duration time.Duration
	Refs     int // the number of refs or locks of the operation

	// Held is how long a lock was held, for an event that ended a lock: OpRelease, OpLost, or an
	// OpUpdate that released the lock.
	Held time.Duration
	// Reclaimed is the number of stale locks that an OpLock or OpTryLock took over.
	Reclaimed int
	// Attempts is the number of requests that an OpLock or OpTryLock made.
	Attempts int
	// Waited is how long a successful OpLock waited for other holders: until it sent the request
	// that acquired the locks.
	Waited time.Duration
	// HandOver is the time from the wake-up of an OpLock until it held its locks.
	HandOver time.Duration
	// Late is how long an OpBeat was overdue when it was sent.
	Late time.Duration
}

// Digest returns the string that logs contain instead of names: 16 hex digits of an HMAC-SHA256 of
// parts under key. With the key of refdb.Options an operator can find the log lines about a lock:
// they contain Digest(key, project, ref) of the lock's first ref.
func Digest(key []byte, parts ...string) string {
	mac := hmac.New(sha256.New, key)
	for _, part := range parts {
		// The length distinguishes ("a", "bc") from ("ab", "c").
		mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		mac.Write([]byte(part))
	}
	return hex.EncodeToString(mac.Sum(nil)[:8])
}

// DriverStats are the statistics of a driver's connections and batches.
type DriverStats struct {
	Pools   []Pool
	Batches Batches
}

// A Pool describes a pool of connections that requests share. Counters count since the pool was
// opened.
type Pool struct {
	Name             string // its purpose, such as "requests"
	Max, InUse, Idle int    // connections
	Acquired         uint64 // how many times a request took a connection
	Waited           uint64 // how many times the request had to wait for one, or to connect
	WaitTime         time.Duration
}

// Batches counts the transactions that requests shared (group commit), since the driver was opened.
type Batches struct {
	// Sizes[i] counts the batches of at most 1<<i requests that are too large for
	// Sizes[i-1]. The last one also counts all larger batches.
	Sizes    [10]uint64
	Requests uint64 // in all batches
}

// Count counts a batch of n requests, where n is at least one.
func (b *Batches) Count(n int) {
	b.Sizes[min(bits.Len(uint(n-1)), len(b.Sizes)-1)]++
	b.Requests += uint64(n)
}

// A Meter is a [Driver] that counts the use of its connections and batches. Stats makes no
// request to the database, and may be called at any time, even after Close.
type Meter interface {
	Stats() DriverStats
}
