package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/drivers"
	"github.com/globalrefdb/globalrefdb/refdb/drivers/schema"
)

// Sleep waits for d. If ctx ends first, Sleep returns its cause.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// Dialect returns the kind of the database that --db or REFDB_URL names.
func (a *Run) Dialect() (migrations.Dialect, error) {
	if a.URL == "" {
		return "", exit.Usage("no database named: give --db URL or set REFDB_URL, to " + drivers.URLForms)
	}
	return drivers.DialectOf(a.URL)
}

// Open opens the database. It sets o.Site, o.By, o.Logger and o.DigestKey.
func (a *Run) Open(ctx context.Context, o refdb.Options) (*refdb.DB, error) {
	if _, err := a.Dialect(); err != nil {
		return nil, err
	}
	driver, err := OpenURL(ctx, a, a.OpenDriver)
	if err != nil {
		return nil, err
	}
	o.Site, o.By, o.Logger, o.DigestKey = a.Site, a.By(), a.Logger(), []byte(a.Env("REFDB_DIGEST_KEY"))
	db, err := refdb.New(driver, o)
	if err != nil {
		return nil, errors.Join(err, driver.Close())
	}
	return db, nil
}

// WithMigrator calls do with a migrator of the database, whose schema may have any version.
func (a *Run) WithMigrator(ctx context.Context, do func(*migrations.Migrator, migrations.Dialect) error) (err error) {
	dialect, err := a.Dialect()
	if err != nil {
		return err
	}
	m, err := OpenURL(ctx, a, schema.Open)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	return do(m, dialect)
}

// OpenURL calls open with the database's URL, within the timeout.
func OpenURL[T any](ctx context.Context, a *Run, open func(context.Context, string) (T, error)) (T, error) {
	opening, opened := a.openingContext(ctx)
	defer opened()
	t, err := open(opening, a.URL)
	return t, opening.timeoutError(err)
}

// Limited returns a context for one request to the database.
func (a *Run) Limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if a.Timeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, a.Timeout)
}

// watchdog is a context that ends when a single wait for the database exceeds the timeout. A new
// watchdog is running.
type watchdog struct {
	context.Context
	timeout time.Duration
	timer   *time.Timer // nil without a timeout
}

func (a *Run) newWatchdog(parent context.Context) *watchdog {
	if a.Timeout <= 0 {
		return &watchdog{Context: parent}
	}
	ctx, cancel := context.WithCancelCause(parent)
	timer := time.AfterFunc(a.Timeout, func() { cancel(context.DeadlineExceeded) })
	return &watchdog{Context: ctx, timeout: a.Timeout, timer: timer}
}

// stop is called at the end of a wait for the database.
func (w *watchdog) stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
}

// restart is called at the start of the next wait.
func (w *watchdog) restart() {
	if w.timer != nil {
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

// openingContext returns the context for opening a database. After done, neither the timeout nor
// ctx ends it: the open connection may continue to use it.
func (a *Run) openingContext(ctx context.Context) (_ *watchdog, done func()) {
	lasting, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stopCancel := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	w := a.newWatchdog(lasting)
	return w, func() {
		w.stop()
		stopCancel()
	}
}

// WithRowTimeout iterates over rows, which the library reads page by page. The timeout applies to
// each wait for the database, not to the caller's processing of the rows.
func WithRowTimeout[T any](ctx context.Context, a *Run, rows func(context.Context) iter.Seq2[T, error]) iter.Seq2[T, error] {
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
