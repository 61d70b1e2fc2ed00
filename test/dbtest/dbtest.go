// Package dbtest hands a test a real database: empty, migrated and its own. It
// starts one server of a kind for the whole test binary when the first test
// asks for it, and stops it at the end by its process ID, also if the binary
// is killed. A test's database is cloned from a migrated template. Tests run in parallel.
//
// A server is, in this order:
//
//   - the one that the environment names (REFDB_TEST_POSTGRES,
//     SPANNER_EMULATOR_HOST);
//   - one that internal/testserver starts from a local installation, in a
//     temporary directory;
//   - a container, through dockertest.
//
// The log says which one it is. A test that fails logs what its server printed meanwhile, and
// how busy the machine is. If there is no server the test fails, rather than
// being skipped, and says what to install.
package dbtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/migrations"
)

// Main runs the tests of a package and stops the servers that they started:
//
//	func TestMain(m *testing.M) { dbtest.Main(m) }
func Main(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	defer Stop()
	return m.Run()
}

// Stop stops the servers that were started. It is for a TestMain that does
// more than [Main].
func Stop() {
	started.stop()
}

// A Kind is one of the databases that refdb runs on.
type Kind struct {
	Dialect migrations.Dialect
	New     func(testing.TB) *Database // migrated
	Empty   func(testing.TB) *Database // without a schema
}

// All returns every kind, for a test that holds on each of them.
func All() []Kind {
	return []Kind{postgresKind(), spannerKind(), sqliteKind()}
}

func postgresKind() Kind { return Kind{migrations.Postgres, Postgres, emptyPostgres} }
func spannerKind() Kind  { return Kind{migrations.Spanner, Spanner, emptySpanner} }
func sqliteKind() Kind   { return Kind{migrations.SQLite, SQLite, emptySQLite} }

// A stopper is stopped at the end.
type stopper interface{ Stop() error }

type stopFunc func() error

func (f stopFunc) Stop() error { return f() }

// stops are the stoppers. The last one is stopped first.
type stops struct {
	mu  sync.Mutex
	all []stopper
}

// started is what this process has to stop. It is global because tests share
// their servers.
var started stops

func (s *stops) add(it stopper) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, it)
}

func (s *stops) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, it := range slices.Backward(s.all) {
		stop(it)
	}
	s.all = nil
}

func stop(it stopper) {
	if err := it.Stop(); err != nil {
		served("%v", err)
	}
}

// served says which server the tests run on.
func served(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "dbtest: "+format+"\n", args...)
}

// uniqueName returns a name that no other test and no other process on the same
// server uses. It is valid on all databases.
func uniqueName(kind string) string {
	return kind + "_" + strings.ToLower(rand.Text()[:12])
}

// timeout is for one step of preparing a database, however busy the machine is. Only what hangs takes as long.
const timeout = 5 * time.Minute

func within(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), timeout)
	tb.Cleanup(cancel)
	return ctx
}
