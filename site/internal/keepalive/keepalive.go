// Package keepalive tells a hook or a guard to keep waiting while its answer takes long.
package keepalive

import (
	"context"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/site/wire"
)

// waitEvery is how often a client is told to keep waiting.
const waitEvery = time.Second

// A Client is a hook or a guard that waits for its answer.
type Client struct {
	send func(text string) error // the text is for a person to read, unless it is ""

	mu    sync.Mutex
	bytes int64  // that were stored since the client was told last
	text  string // that the client is told next
}

// New returns a client that send tells to keep waiting.
func New(send func(text string) error) *Client { return &Client{send: send} }

// KeepWaiting tells the client to keep waiting, again and again, until stop is called. The context also ends when the client has gone.
func (c *Client) KeepWaiting(parent context.Context) (ctx context.Context, stop context.CancelFunc) {
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
				if c.Tell() != nil {
					cancel()
					return
				}
			}
		}
	}()
	return ctx, func() { cancel(); <-done }
}

// Tell tells the client once to keep waiting.
func (c *Client) Tell() error {
	c.mu.Lock()
	text := c.text
	if c.text = ""; c.bytes > 0 {
		text, c.bytes = wire.ObjectsStored(c.bytes), 0
	}
	c.mu.Unlock()
	return c.send(text)
}

// Stored records how many bytes are in the database.
func (c *Client) Stored(bytes int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bytes = bytes
	return nil
}

// Say tells what the daemon does. Of what is said within a second the last counts.
func (c *Client) Say(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text = text
}
