package postgres

import "context"

// share is the trip of the lane: one statement for each kind of call. The keys
// come first, so that the transaction, of whose number tokens are made, begins
// after all that had them before.
func (d *Driver) share(ctx context.Context, together []call) error {
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
	for _, c := range together {
		switch c := c.(type) {
		case *releaseCall:
			releases.add(c)
		case *acquireCall:
			acquires.add(c, key(c))
		case *updateCall:
			if c.change.plain(c.transaction) {
				plain.add(c, key(c))
			} else {
				others.add(c, key(c))
			}
		}
	}
	t := trip{what: "in a shared trip", writes: true}
	if len(keyed) > 0 {
		t = t.tryRefs(keyed)
	}
	if len(releases.calls) > 0 {
		t = t.then(releaseSharedSQL, releases.read, releases.args()...)
	}
	if len(plain.calls) > 0 {
		t = t.then(updatePlainSharedSQL, plain.readPlain, plain.plainArgs()...)
	}
	if len(others.calls) > 0 {
		t = t.then(updateSharedSQL, others.read, others.args()...)
	}
	if len(acquires.calls) > 0 {
		t = t.raise(d.lag).then(acquireSharedSQL, acquires.read, acquires.args()...)
	}
	err := d.do(ctx, t)
	if err == nil {
		// Here, for those who asked may have given up meanwhile.
		d.released(append(releases.freed(), others.freed()...))
	}
	return err
}
