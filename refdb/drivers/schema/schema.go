// Package schema migrates the database at a URL, whatever its kind. The versions of
// the schema are in package migrations.
package schema

import (
	"context"
	"errors"
	"fmt"

	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/drivers"
	"github.com/globalrefdb/globalrefdb/refdb/postgres"
	"github.com/globalrefdb/globalrefdb/refdb/spanner"
	"github.com/globalrefdb/globalrefdb/refdb/sqlite"
)

// Open returns a migrator for the database at url, whatever version its schema has
// now. URLs and their errors are those of [drivers.Open].
func Open(ctx context.Context, url string) (*migrations.Migrator, error) {
	dialect, err := drivers.DialectOf(url)
	if err != nil {
		return nil, err
	}
	switch dialect {
	case migrations.SQLite:
		return sqlite.Migrator(ctx, url)
	case migrations.Postgres:
		return postgres.Migrator(ctx, url)
	case migrations.Spanner:
		return spanner.Migrator(ctx, url)
	}
	return nil, fmt.Errorf("open the database: %w: %s has no migrator", driver.ErrInvalid, dialect)
}

// Up brings the database at url to the version that this program needs.
func Up(ctx context.Context, url string) error {
	m, err := Open(ctx, url)
	if err != nil {
		return err
	}
	return errors.Join(m.Up(ctx), m.Close())
}
