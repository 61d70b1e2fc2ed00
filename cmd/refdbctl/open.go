package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/postgres"
	"github.com/globalrefdb/globalrefdb/refdb/spanner"
	"github.com/globalrefdb/globalrefdb/refdb/sqlite"
)

const urlHelp = "sqlite:FILE (embedded, one machine), postgres://USER@HOST/DATABASE or " +
	"spanner://projects/P/instances/I/databases/D"

// backend is a kind of database.
type backend struct {
	dialect  migrations.Dialect
	open     func(ctx context.Context, url string) (refdb.Driver, error)
	migrator func(ctx context.Context, url string) (*migrations.Migrator, error)
}

// backendOf is the only place that knows all drivers.
func backendOf(url string) (backend, error) {
	if url == "" {
		return backend{}, usage("no database named: give --db URL or set REFDB_URL, to " + urlHelp)
	}
	scheme, _, ok := strings.Cut(url, ":")
	if !ok {
		// Not quoted: it may be anything, a password even.
		return backend{}, usage("the database URL has no scheme: give " + urlHelp)
	}
	switch scheme {
	case "sqlite":
		return backend{migrations.SQLite, opener(sqlite.Open), sqlite.Migrator}, nil
	case "postgres", "postgresql":
		return backend{migrations.Postgres, opener(postgres.Open), postgres.Migrator}, nil
	case "spanner":
		open := func(ctx context.Context, url string) (*spanner.Driver, error) { return spanner.Open(ctx, url) }
		migrator := func(ctx context.Context, url string) (*migrations.Migrator, error) { return spanner.Migrator(ctx, url) }
		return backend{migrations.Spanner, opener(open), migrator}, nil
	default:
		return backend{}, usage(fmt.Sprintf("unknown database scheme %q: give %s", scheme, urlHelp))
	}
}

// opener keeps a nil pointer from becoming a Driver.
func opener[D refdb.Driver](open func(context.Context, string) (D, error)) func(context.Context, string) (refdb.Driver, error) {
	return func(ctx context.Context, url string) (refdb.Driver, error) {
		d, err := open(ctx, url)
		if err != nil {
			return nil, err
		}
		return d, nil
	}
}

// open opens the database. o.Site, Logger and DigestKey are filled in.
func (a *app) open(ctx context.Context, o refdb.Options) (*refdb.DB, error) {
	b, err := a.backend(a.url)
	if err != nil {
		return nil, err
	}
	o.Site, o.Logger, o.DigestKey = a.site, a.logger(), []byte(a.env("REFDB_DIGEST_KEY"))
	opening, opened := a.opening(ctx)
	driver, err := b.open(opening, a.url)
	opened()
	if err != nil {
		return nil, opening.explain(err)
	}
	db, err := refdb.New(driver, o)
	if err != nil {
		return nil, errors.Join(err, driver.Close())
	}
	return db, nil
}

// withMigrator opens the database, whatever its schema, for do.
func (a *app) withMigrator(ctx context.Context, do func(*migrations.Migrator, migrations.Dialect) error) (err error) {
	b, err := a.backend(a.url)
	if err != nil {
		return err
	}
	opening, opened := a.opening(ctx)
	m, err := b.migrator(opening, a.url)
	opened()
	if err != nil {
		return opening.explain(err)
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	return do(m, b.dialect)
}
