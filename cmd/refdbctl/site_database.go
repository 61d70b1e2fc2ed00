package main

import (
	"context"
	"errors"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// withSiteDB is withDB for work that asks the database many times out of our
// sight: the timeout holds for each request.
func (a *app) withSiteDB(ctx context.Context, do func(*refdb.DB) error) (err error) {
	db, err := a.openForSite(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return do(db)
}

func (a *app) openForSite(ctx context.Context) (*refdb.DB, error) {
	impatient := *a
	impatient.openDriver = func(ctx context.Context, url string) (refdb.Driver, error) {
		d, err := a.openDriver(ctx, url)
		if err != nil {
			return nil, err
		}
		return limitedDriver{d, a}, nil
	}
	return impatient.open(ctx, refdb.Options{})
}

// limitedDriver gives the requests that read rows the timeout.
type limitedDriver struct {
	refdb.Driver
	app *app
}

func (d limitedDriver) List(ctx context.Context, q refdb.RefQuery) (refdb.RefPage, error) {
	ctx, cancel := d.app.limited(ctx)
	defer cancel()
	return d.Driver.List(ctx, q)
}

func (d limitedDriver) States(ctx context.Context, project string, refs []string) ([]refdb.State, error) {
	ctx, cancel := d.app.limited(ctx)
	defer cancel()
	return d.Driver.States(ctx, project, refs)
}

func (d limitedDriver) Intents(ctx context.Context, q refdb.IntentQuery) (refdb.IntentPage, error) {
	ctx, cancel := d.app.limited(ctx)
	defer cancel()
	return d.Driver.Intents(ctx, q)
}
