package memory_test

import (
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest"
)

// database is a Database as the suite sees one.
type database struct{ *memory.Database }

func (database) URL() string { return "memory:" }

func (d database) Open(tb testing.TB) driver.Driver {
	driver := d.Database.Open()
	tb.Cleanup(func() { driver.Close() })
	return driver
}

func (d database) Restart(testing.TB) { d.Database.Restart() }

func newDatabase(testing.TB) refdbtest.Database { return database{memory.New()} }

func TestConformance(t *testing.T) { refdbtest.Run(t, newDatabase) }

func TestConformanceAlternating(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: the suite with requests alternating between two drivers; make test-all runs it")
	}
	refdbtest.Run(t, refdbtest.Alternating(newDatabase))
}
