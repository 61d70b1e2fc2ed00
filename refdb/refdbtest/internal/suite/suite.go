// Package suite runs the rows of the conformance suite, and has what they share: the environment of
// a row, and a driver's requests and answers in short.
package suite

import (
	"fmt"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// A Database is a refdbtest.Database, which says what its methods do.
type Database interface {
	URL() string
	Open(tb testing.TB) driver.Driver
	Age(tb testing.TB, project, ref string, d time.Duration)
	InsertLock(tb testing.TB, l driver.LockInfo)
	TakeOver(tb testing.TB, project, ref, owner string)
	InsertRef(tb testing.TB, project, ref string, v driver.Value)
	Exec(tb testing.TB, sql string, args ...any)
	RowLock(tb testing.TB, project, ref string) (l driver.LockInfo, ok bool)
}

// A database may also have these methods.
type (
	// rounder says how often a race is repeated. A database with fewer than
	// defaultRounds is slow: other numbers are smaller for it too.
	rounder interface{ Rounds() int }
	// futureTimer says whether a row may hold a time in the future. Cloud Spanner
	// refuses that; a database without the method allows it.
	futureTimer interface{ FutureTimes() bool }
	// restarter makes the database's server another one than the one that is admitted and that
	// witnesses have compared. Rows about that are skipped without it.
	restarter interface{ Restart(tb testing.TB) }
	// patient says how long to wait for something that must happen. It is for databases that are to
	// fail the suite: those that pass have defaultPatience.
	patient interface{ Patience() time.Duration }
)

// defaultRounds is how often a race is repeated on a database that is no rounder.
const defaultRounds = 100

// defaultPatience is how long to wait for something that must happen in a database that is not
// patient.
const defaultPatience = 5 * time.Minute

// A database with fewer rounds than these is left out by [Long].
const fewRounds = 10

// A Topic is a part of the contract; its rows share a database.
type Topic struct {
	Name string
	Rows []Row
}

// A Row is one behaviour. Its name reads as a sentence. The type has no name of its own, so that
// packages of rows write {"a name", func} without the names of the fields.
type Row = struct {
	Name string
	Run  func(*Env)
}

// Run runs topics, and the rows in them, in parallel.
func Run(t *testing.T, open func(testing.TB) Database, topics []Topic) {
	for _, topic := range topics {
		t.Run(topic.Name, func(t *testing.T) {
			t.Parallel()
			shared := newEnv(t, open)
			for i, row := range topic.Rows {
				t.Run(row.Name, func(t *testing.T) {
					t.Parallel()
					e := *shared
					e.T, e.Project = t, fmt.Sprintf("project-%d", i)
					e.A.Driver, e.B.Driver = turns(e.A.Driver), turns(e.B.Driver)
					row.Run(&e)
				})
			}
		})
	}
}
