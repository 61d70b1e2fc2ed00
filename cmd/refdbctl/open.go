package main

import (
	"context"
	"errors"

	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/drivers"
	"github.com/globalrefdb/globalrefdb/refdb/drivers/schema"
)

// dialect returns the kind of the database that --db or REFDB_URL names.
func (a *app) dialect() (migrations.Dialect, error) {
	if a.url == "" {
		return "", usage("no database named: give --db URL or set REFDB_URL, to " + drivers.URLForms)
	}
	return drivers.DialectOf(a.url)
}

// open opens the database. o.Site, Logger and DigestKey are filled in.
func (a *app) open(ctx context.Context, o refdb.Options) (*refdb.DB, error) {
	if _, err := a.dialect(); err != nil {
		return nil, err
	}
	driver, err := reach(ctx, a, a.openDriver)
	if err != nil {
		return nil, err
	}
	o.Site, o.Logger, o.DigestKey = a.site, a.logger(), []byte(a.env("REFDB_DIGEST_KEY"))
	db, err := refdb.New(driver, o)
	if err != nil {
		return nil, errors.Join(err, driver.Close())
	}
	return db, nil
}

// withMigrator opens the database, whatever its schema, for do.
func (a *app) withMigrator(ctx context.Context, do func(*migrations.Migrator, migrations.Dialect) error) (err error) {
	dialect, err := a.dialect()
	if err != nil {
		return err
	}
	m, err := reach(ctx, a, schema.Open)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	return do(m, dialect)
}

// reach opens something at the database's URL, within the timeout.
func reach[T any](ctx context.Context, a *app, open func(context.Context, string) (T, error)) (T, error) {
	opening, opened := a.opening(ctx)
	defer opened()
	t, err := open(opening, a.url)
	return t, opening.explain(err)
}
