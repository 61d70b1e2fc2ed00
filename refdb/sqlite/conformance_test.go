package sqlite_test

import (
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// database repeats races half as often as other databases, because each race waits for the disk a
// few times. The races in race_test.go don't, and are repeated more often.
type database struct{ *local.Database }

func (database) Rounds() int { return 50 }

// Open opens a driver that is patient with other users of its file.
func (d database) Open(tb testing.TB) driver.Driver { return openAgain(tb, d.URL()) }

func newDatabase(tb testing.TB) refdbtest.Database { return database{local.SQLite(tb)} }

func TestConformance(t *testing.T) { refdbtest.Run(t, newDatabase) }

func TestConformanceAlternating(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: the suite with requests alternating between two drivers; make test-all runs it")
	}
	refdbtest.Run(t, refdbtest.Alternating(newDatabase))
}
