package engine

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

const (
	// firstAttempt is the maximum time that Open waits for the first attempt.
	firstAttempt = time.Second

	// The pauses between attempts grow from openPauseMin to openPauseMax.
	openPauseMin = 100 * time.Millisecond
	openPauseMax = 5 * time.Second
)

// An opening is a driver that may not be open yet.
type opening struct {
	open   func(context.Context) (driver.Driver, error) // nil if the driver was open from the start
	cancel context.CancelFunc                           // ends the attempts
	done   chan struct{}                                // closed after the last attempt

	mu     sync.Mutex
	driver driver.Driver // nil before it is open
	err    error         // why it is not open
}

// start calls open until it succeeds. It returns after the first attempt, or after firstAttempt.
func (o *opening) start(log *slog.Logger) {
	ctx, cancel := context.WithCancel(context.Background())
	o.cancel, o.done = cancel, make(chan struct{})
	if o.driver != nil {
		close(o.done)
		return
	}
	o.err = driver.ErrUnavailable
	tried := make(chan struct{})
	go func() {
		defer close(o.done)
		pause := NewBackOff(openPauseMin, openPauseMax)
		for attempt := 1; ctx.Err() == nil; attempt++ {
			err := o.try(ctx)
			if attempt == 1 {
				close(tried)
			}
			if err == nil {
				return
			}
			log.WarnContext(ctx, "the database can't be opened; trying again", "attempt", attempt, "error", err)
			Sleep(ctx, pause.NextBackOff())
		}
	}()
	select {
	case <-tried:
	case <-time.After(firstAttempt):
	}
}

func (o *opening) try(ctx context.Context) error {
	d, err := o.open(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		o.err = fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
		return err
	}
	o.driver = d
	return nil
}

// get returns the driver, or an error that wraps ErrUnavailable and says why it is not open.
func (o *opening) get() (driver.Driver, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.driver == nil {
		return nil, o.err
	}
	return o.driver, nil
}

// close ends the attempts, and closes the driver if one succeeded.
func (o *opening) close() error {
	o.cancel()
	<-o.done
	if d, err := o.get(); err == nil {
		return d.Close()
	}
	return nil
}
