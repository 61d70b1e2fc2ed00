package spanner

import (
	"context"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/queue"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

const (
	// markersTimeout bounds the deletion of markers, which Close waits for.
	markersTimeout = 5 * time.Second
	// markersWait is how long an acquisition waits for that deletion: long enough that usually no
	// marker is left when a reclaim returns.
	markersWait = 250 * time.Millisecond
)

// A claim is what a request wants to write to the rows of locks.
type claim struct {
	rules.Claim
	project    string
	staleAfter time.Duration
}

// Acquire implements driver.LockStore.
func (d *Driver) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.Acquired, error) {
	return d.acquire(ctx, request{tag: "refdb.acquire", what: "acquire locks"}, statesOf(r.Project, stateKeys(r.Refs)),
		func(b *batch, states []state) (acquisition, error) { return planAcquire(b, &r, states) })
}

// An acquisition is the outcome of a claim.
type acquisition struct {
	rules.Acquisition
	markers []spanner.Key // to delete afterwards
}

// acquire runs a transaction in which plan decides on the states that read returns.
func (d *Driver) acquire(ctx context.Context, r request, read func(context.Context, *transaction) ([]state, error),
	plan func(*batch, []state) (acquisition, error)) (driver.Acquired, error) {
	a, at, err := decide(ctx, d, r, read, plan)
	if err != nil {
		return driver.Acquired{Place: a.Place}, err
	}
	if !a.Adopted {
		a.Token = driver.TokenOf(at)
	}
	d.deleteMarkers(ctx, a.markers)
	return a.Acquired, nil
}

// planAcquire decides the outcome of r, given the states of its refs.
func planAcquire(b *batch, r *driver.AcquireRequest, states []state) (a acquisition, refused error) {
	sortByRef(states)
	a.Acquisition, refused = rules.Acquire(*r, rowsOf(states), readAt(states))
	switch {
	case refused != nil:
		for i, s := range states {
			b.apply(r.Project, s.Name, a.After[i])
		}
	case !a.Adopted:
		a.markers = b.take(claim{rules.AcquireClaim(*r), r.Project, r.StaleAfter}, states, a.After)
	}
	return a, refused
}

func sortByRef(states []state) {
	slices.SortFunc(states, func(a, b state) int { return strings.Compare(a.Name, b.Name) })
}

// readAt returns the database's time at which states were read, zero if there is no lock.
func readAt(states []state) (now time.Time) {
	for _, s := range states {
		if s.Lock != nil {
			now = s.now
		}
	}
	return now
}

// take takes the locks on all refs, each of which is free, stale, reserved for the claim's waiter
// or already the claim's, and writes the queues of after to the rows. It returns the markers that
// it inserts.
//
// The transaction would exclude other reclaims by itself. The marker is for Gerrit's plugin, which
// inserts the same row when it reclaims, so that the second of the two reclaims fails. To the
// plugin, a reservation is a lock that becomes stale when the turn is over.
func (b *batch) take(c claim, states []state, after []queue.RowUpdate) (markers []spanner.Key) {
	for _, s := range states {
		if s.Lock == nil {
			b.insertLock(s.Name, c)
			continue
		}
		if !c.Took(s.Row) {
			project := marker(c.project, s.token)
			b.insertMarker(project, s.Name, c.Owner)
			markers = append(markers, spanner.Key{project, s.Name})
		}
		b.updateLock(s.Name, c)
	}
	for i, s := range states {
		if q := after[i].Queue; len(s.Queue)+len(q) > 0 {
			b.setQueue(c.project, s.Name, q)
		}
	}
	return markers
}

// deleteMarkers deletes the markers of a committed reclaim. They are ours until then, and no other
// process can need them: the token in their names is gone. If it fails to delete a marker, the
// marker is an orphan, which is harmless and is removed by a purge.
func (d *Driver) deleteMarkers(ctx context.Context, markers []spanner.Key) {
	if len(markers) == 0 {
		return
	}
	client, err := d.startWork()
	if err != nil {
		return
	}
	deleted := make(chan struct{})
	go func() {
		defer d.finishWork(client)
		defer close(deleted)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), markersTimeout+d.patience)
		defer cancel()
		if d.emulatorMutex.lock(ctx) != nil {
			return
		}
		defer d.emulatorMutex.unlock()
		// Deleting twice is harmless, so one request without a transaction suffices.
		_, _ = client.Apply(ctx, []*spanner.Mutation{spanner.Delete("locks", spanner.KeySetFromKeys(markers...))},
			spanner.ApplyAtLeastOnce(), spanner.TransactionTag("refdb.sweep"))
	}()
	timer := time.NewTimer(markersWait)
	defer timer.Stop()
	select {
	case <-deleted:
	case <-timer.C:
	case <-ctx.Done():
	}
}
