package postgres

import (
	"context"
	"slices"
)

// carryOut makes the round trip of a batch, with those of the calls that are
// still wanted once there is a connection.
func (d *Driver) carryOut(ctx context.Context, calls []call, wanted func() []call) error {
	t := roundTrip{what: "in a batch of requests", writes: true, hasty: len(calls) > 1, late: func() roundTrip {
		calls = wanted()
		return d.batch(calls)
	}}
	if len(calls) == 1 {
		t.what = calls[0].what()
	}
	if slices.ContainsFunc(calls, func(c call) bool { _, ok := c.(*releaseCall); return ok }) {
		t.spare = d.spares.releases
	}
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

// batch is the round trip of calls, with one statement for each kind of
// them. The keys come first, so that the transaction, of whose number tokens are
// made, begins after all that had them before.
func (d *Driver) batch(calls []call) (t roundTrip) {
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
	return t.acquireCalls(f, acquires)
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
