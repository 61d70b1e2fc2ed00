package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"
)

// limited returns a context for one request to the database.
func (a *app) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if a.timeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, a.timeout)
}

// patience is a context that ends when the database lets us wait for longer
// than the timeout. It begins waiting.
type patience struct {
	context.Context
	limit time.Duration
	timer *time.Timer
}

func (a *app) patience(parent context.Context) *patience {
	ctx, cancel := context.WithCancelCause(parent)
	p := &patience{Context: ctx, limit: a.timeout}
	p.timer = time.AfterFunc(a.timeout, func() { cancel(context.DeadlineExceeded) })
	if a.timeout <= 0 {
		p.timer.Stop()
	}
	return p
}

// rest says that nobody waits for the database now.
func (p *patience) rest() { p.timer.Stop() }

func (p *patience) wait() {
	if p.limit > 0 {
		p.timer.Reset(p.limit)
	}
}

// explain says of an error that it is due to the timeout, if it is.
func (p *patience) explain(err error) error {
	if err != nil && context.Cause(p) == context.DeadlineExceeded && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return err
}

// opening returns the context for opening a database. When that is done,
// neither the timeout nor ctx ends it any more: what was begun in it may go on.
func (a *app) opening(ctx context.Context) (_ *patience, done func()) {
	lasting, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	p := a.patience(lasting)
	return p, func() {
		p.rest()
		unhook()
	}
}

// paced ranges over what the library reads page by page. The timeout holds for
// each wait for the database, not for what is done with the rows.
func paced[T any](ctx context.Context, a *app, rows func(context.Context) iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		p := a.patience(ctx)
		defer p.rest()
		for row, err := range rows(p) {
			p.rest()
			if !yield(row, p.explain(err)) || err != nil {
				return
			}
			p.wait()
		}
	}
}
