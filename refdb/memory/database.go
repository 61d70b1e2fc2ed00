// Package memory is a ref database in the memory of one process, for unit tests
// of programs that use package refdb. It needs no server, no file and no schema:
//
//	db, err := refdb.New(memory.New().Open(), refdb.Options{Site: "eu-1"})
//
// It keeps the contract of [driver.Driver] and passes the same suite as the other
// drivers: locks, fences, mismatches and intents are as in production.
// It is not for production: nothing outlives the process, and no other process can
// see it. Requests never fail by themselves: to test lost replies, wrap the driver.
//
// The database's time is time.Now. In a bubble of testing/synctest that is the
// bubble's time, so a test need not wait until a lock is stale. Open the drivers
// inside the bubble, and close a refdb.DB to leave its locks behind, as a crash
// would. A DB that stays open measures its leases by the machine's clock, not by the
// bubble's: there it neither renews its locks nor notices that it lost them.
package memory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// A Database holds refs, locks and intents.
type Database struct {
	mu      sync.Mutex
	refs    map[key]driver.Ref
	locks   map[key]*lock
	intents map[intentKey]*intent
	mark    driver.Token // the largest token that was given out

	projects map[string]driver.Project
	packs    map[string]*pack
	audit    []driver.AuditEntry // by time, then ID
	history  history

	admission admission
}

// New returns an empty database.
func New() *Database {
	return &Database{
		refs: make(map[key]driver.Ref), locks: make(map[key]*lock), intents: make(map[intentKey]*intent), projects: make(map[string]driver.Project),
		packs: make(map[string]*pack), history: newHistory(), admission: newAdmission(),
	}
}

// Open returns a driver on the database, as a process of its own would have. Closing it
// leaves the database as it is.
func (db *Database) Open() driver.Driver { return &connection{db: db} }

type connection struct {
	db     *Database
	closed bool // guarded by db.mu
}

// A tx is a transaction. It decides before it writes: so nothing needs to be rolled back.
type tx struct {
	*Database
	now     time.Time
	changed bool // a ref
}

// transact runs do while no other call reads or writes.
func transact[T any](ctx context.Context, d *connection, doing string, do func(*tx) (T, error)) (none T, err error) {
	d.db.mu.Lock()
	defer d.db.mu.Unlock()
	err = ctx.Err()
	if d.closed {
		err = driver.ErrClosed
	}
	if err != nil {
		return none, fmt.Errorf("memory: %s: %w", doing, err)
	}
	return do(&tx{Database: d.db, now: now()})
}

// transact is the function transact for a request without an answer.
func (d *connection) transact(ctx context.Context, doing string, do func(*tx) error) error {
	_, err := transact(ctx, d, doing, func(t *tx) (struct{}, error) { return struct{}{}, do(t) })
	return err
}

// now returns the time as other databases do: in microseconds, without
// the monotonic reading, so that equal times compare as equal.
func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

func (d *connection) Now(ctx context.Context) (time.Time, error) {
	return transact(ctx, d, "read the time", func(t *tx) (time.Time, error) { return t.now, nil })
}

func (d *connection) Close() error {
	d.db.mu.Lock()
	defer d.db.mu.Unlock()
	d.closed = true
	return nil
}

// The key of a ref and of a lock, and that of an intent.
type (
	key       driver.LockCursor
	intentKey driver.IntentCursor
)

func (k key) compare(o key) int {
	return cmp.Or(strings.Compare(k.Project, o.Project), strings.Compare(k.Ref, o.Ref))
}

func (k intentKey) compare(o intentKey) int {
	return cmp.Or(key{k.Project, k.Ref}.compare(key{o.Project, o.Ref}), cmp.Compare(k.Token, o.Token))
}

// sorted returns the keys of a table in order.
func sorted[K interface {
	comparable
	compare(K) int
}, R any](rows map[K]R) []K {
	return slices.SortedFunc(maps.Keys(rows), K.compare)
}

// ownedBy reports whether name is the owner, the owner's site, or empty.
func ownedBy(owner, name string) bool {
	return name == "" || owner == name || strings.HasPrefix(owner, name+"/")
}
