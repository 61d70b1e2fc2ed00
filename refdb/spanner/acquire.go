package spanner

import (
	"context"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/internal/queue"
)

const (
	// sweepTime bounds the deletion of markers, which Close waits for.
	sweepTime = 5 * time.Second
	// sweepWait is how long an acquisition waits for it: long enough that no
	// marker is seen after a reclaim in fair weather.
	sweepWait = 250 * time.Millisecond
)

// A claim is what a request wants to write into the rows of locks.
type claim struct {
	project, owner, nonce string
	staleAfter            time.Duration
	waiter                refdb.Waiter // zero if nobody waits
}

// took reports whether l was taken by an earlier request for the same claim, and
// by nobody since.
func (c claim) took(l *lock) bool {
	intended := c.staleAfter >= refdb.NeverStale
	return c.nonce != "" && l.nonce == c.nonce && l.Owner == c.owner && l.Intended() == intended
}

// Acquire takes the locks, or finds out what is in the way.
func (d *Driver) Acquire(ctx context.Context, r refdb.AcquireRequest) (refdb.Acquired, error) {
	return d.acquire(ctx, request{tag: "refdb.acquire", what: "acquire locks"}, statesOf(stateStatement(r.Project), stateKeys(r.Refs)),
		func(b *batch, states []state) (acquisition, error) {
			return planAcquire(b, claim{r.Project, r.Owner, r.Nonce, r.StaleAfter, r.Waiter}, states)
		})
}

// An acquisition is what becomes of a claim.
type acquisition struct {
	refdb.Acquired               // with a token only if an earlier request has taken the locks
	markers        []spanner.Key // to delete afterwards
}

// acquire carries out what plan makes of what read has found.
func (d *Driver) acquire(ctx context.Context, r request, read func(context.Context, *transaction) ([]state, error),
	plan func(*batch, []state) (acquisition, error)) (refdb.Acquired, error) {
	var a acquisition
	at, err := decide(ctx, d, r, read, func(b *batch, states []state) (err error) {
		a, err = plan(b, states)
		return err
	})
	if err != nil {
		return refdb.Acquired{Place: a.Place}, err
	}
	if a.Token == 0 {
		a.Token = refdb.TokenOf(at)
	}
	d.sweep(ctx, a.markers)
	return a.Acquired, nil
}

// planAcquire says what becomes of c in view of what stands on its refs.
func planAcquire(b *batch, c claim, states []state) (a acquisition, refused error) {
	found := survey(c, states)
	if len(found.ours) == len(states) {
		a.Token, a.Refs = found.ours[0].Token, found.refs
		return a, nil
	}
	v := found.decide(c)
	if v.Refused {
		for i, s := range states {
			b.leave(c.project, s.ref, v.After[i])
		}
		a.Place = v.Place
		return a, &refdb.LockedError{Holders: v.Others}
	}
	a = c.take(b, states)
	for i, s := range states {
		if left := v.After[i].Queue; len(s.queue)+len(left) > 0 {
			b.setQueue(c.project, s.ref, left)
		}
	}
	a.Refs, a.Reclaimed = found.refs, v.Others
	return a, nil
}

// findings are what a claim finds on its refs.
type findings struct {
	refs []refdb.Ref
	rows []queue.Row      // of locks, one for each ref
	ours []refdb.LockInfo // the locks that an earlier request for the same claim took
	now  time.Time        // if there is a lock
}

// survey puts states in the order of their refs.
func survey(c claim, states []state) (f findings) {
	slices.SortFunc(states, func(a, b state) int { return strings.Compare(a.ref, b.ref) })
	f.rows = make([]queue.Row, len(states))
	for i, s := range states {
		if s.value != nil {
			f.refs = append(f.refs, *s.value)
		}
		if s.lock == nil {
			continue
		}
		f.rows[i], f.now = c.row(s), s.now
		if f.rows[i].Ours {
			f.ours = append(f.ours, s.lock.LockInfo)
		}
	}
	return f
}

func (f findings) decide(c claim) queue.Verdict {
	return queue.Decide(f.rows, c.waiter, c.owner, f.now)
}

// take takes all refs, each of which is free, stale, kept for c's waiter or ours already.
//
// The transaction would exclude other reclaims by itself; the marker is for
// Gerrit's plugin, which inserts the same row when it reclaims. Whichever of us
// comes second fails to. To the plugin what is kept for somebody is a lock that becomes stale when
// the turn is over.
func (c claim) take(b *batch, states []state) (a acquisition) {
	for _, s := range states {
		if s.lock == nil {
			b.insertLock(s.ref, c)
			continue
		}
		if !c.took(s.lock) {
			project := marker(c.project, s.lock.token)
			b.insertMarker(project, s.ref, c.owner)
			a.markers = append(a.markers, spanner.Key{project, s.ref})
		}
		b.updateLock(s.ref, c)
	}
	return a
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
