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
		acquires      acquireColumns
		releases      releaseColumns
		plain, others updateColumns
	)
	key := func(c call) (place int) {
		keyed = append(keyed, c.ref())
		return len(keyed)
	}
	for _, c := range calls {
		switch c := c.(type) {
		case *releaseCall:
			releases.add(c)
		case *acquireCall:
			acquires.add(c, key(c))
		case *updateCall:
			if c.plain() {
				plain.add(c, key(c))
			} else {
				others.add(c, key(c))
			}
		}
	}
	t := roundTrip{what: "in a batch of requests", writes: true}
	if len(calls) == 1 {
		t.what = calls[0].what()
	}
	if len(keyed) > 0 {
		t = t.tryRefs(keyed)
	}
	if len(releases.calls) > 0 {
		t = t.then(releaseBatchedSQL, releases.read, releases.args()...)
	}
	if len(plain.calls) > 0 {
		t = t.then(updatePlainSQL, plain.readPlain, plain.plainArgs()...)
	}
	if len(others.calls) > 0 {
		t = t.then(updateBatchedSQL, others.read, others.args()...)
	}
	if len(acquires.calls) > 0 {
		t = t.raise(d.lag).then(acquireBatchedSQL, acquires.read, acquires.args()...)
	}
	err := d.do(ctx, t)
	if err != nil {
		acquires.reset()
		releases.reset()
		plain.reset()
		others.reset()
		return err
	}
	// Here, because callers may have given up meanwhile.
	for _, c := range releases.calls {
		c.decide(d)
	}
	for _, c := range plain.calls {
		c.decide(d)
	}
	for _, c := range others.calls {
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
