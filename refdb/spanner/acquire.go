package spanner

import (
	"context"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	// sweepTime bounds the deletion of markers, which Close waits for.
	sweepTime = 5 * time.Second
	// sweepWait is how long an acquisition waits for it: long enough that no
	// marker is seen after a reclaim in fair weather.
	sweepWait = 250 * time.Millisecond
)

// Acquire takes the locks, or finds out what is in the way.
func (d *Driver) Acquire(ctx context.Context, r refdb.AcquireRequest) (refdb.Acquired, error) {
	keys := make([]key, len(r.Refs))
	for i, ref := range r.Refs {
		keys[i] = key{Ref: ref, Lock: some(ref), Value: some(ref)}
	}
	var a acquisition
	at, err := d.transact(ctx, request{tag: "refdb.acquire", what: "acquire locks"}, func(ctx context.Context, t *transaction) error {
		read := func() ([]state, error) { return t.states(ctx, r.Project, keys) }
		if r.Intents != nil {
			read = func() ([]state, error) { return t.unrevoked(ctx, &r, keys) }
		}
		states, err := read()
		if err != nil {
			return err
		}
		if len(states) == 0 {
			a = acquisition{refused: refdb.ErrReleased}
			return nil
		}
		a = decide(&r, states)
		return t.write(&a.batch)
	})
	switch {
	case err != nil:
		return refdb.Acquired{}, err
	case a.refused != nil:
		return refdb.Acquired{}, failed("acquire locks", a.refused)
	case !a.adopted:
		a.Token = refdb.TokenOf(at)
	}
	d.sweep(ctx, a.markers)
	return a.Acquired, nil
}

// An acquisition is what becomes of an AcquireRequest.
type acquisition struct {
	refdb.Acquired
	adopted bool
	refused error
	batch   batch
	markers []spanner.Key // to delete afterwards
}

// decide says what becomes of a request in view of what stands on its refs.
func decide(r *refdb.AcquireRequest, states []state) (a acquisition) {
	slices.SortFunc(states, func(a, b state) int { return strings.Compare(a.ref, b.ref) })
	var holders []refdb.LockInfo
	var fresh bool
	var ours []string
	var mismatches []refdb.Mismatch
	for i, s := range states {
		of := s.lock != nil && s.lock.of(r)
		if of {
			ours = append(ours, s.ref)
			a.Token = s.lock.Token
		}
		// What is left of our intents was not ended by us: it is not given up.
		if s.lock != nil && (!of || r.Intents != nil) {
			holders = append(holders, s.lock.LockInfo)
			fresh = fresh || !s.lock.Stale()
		}
		if s.value != nil {
			a.Refs = append(a.Refs, *s.value)
		}
		if r.Intents != nil {
			mismatches = mismatch(mismatches, r.Intents[i], s.value)
		}
	}
	switch {
	case len(ours) == len(states):
		a.adopted = true
	case fresh:
		a.refused = &refdb.LockedError{Holders: holders}
		if r.Intents == nil {
			for _, ref := range ours {
				a.batch.deleteLock(r.Project, ref)
			}
		}
	case len(mismatches) > 0:
		a.refused = &refdb.MismatchError{Project: r.Project, Mismatches: mismatches}
	default:
		a.Reclaimed = holders
		for _, s := range states {
			a.take(r, s)
		}
		for _, u := range r.Intents {
			a.batch.insertIntent(u, r)
		}
	}
	return a
}

// of reports whether l was taken by an earlier request for the same acquisition,
// and by nobody since.
func (l *lock) of(r *refdb.AcquireRequest) bool {
	return r.Nonce != "" && l.nonce == r.Nonce && l.Owner == r.Owner
}

// take acquires one ref that is free, stale or ours already.
//
// The transaction would exclude other reclaims by itself; the marker is for
// Gerrit's plugin, which inserts the same row when it reclaims. Whichever of us
// comes second fails to.
func (a *acquisition) take(r *refdb.AcquireRequest, s state) {
	if s.lock == nil {
		a.batch.insertLock(s.ref, r)
		return
	}
	if !s.lock.of(r) {
		project := marker(r.Project, s.lock.token)
		a.batch.insertMarker(project, s.ref, r.Owner)
		a.markers = append(a.markers, spanner.Key{project, s.ref})
	}
	a.batch.updateLock(s.ref, r)
}

// sweep deletes the markers of a reclaim that has happened. They are ours until
// then, and nobody can need them again: the token in their names is gone. What
// it fails to delete is an orphan, which harms nobody and a purge removes.
func (d *Driver) sweep(ctx context.Context, markers []spanner.Key) {
	if len(markers) == 0 {
		return
	}
	client, err := d.start()
	if err != nil {
		return
	}
	swept := make(chan struct{})
	go func() {
		defer d.finish(client)
		defer close(swept)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sweepTime)
		defer cancel()
		if d.gate.enter(ctx) != nil {
			return
		}
		defer d.gate.leave()
		// Deleting twice does no harm, and so needs no transaction: one request.
		_, _ = client.Apply(ctx, []*spanner.Mutation{spanner.Delete("locks", spanner.KeySetFromKeys(markers...))},
			spanner.ApplyAtLeastOnce(), spanner.TransactionTag("refdb.sweep"))
	}()
	patient := time.NewTimer(sweepWait)
	defer patient.Stop()
	select {
	case <-swept:
	case <-patient.C:
	case <-ctx.Done():
	}
}
