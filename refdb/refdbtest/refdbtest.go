// Package refdbtest is the conformance suite that every database behind refdb
// passes. It is written against [driver.Driver] and [refdb.DB] alone, and checks
// each promise and each method's contract. Package internal/driver has the rows about a
// driver's methods, internal/race those about two or more requests at once, internal/db those
// about a DB on the driver; internal/suite runs them, and has what they share.
//
// A new driver's test implements [Database], which makes an empty database with
// the driver's schema, opens drivers on it, and does what a driver must not
// offer: make a lock older, or write as Gerrit's plugin does. It runs the suite twice:
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
// the driver. A driver keeps nothing between two calls: those of one client may go
// through two processes, such as two servers behind a load balancer.
//
// Rows about a [driver.Notifier] pass at once if the driver is none, or if its Listen
// returns errors.ErrUnsupported.
//
// The name of a row says what is expected of the driver:
//
//	go test -run 'TestConformance/Beat/another_token' ./refdb/mydb
//
// A row whose name starts with P1 to P13 shows that promise of docs/PROTOCOL.md.
// The suite's own test runs it against a driver in memory, and against variants of
// that with one bug each: each must fail the topic that the bug belongs to.
package refdbtest

import (
	"slices"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/db"
	rows "github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/driver"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/race"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/suite"
)

// A Database is a database of a test's own, migrated and empty. Its methods do
// what a driver must not offer; they end the test if they fail. All values are data:
// any name works.
type Database interface {
	// URL is the address that the driver's Open understands.
	URL() string
	// Open returns another driver on the database, as another process would
	// have it. It is closed when tb ends.
	Open(tb testing.TB) driver.Driver
	// Age moves the heartbeat of a lock back by d; forward, if d is negative.
	Age(tb testing.TB, project, ref string, d time.Duration)
	// InsertLock writes a lock as Gerrit's plugin would: with Project, Ref,
	// Owner, a heartbeat of the database's time less Age, and Token or, if that
	// is 0, the database's time. All other columns are NULL.
	InsertLock(tb testing.TB, l driver.LockInfo)
	// TakeOver takes a lock over as Gerrit's plugin would: it sets the heartbeat and
	// the token to the database's time, which is later than the old token, and the
	// owner. All other columns stay.
	TakeOver(tb testing.TB, project, ref, owner string)
	// InsertRef writes a ref as Gerrit's plugin would: without an operation.
	InsertRef(tb testing.TB, project, ref string, v driver.Value)
	// Exec executes a statement in the database's own dialect. The suite's few statements
	// are plain SQL on the tables locks and refs, without arguments.
	Exec(tb testing.TB, sql string, args ...any)
	// RowLock reads the row of a lock.
	RowLock(tb testing.TB, project, ref string) (l driver.LockInfo, ok bool)
}

// Run checks everything, on one database per topic, and some rows on their own. Topics, and the
// rows in them, run in parallel.
func Run(t *testing.T, open func(testing.TB) Database) {
	// The slowest first, so that no core idles at the end.
	topics := slices.Concat(race.Topics(), db.Topics(), rows.Topics())
	suite.Run(t, func(tb testing.TB) suite.Database { return open(tb) }, topics)
}

// Alternating returns databases whose drivers are pairs of instances: each call of a row
// goes to the instance that did not serve its call before. A driver that keeps something
// between two calls, such as a queue or the locks it took, passes alone and fails here.
//
// Races between processes gain nothing from it: they are repeated a quarter as often.
func Alternating(open func(testing.TB) Database) func(testing.TB) Database {
	return func(tb testing.TB) Database { return suite.Alternate(open(tb)) }
}
