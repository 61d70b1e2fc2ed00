package spanner

import (
	"sync/atomic"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// A client is one of Google's. It keeps one session for good, even after the
// server lost it, as when the database is dropped and restored; then the driver
// replaces it. Its users are the work that was begun with it, and the driver,
// until it is replaced.
type client struct {
	*spanner.Client
	users atomic.Int32
}

func newUsed(c *spanner.Client) *client {
	used := &client{Client: c}
	used.users.Store(1)
	return used
}

// leave closes the client behind its last user.
func (c *client) leave() {
	if c.users.Add(-1) == 0 {
		c.Close()
	}
}

// start registers work that Close waits for, and returns the client to do it
// with; its end must be told with finish.
func (d *Driver) start() (*client, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, refdb.ErrClosed
	}
	d.work.Add(1)
	d.client.users.Add(1)
	return d.client, nil
}

func (d *Driver) finish(c *client) {
	c.leave()
	d.work.Done()
}

// renew gives c a client with another session, if err says that the server
// lost the one it had, or, if shared, may say that another process works in it:
// then nothing was done, and c may ask again. Otherwise it
// returns the error that c ends with. It renews once in a call, so that a server
// that loses every session isn't asked forever.
func (d *Driver) renew(c *call, err error, shared bool) error {
	if c.renewed || !sessionLost(err) && !(shared && d.forgot(err)) {
		return err
	}
	c.renewed = true
	next, err := d.replace(c.client)
	if err != nil {
		return err
	}
	c.client.leave()
	c.client = next
	return nil
}

// replace returns what takes the place of lost, which its caller is a user of.
// It is the same for all callers.
func (d *Driver) replace(lost *client) (*client, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.client == lost {
		next, err := d.connect()
		if err != nil {
			return nil, err
		}
		lost.leave()
		d.client = newUsed(next)
	}
	d.client.users.Add(1)
	return d.client, nil
}
