// Package local is dbtest without Cloud Spanner, whose client is most of what a program with all
// databases links: it hands a test a database on PostgreSQL or in a SQLite file. It is for the packages whose tests need no other,
// and what dbtest documents is true of it.
package local

import (
	"os"
	"testing"

	"github.com/globalrefdb/globalrefdb/test/dbtest/internal/testdb"
)

// A Database belongs to one test.
type Database = testdb.Database

// A Kind is one of the databases that refdb runs on.
type Kind = testdb.Kind

// Main runs the tests of a package and stops the servers that they started:
//
//	func TestMain(m *testing.M) { local.Main(m) }
func Main(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	defer Stop()
	return m.Run()
}

// Stop stops the servers that were started. It is for a TestMain that does
// more than [Main].
func Stop() { testdb.StopAll() }
