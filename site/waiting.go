package site

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/site/wire"
)

// A waiting is who waits for an answer that may take long: a hook, a guard. Meanwhile it is told to wait on.
type waiting struct {
	send func(text string) error // the text is for a person to read, unless it is ""

	mu    sync.Mutex
	bytes int64  // that were stored since it was told last
	text  string // that it is told next
}

func waitingHook(conn *net.UnixConn) *waiting {
	return &waiting{send: func(text string) error {
		conn.SetWriteDeadline(time.Now().Add(writeLimit))
		return wire.Wait(conn, text)
	}}
}

// waitingGuard is a guard that waits for the answer to an announcement. Of a session that has ended nobody is told.
func waitingGuard(s *session, tx string) *waiting {
	return &waiting{send: func(text string) error {
		s.send(wire.WaitOn{TX: tx, Text: text})
		return nil
	}}
}

// keepWaiting tells it to wait on, again and again, until stop is called. The context ends when it has gone, too.
func (w *waiting) keepWaiting(parent context.Context) (ctx context.Context, stop context.CancelFunc) {
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
				if w.tell() != nil {
					cancel()
					return
				}
			}
		}
	}()
	return ctx, func() { cancel(); <-done }
}

func (w *waiting) tell() error {
	w.mu.Lock()
	text := w.text
	if w.text = ""; w.bytes > 0 {
		text, w.bytes = wire.ObjectsStored(w.bytes), 0
	}
	w.mu.Unlock()
	return w.send(text)
}

// stored records how many bytes are in the database.
func (w *waiting) stored(bytes int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bytes = bytes
	return nil
}

// say tells what the daemon does. Of what is said within a second the last counts.
func (w *waiting) say(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = text
}
