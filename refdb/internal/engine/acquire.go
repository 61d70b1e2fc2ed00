package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// Acquire sends r, and repeats it if the reply is lost. If Acquire fails although the database may
// have granted the locks, it abandons them.
func (e *Engine) Acquire(ctx context.Context, r driver.AcquireRequest) (a driver.Acquired, abandoned bool, err error) {
	if e.Closing.Err() != nil {
		return driver.Acquired{}, false, driver.ErrClosed
	}
	if err := e.SchemaError(); err != nil {
		return driver.Acquired{}, false, err
	}
	var mayHold, unconfirmed bool // mayHold: the database may have granted the locks
	a, err = Retry(ctx, e, func(d driver.Driver) (driver.Acquired, error) {
		a, err := d.Acquire(ctx, r)
		unconfirmed = errors.Is(err, driver.ErrUnconfirmed)
		if errors.Is(err, driver.ErrOutcomeUnknown) && !unconfirmed {
			// Rows with the request's nonce belong to it: the next attempt finds them.
			mayHold = true
			err = fmt.Errorf("%w: %v", driver.ErrUnavailable, err)
		}
		return a, err
	})
	if unconfirmed {
		// Finding the rows again would not confirm them.
		mayHold = true
		err = fmt.Errorf("%w: %v", driver.ErrUnavailable, err)
	}
	if err != nil {
		if mayHold && ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
			err = fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		if mayHold {
			e.Abandon(r)
		}
	}
	return a, mayHold && err != nil, err
}

// Abandon ends the locks that an abandoned request may have acquired. If that fails too, the locks
// go stale, like those of a crashed process.
func (e *Engine) Abandon(r driver.AcquireRequest) {
	try := func() error {
		ctx, cancel := e.AttemptContext(e.Lasting)
		defer cancel()
		_, err := Retry(ctx, e, func(d driver.Driver) (struct{}, error) {
			err := d.Abandon(ctx, driver.AbandonRequest{Project: r.Project, Refs: r.Refs, Owner: r.Owner, Nonce: r.Nonce})
			return struct{}{}, Repeatable(err)
		})
		return err
	}
	e.InBackgroundOrNow(func() {
		err := e.RetryCleanup(try(), try)
		if err != nil {
			e.Logger.Warn("an abandoned lock may remain until it is stale",
				"lock", e.Digest(r.Project, r.Refs), "stale_after", e.StaleAfter, "class", driver.ClassOf(err).String())
		}
	})
}
