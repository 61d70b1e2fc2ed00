// Package waiting tells who waits for an answer that may take long to wait on.
package waiting

import (
	"context"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/site/wire"
)

// waitEvery is how often a hook is told to wait on.
const waitEvery = time.Second

// A Waiting is who waits for an answer that may take long: a hook, a guard. Meanwhile it is told to wait on.
type Waiting struct {
	send func(text string) error // the text is for a person to read, unless it is ""

	mu    sync.Mutex
	bytes int64  // that were stored since it was told last
	text  string // that it is told next
}

// New returns one that send tells to wait on.
func New(send func(text string) error) *Waiting { return &Waiting{send: send} }

// KeepWaiting tells it to wait on, again and again, until stop is called. The context ends when it has gone, too.
func (w *Waiting) KeepWaiting(parent context.Context) (ctx context.Context, stop context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(waitEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if w.Tell() != nil {
					cancel()
					return
				}
			}
		}
	}()
	return ctx, func() { cancel(); <-done }
}

// Tell tells it once to wait on.
func (w *Waiting) Tell() error {
	w.mu.Lock()
	text := w.text
	if w.text = ""; w.bytes > 0 {
		text, w.bytes = wire.ObjectsStored(w.bytes), 0
	}
	w.mu.Unlock()
	return w.send(text)
}

// Stored records how many bytes are in the database.
func (w *Waiting) Stored(bytes int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bytes = bytes
	return nil
}

// Say tells what the daemon does. Of what is said within a second the last counts.
func (w *Waiting) Say(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = text
}
