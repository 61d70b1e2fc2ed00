package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// late is a driver on a database that may be down when it is opened: until it
// is up, every request fails with refdb.ErrUnavailable and the reason.
type late struct {
	log    *slog.Logger
	cancel context.CancelFunc
	ended  chan struct{} // closed when it is open, or closed before

	mu     sync.Mutex
	driver refdb.Driver
	err    error // why it is not open yet
}

// openLate calls open until it succeeds.
func openLate(open func(context.Context) (refdb.Driver, error), log *slog.Logger) *late {
	ctx, cancel := context.WithCancel(context.Background())
	l := &late{log: log, cancel: cancel, ended: make(chan struct{}), err: refdb.ErrUnavailable}
	first := make(chan struct{})
	go func() {
		defer close(l.ended)
		pause := backoff.NewExponentialBackOff()
		pause.InitialInterval, pause.MaxInterval = 100*time.Millisecond, 5*time.Second
		for attempt := 1; ; attempt++ {
			err := l.attempt(ctx, open)
			if attempt == 1 {
				close(first)
			}
			if err == nil {
				return
			}
			log.WarnContext(ctx, "the database can't be opened; trying again", "attempt", attempt, "error", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause.NextBackOff()):
			}
		}
	}()
	// Usually it is up: then nobody needs to know of all this.
	select {
	case <-first:
	case <-time.After(time.Second):
	}
	return l
}

func (l *late) attempt(ctx context.Context, open func(context.Context) (refdb.Driver, error)) error {
	driver, err := open(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.driver = driver
	if err != nil {
		l.err = fmt.Errorf("%w: %w", refdb.ErrUnavailable, err)
	}
	return err
}

func (l *late) get() (refdb.Driver, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.driver == nil {
		return nil, l.err
	}
	return l.driver, nil
}

// Close ends the attempts, and closes what they led to.
func (l *late) Close() error {
	l.cancel()
	<-l.ended
	if d, err := l.get(); err == nil {
		return d.Close()
	}
	return nil
}

// late1 and late2 carry out a request with one or two arguments.
func late1[A, R any](l *late, ctx context.Context, a A, do func(refdb.Driver, context.Context, A) (R, error)) (r R, err error) {
	d, err := l.get()
	if err != nil {
		return r, err
	}
	return do(d, ctx, a)
}

func late2[A, B, R any](l *late, ctx context.Context, a A, b B, do func(refdb.Driver, context.Context, A, B) (R, error)) (r R, err error) {
	d, err := l.get()
	if err != nil {
		return r, err
	}
	return do(d, ctx, a, b)
}

func (l *late) Get(ctx context.Context, project string, refs []string) ([]refdb.Ref, error) {
	return late2(l, ctx, project, refs, refdb.Driver.Get)
}

func (l *late) List(ctx context.Context, q refdb.RefQuery) ([]refdb.Ref, error) {
	return late1(l, ctx, q, refdb.Driver.List)
}

func (l *late) Update(ctx context.Context, t refdb.Transaction) error {
	d, err := l.get()
	if err != nil {
		return err
	}
	return d.Update(ctx, t)
}

func (l *late) Remove(ctx context.Context, r refdb.RemoveRequest) (int, error) {
	return late1(l, ctx, r, refdb.Driver.Remove)
}

func (l *late) Acquire(ctx context.Context, r refdb.AcquireRequest) (refdb.Acquired, error) {
	return late1(l, ctx, r, refdb.Driver.Acquire)
}

func (l *late) Beat(ctx context.Context, owner string, held []refdb.Held) ([]refdb.BeatResult, error) {
	return late2(l, ctx, owner, held, refdb.Driver.Beat)
}

func (l *late) Release(ctx context.Context, held []refdb.Held) ([]bool, error) {
	return late1(l, ctx, held, refdb.Driver.Release)
}

func (l *late) Locks(ctx context.Context, q refdb.LockQuery) ([]refdb.LockInfo, error) {
	return late1(l, ctx, q, refdb.Driver.Locks)
}

func (l *late) Intents(ctx context.Context, q refdb.IntentQuery) ([]refdb.Intent, error) {
	return late1(l, ctx, q, refdb.Driver.Intents)
}

func (l *late) Resolve(ctx context.Context, r refdb.ResolveRequest) ([]bool, error) {
	return late1(l, ctx, r, refdb.Driver.Resolve)
}

func (l *late) Revoke(ctx context.Context, r refdb.AcquireRequest) error {
	d, err := l.get()
	if err != nil {
		return err
	}
	return d.Revoke(ctx, r)
}

func (l *late) Forget(ctx context.Context, intents []refdb.Intent) error {
	d, err := l.get()
	if err != nil {
		return err
	}
	return d.Forget(ctx, intents)
}

func (l *late) States(ctx context.Context, project string, refs []string) ([]refdb.State, error) {
	return late2(l, ctx, project, refs, refdb.Driver.States)
}

func (l *late) Now(ctx context.Context) (time.Time, error) {
	d, err := l.get()
	if err != nil {
		return time.Time{}, err
	}
	return d.Now(ctx)
}
