package spanner_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	defer dbtest.Stop()
	code := m.Run()
	// OpenCensus, which counts for the client, starts this goroutine permanently when it is
	// imported.
	if err := dbtest.Leaks(goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start")); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

func newDatabase(tb testing.TB) refdbtest.Database { return patientDatabase{dbtest.Spanner(tb)} }

// A patientDatabase opens drivers whose time limits only a hang reaches: on a busy machine an
// emulator takes longer than the limits for some requests.
type patientDatabase struct{ *dbtest.Database }

func (d patientDatabase) Open(tb testing.TB) driver.Driver { return patient(tb, d.Database) }

func TestConformance(t *testing.T) { refdbtest.Run(t, newDatabase) }

func long() bool { return os.Getenv("REFDB_TEST_LONG") != "" }

// For PostgreSQL make test-all runs it, for the other databases each run of the tests does.
func TestConformanceAlternating(t *testing.T) {
	if !long() {
		t.Skip("left out: the suite with requests alternating between two drivers, minutes more on the emulator; REFDB_TEST_LONG=1 runs it")
	}
	refdbtest.Run(t, refdbtest.Alternating(newDatabase))
}
