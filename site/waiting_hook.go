package site

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/site/wire"
)

// A waitingHook is the connection of a hook that waits for an answer which may take long.
type waitingHook struct {
	conn    *net.UnixConn
	patient bool // it waits on if it is told to

	mu    sync.Mutex
	bytes int64  // that were stored since it was told last
	text  string // that it is told next
}

// keepWaiting tells the hook to wait on, again and again, until stop is called. The context ends when the hook has gone, too.
func (h *waitingHook) keepWaiting(parent context.Context) (ctx context.Context, stop context.CancelFunc) {
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
				if h.tell() != nil {
					cancel()
					return
				}
			}
		}
	}()
	return ctx, func() { cancel(); <-done }
}

func (h *waitingHook) tell() error {
	h.mu.Lock()
	text := h.text
	if h.text = ""; h.bytes > 0 {
		text, h.bytes = wire.ObjectsStored(h.bytes), 0
	}
	h.mu.Unlock()
	h.conn.SetWriteDeadline(time.Now().Add(writeLimit))
	return wire.Wait(h.conn, text)
}

// stored records how many bytes of the push are in the database.
func (h *waitingHook) stored(bytes int64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bytes = bytes
	return nil
}

// say tells what the daemon does. Of what is said within a second the last counts.
func (h *waitingHook) say(text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.text = text
}
