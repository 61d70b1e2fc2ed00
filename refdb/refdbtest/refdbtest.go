// Package refdbtest is the conformance suite that every database behind refdb
// passes. It is written against [refdb.Driver] and [refdb.DB] alone, and checks
// each promise and each method's contract, one topic per file.
//
// A new driver's test implements [Database], which makes an empty database with
// the driver's schema, opens drivers on it, and does what a driver must not
// offer: let a lock grow old, or write as Gerrit's plugin does. It runs the suite twice:
//
//	func TestConformance(t *testing.T) {
//		refdbtest.Run(t, newDatabase)
//	}
//
//	func TestConformanceAlternating(t *testing.T) {
//		refdbtest.Run(t, refdbtest.Alternating(newDatabase))
//	}
//
// In the second run the requests of a process alternate between two instances of
// the driver, because a driver keeps nothing between two calls: those of one
// client may go through two processes, such as two servers behind a balancer.
//
// What a driver need not do is skipped: rows about a [refdb.Notifier] pass at once
// if the driver is none, or if its Listen returns errors.ErrUnsupported.
//
// A failing row says what was expected of the driver in its name:
//
//	go test -run 'TestConformance/Beat/another_token' ./refdb/mydb
//
// A row whose name starts with P1 to P12 shows that promise of docs/DESIGN.md,
// section 8. The suite's own test runs it against a driver in memory, and
// against many that have one bug each: each must fail the topic it belongs to.
package refdbtest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// A Database is a database of a test's own: migrated, empty, and reachable
// besides the driver, for what a driver must not offer. Its methods end the
// test if they fail. Values are data in all of them: any name works.
type Database interface {
	// URL is the address that the driver's Open understands.
	URL() string
	// Open returns another driver on the database, as another process would
	// have it. It is closed when tb ends.
	Open(tb testing.TB) refdb.Driver
	// Age moves the heartbeat of a lock back by d; forward, if d is negative.
	Age(tb testing.TB, project, ref string, d time.Duration)
	// InsertLock writes a lock as Gerrit's plugin would: with Project, Ref,
	// Owner, a heartbeat of the database's time less Age, and Token or, if that
	// is 0, the database's time. All other columns are NULL.
	InsertLock(tb testing.TB, l refdb.LockInfo)
	// TakeOver takes a lock over as Gerrit's plugin would: it sets the heartbeat and
	// the token to the database's time, which is later than the old token, and the
	// owner. All other columns stay.
	TakeOver(tb testing.TB, project, ref, owner string)
	// InsertRef writes a ref as Gerrit's plugin would: without an operation.
	InsertRef(tb testing.TB, project, ref string, v refdb.Value)
	// Exec executes a statement in the database's own dialect. The suite's are plain
	// SQL on the tables locks and refs, without arguments: few, and always the same.
	Exec(tb testing.TB, sql string, args ...any)
	// RowLock reads the row of a lock.
	RowLock(tb testing.TB, project, ref string) (l refdb.LockInfo, ok bool)
}

// A Database may also have these methods.
type (
	// rounder says how often a race is repeated. One that asks for fewer than
	// defaultRounds is slow, and is spared other numbers too.
	rounder interface{ Rounds() int }
	// timeKeeper says whether a row may hold a time in the future. Cloud Spanner
	// refuses that; a Database without the method is taken to allow it.
	timeKeeper interface{ FutureTimes() bool }
)

// defaultRounds is how often a race is repeated on a database that doesn't say.
const defaultRounds = 200

// Run checks everything, on one database per topic. Topics, and the rows in
// them, run in parallel.
func Run(t *testing.T, open func(testing.TB) Database) {
	for _, topic := range topics() {
		t.Run(topic.name, func(t *testing.T) {
			t.Parallel()
			db := open(t)
			a := process{db.Open(t), "site-a/1"}
			b := process{db.Open(t), "site-b/2"}
			for i, row := range topic.rows {
				t.Run(row.name, func(t *testing.T) {
					t.Parallel()
					row.run(&env{T: t, db: db, a: a, b: b, project: fmt.Sprintf("project-%d", i)})
				})
			}
		})
	}
}

// A topic is a part of the contract; its rows share a database.
type topic struct {
	name string
	rows []row
}

// A row is one behaviour. Its name reads as a sentence.
type row struct {
	name string
	run  func(*env)
}

func topics() []topic {
	return []topic{
		// The slowest first, so that no core idles at the end.
		{"Contenders", contenderRows()},
		{"Races of locks", lockRaceRows()},
		{"Races of updates", updateRaceRows()},
		{"Races of intents", intentRaceRows()},
		{"DB loss", dbLossRows()},
		{"DB waiting", dbWaitRows()},
		{"DB cost", dbCostRows()},
		{"Names", nameRows()},
		{"Size", sizeRows()},
		{"Get", getRows()},
		{"List", listRows()},
		{"Update", updateRows()},
		{"Mandatory locks", mandatoryRows()},
		{"Fence", fenceRows()},
		{"Remove", removeRows()},
		{"Acquire", acquireRows()},
		{"Nonce", nonceRows()},
		{"Reclaim", reclaimRows()},
		{"Beat", beatRows()},
		{"Release", releaseRows()},
		{"Purge", purgeRows()},
		{"Abandon", abandonRows()},
		{"Locks", locksRows()},
		{"Intents", slices.Concat(intentRows(), intentEndRows())},
		{"Cursors", cursorRows()},
		{"Resolve", resolveRows()},
		{"States", stateRows()},
		{"Connection", connectionRows()},
		{"Queues", slices.Concat(queueRows(), severalRefsRows(), keptRows())},
		{"Notifier", notifierRows()},
		{"DB refs", dbRefRows()},
		{"DB locks", dbLockRows()},
		{"DB replies", dbReplyRows()},
		{"DB intents", slices.Concat(dbIntentRows(), dbIntentReplyRows())},
		{"DB refusals", dbRefusedRows()},
		{"DB administration", dbAdminRows()},
		{"DB pages", dbPageRows()},
	}
}
