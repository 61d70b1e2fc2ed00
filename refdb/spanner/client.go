package spanner

import (
	"sync/atomic"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// A client is one of Google's, with a count of its users. It keeps one session for good,
// even after the server lost it, as when the database is dropped and restored. Then
// the driver replaces the client. The users are the work that was begun with it and,
// until it is replaced, the driver.
type client struct {
	*spanner.Client
	users atomic.Int32
}

// countUsers returns a client with one user.
func countUsers(c *spanner.Client) *client {
	counted := &client{Client: c}
	counted.users.Store(1)
	return counted
}

// release ends the use of the client, and closes it after its last user.
func (c *client) release() {
	if c.users.Add(-1) == 0 {
		c.Close()
	}
}

// startWork registers work that Close waits for, and returns the client to do it
// with. The work ends with finishWork.
func (d *Driver) startWork() (*client, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, refdb.ErrClosed
	}
	d.work.Add(1)
	d.client.users.Add(1)
	return d.client, nil
}

func (d *Driver) finishWork(c *client) {
	c.release()
	d.work.Done()
}

// renewSession gives c a client with another session if the server lost the session: then
// nothing was done, and c may ask again. Otherwise it returns the error
// that c ends with. With shared it also does so if err may mean that another process
// works in the same session of an emulator. It renews once in a call, so that a server
// that loses every session is not asked forever.
func (d *Driver) renewSession(c *call, err error, shared bool) error {
	if c.renewed || !sessionLost(err) && !(shared && d.emulatorForgot(err)) {
		return err
	}
	c.renewed = true
	next, err := d.replaceClient(c.client)
	if err != nil {
		return err
	}
	c.client.release()
	c.client = next
	return nil
}

// replaceClient returns the client that replaces lost, which its caller uses.
// It is the same one for all callers.
func (d *Driver) replaceClient(lost *client) (*client, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.client == lost {
		next, err := d.connect()
		if err != nil {
			return nil, err
		}
		lost.release()
		d.client = countUsers(next)
	}
	d.client.users.Add(1)
	return d.client, nil
}
