package postgres

import (
	"context"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Release deletes the row of a single ref in a batch, unless that is locked or missing.
func (d *Driver) Release(ctx context.Context, r refdb.ReleaseRequest) (refdb.Released, error) {
	if len(r.Refs) == 1 {
		c := releaseCall{request: r}
		if err := d.batcher.do(ctx, &c); err != nil {
			return refdb.Released{}, err
		}
		if c.row.deleted {
			return c.released, nil
		}
	}
	rows := make(heldArray, len(r.Refs)) // sorted
	for i, ref := range r.Refs {
		rows[i] = heldLock{refdb.StandingLock{LockID: refdb.LockID{Project: r.Project, Ref: ref, Owner: r.Owner, Token: r.Token}}, i}
	}
	found, err := d.deleteHeld(ctx, "release locks", rows)
	if err != nil {
		return refdb.Released{}, err
	}
	var released refdb.Released
	queues := make([]refdb.Queue, len(r.Refs))
	for i, row := range found {
		if row.deleted {
			queues[i] = queueOf(row.waiting, r.Handoff)
		} else {
			released.Missing = append(released.Missing, r.Refs[i])
		}
	}
	released.Queues = d.released(r.Project, r.Refs, queues, r.Handoff)
	return released, nil
}

// Purge deletes locks of any projects.
func (d *Driver) Purge(ctx context.Context, locks []refdb.StandingLock) ([]bool, error) {
	if len(locks) == 0 {
		return nil, nil
	}
	rows := make(heldArray, len(locks))
	for i, l := range locks {
		rows[i] = heldLock{l, i}
	}
	found, err := d.deleteHeld(ctx, "purge locks", sortHeld(rows))
	if err != nil {
		return nil, err
	}
	purged := make([]bool, len(locks))
	for i, row := range found {
		purged[i] = row.deleted
		d.wakeFreed(freedLock{locks[i].Project, locks[i].Ref, row.waiting})
	}
	return purged, nil
}
