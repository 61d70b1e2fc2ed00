package testdb

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb"
)

// A Kind is one of the databases that refdb runs on.
type Kind struct {
	Dialect migrations.Dialect
	New     func(testing.TB) *Database // migrated
	Empty   func(testing.TB) *Database // without a schema
	Driver  func(ctx context.Context, url string) (refdb.Driver, error)
}

// UniqueName returns a name that no other test and no other process on the same
// server uses. It is valid on all databases.
func UniqueName(kind string) string {
	return kind + "_" + strings.ToLower(rand.Text()[:12])
}

// Timeout is for one step of preparing a database, however busy the machine is. Only what hangs takes as long.
const Timeout = 5 * time.Minute

// Within returns a context for such a step.
func Within(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), Timeout)
	tb.Cleanup(cancel)
	return ctx
}

// Up brings the database of a migrator to the version that this program needs, and closes the migrator.
func Up(ctx context.Context, m *migrations.Migrator, err error) error {
	if err != nil {
		return err
	}
	return errors.Join(m.Up(ctx), m.Close())
}
