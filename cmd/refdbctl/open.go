package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

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

// open opens the database. It sets o.Site, o.By, o.Logger and o.DigestKey.
func (a *app) open(ctx context.Context, o refdb.Options) (*refdb.DB, error) {
	if _, err := a.dialect(); err != nil {
		return nil, err
	}
	driver, err := openURL(ctx, a, a.openDriver)
	if err != nil {
		return nil, err
	}
	o.Site, o.By, o.Logger, o.DigestKey = a.site, recordable(a.who()), a.logger(), []byte(a.env("REFDB_DIGEST_KEY"))
	db, err := refdb.New(driver, o)
	if err != nil {
		return nil, errors.Join(err, driver.Close())
	}
	return db, nil
}

// withMigrator calls do with a migrator of the database, whose schema may have any version.
func (a *app) withMigrator(ctx context.Context, do func(*migrations.Migrator, migrations.Dialect) error) (err error) {
	dialect, err := a.dialect()
	if err != nil {
		return err
	}
	m, err := openURL(ctx, a, schema.Open)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	return do(m, dialect)
}

// openURL calls open with the database's URL, within the timeout.
func openURL[T any](ctx context.Context, a *app, open func(context.Context, string) (T, error)) (T, error) {
	opening, opened := a.openingContext(ctx)
	defer opened()
	t, err := open(opening, a.url)
	return t, opening.timeoutError(err)
}

// limited returns a context for one request to the database.
func (a *app) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if a.timeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, a.timeout)
}

// watchdog is a context that ends when one wait for the database takes longer than the
// timeout. A new one is running.
type watchdog struct {
	context.Context
	timeout time.Duration // 0: none
	timer   *time.Timer
}

func (a *app) newWatchdog(parent context.Context) *watchdog {
	ctx, cancel := context.WithCancelCause(parent)
	w := &watchdog{Context: ctx, timeout: a.timeout}
	w.timer = time.AfterFunc(a.timeout, func() { cancel(context.DeadlineExceeded) })
	if a.timeout <= 0 {
		w.timer.Stop()
	}
	return w
}

// stop is called when the wait for the database is over.
func (w *watchdog) stop() { w.timer.Stop() }

// restart is called when the next wait begins.
func (w *watchdog) restart() {
	if w.timeout > 0 {
		w.timer.Reset(w.timeout)
	}
}

// timeoutError wraps context.DeadlineExceeded around an error that the timeout caused.
func (w *watchdog) timeoutError(err error) error {
	if err != nil && context.Cause(w) == context.DeadlineExceeded && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return err
}

// openingContext returns the context for opening a database. After done, neither the
// timeout nor ctx ends it any more: the open connection may go on using it.
func (a *app) openingContext(ctx context.Context) (_ *watchdog, done func()) {
	lasting, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stopCancel := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	w := a.newWatchdog(lasting)
	return w, func() {
		w.stop()
		stopCancel()
	}
}

// withRowTimeout iterates over rows, which the library reads page by page. The timeout holds
// for each wait for the database, not for what the caller does with the rows.
func withRowTimeout[T any](ctx context.Context, a *app, rows func(context.Context) iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		w := a.newWatchdog(ctx)
		defer w.stop()
		for row, err := range rows(w) {
			w.stop()
			if !yield(row, w.timeoutError(err)) || err != nil {
				return
			}
			w.restart()
		}
	}
}
