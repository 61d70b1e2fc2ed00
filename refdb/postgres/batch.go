package postgres

import (
	"context"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// carryOut makes the round trip of a batch, with one statement for each kind of
// call. The keys come first, so that the transaction, of whose number tokens are
// made, begins after all that had them before.
func (d *Driver) carryOut(ctx context.Context, calls []call) error {
	var (
		keyed         []refName
		releases      []*releaseCall
		acquires      []*acquireCall
		plain, others []*updateCall
	)
	f := several
	if len(calls) == 1 {
		f = single
	}
	key := func(c call) (place int32) {
		keyed = append(keyed, c.ref())
		return int32(len(keyed))
	}
	for _, c := range calls {
		switch c := c.(type) {
		case *releaseCall:
			releases = append(releases, c)
		case *acquireCall:
			c.place = key(c)
			acquires = append(acquires, c)
		case *updateCall:
			c.place = key(c)
			if c.plain() {
				plain = append(plain, c)
			} else {
				others = append(others, c)
			}
		}
	}
	t := roundTrip{what: "in a batch of requests", writes: true, hasty: f == several}
	if len(calls) == 1 {
		t.what = calls[0].what()
	}
	if len(releases) > 0 {
		t.spare = d.spares.releases
	}
	switch {
	case len(keyed) == 0:
	case f == single:
		t = t.lockRef(keyed[0])
	default:
		t = t.tryRefs(keyed)
	}
	t = t.releaseCalls(f, releases).plainCalls(f, plain).updateCalls(f, others)
	if len(acquires) > 0 {
		t = t.raise(d.lag)
	}
	t = t.acquireCalls(f, acquires)
	if err := d.do(ctx, t); err != nil {
		reset(calls)
		return err
	}
	// Here, because callers may have given up meanwhile.
	for _, c := range calls {
		c.decide(d)
	}
	return nil
}

// disown wakes the first of a queue that went with the answer to somebody who
// has given up.
func (d *Driver) disown(c call) {
	for _, q := range c.queues() {
		d.wake(refdb.Wakeup{Project: c.ref().project, Ref: c.ref().ref, Queue: q})
	}
}

// reset leaves the calls undecided.
func reset[C call](calls []C) {
	for _, c := range calls {
		c.reset()
	}
}

// byName finds a call by its ref, of which a batch has each once.
func byName[C call](calls []C) map[refName]C {
	named := make(map[refName]C, len(calls))
	for _, c := range calls {
		named[c.ref()] = c
	}
	return named
}
