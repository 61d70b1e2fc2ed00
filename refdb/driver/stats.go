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
	OpRelease = "release" // Release, and each of its tries in the background; ReleaseRefs; Finish of intents whose moves were not made
	OpBeat    = "beat"    // a beat of all locks held
	OpLost    = "lost"    // a lock that its holder lost; Held is how long it had it
	OpPurge   = "purge"   // Purge
	OpPrepare = "prepare" // Prepare
	OpResolve = "resolve" // Resolve
)

// An Event is one finished operation. It holds no names, so that its fields can
// be a metric's labels.
type Event struct {
	Op       string
	Outcome  string // "ok", "locked", "mismatch", "frozen", "lost", "unknown", "unavailable", "invalid" or "error"
	Class    Class
	Duration time.Duration
	Refs     int // how many refs or locks it was about

	// Held is how long a lock stood, for an event that ended one: OpRelease, OpLost
	// and an OpUpdate that released.
	Held time.Duration
	// Reclaimed is how many stale locks an OpLock or OpTryLock took over.
	Reclaimed int
	// Attempts is how many requests an OpLock or OpTryLock made.
	Attempts int
	// Waited is how long an OpLock that got its locks waited for others: until it sent the
	// request that got them.
	Waited time.Duration
	// HandOver is the time from when an OpLock was woken until it had its locks.
	HandOver time.Duration
	// Late is how long after it was due an OpBeat was sent.
	Late time.Duration
}

// Digest returns what logs show instead of names: 16 hex digits of an
// HMAC-SHA256 of parts under key. With the key of refdb.Options an operator can
// find the log lines about a lock: they carry Digest(key, project, ref) of the
// lock's first ref.
func Digest(key []byte, parts ...string) string {
	mac := hmac.New(sha256.New, key)
	for _, part := range parts {
		// The length keeps ("a", "bc") apart from ("ab", "c").
		mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		mac.Write([]byte(part))
	}
	return hex.EncodeToString(mac.Sum(nil)[:8])
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
