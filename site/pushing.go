package site

import (
	"errors"
	"fmt"

	"github.com/globalrefdb/globalrefdb/site/wire"
)

// An outage is that the database did not answer. It is remembered for the push
// that found it: each of its refs would wait for as long again.
type outage struct{ text string }

func (o outage) Error() string { return o.text }

// pushing returns the push that runs the hook, watched from now on. The error is its outage, if it had one.
func (d *Daemon) pushing(c *Config, hook peer, said *wire.Process) (*push, error) {
	a, err := hook.pusher(c, said, d.boot)
	var p *push
	if err == nil {
		p, err = d.track(d.work, a)
	}
	if err == nil {
		err = hook.stillOf(a)
	}
	if err != nil {
		return nil, fmt.Errorf("nothing was changed: %w", err)
	}
	return p, p.outage()
}

func (p *push) outage() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// remember keeps err in mind if it is an outage, and returns it.
func (p *push) remember(err error) error {
	if o := (outage{}); errors.As(err, &o) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.failed = o
	}
	return err
}
