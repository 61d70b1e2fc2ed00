package postgres

import (
	"context"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Release ends a lock on a single ref in a batch, unless its row is locked or missing.
func (d *Driver) Release(ctx context.Context, r refdb.ReleaseRequest) (refdb.Released, error) {
	if len(r.Refs) == 1 {
		c := releaseCall{request: r}
		if err := d.batcher.do(ctx, &c); err != nil {
			return refdb.Released{}, err
		}
		if c.row.ended {
			return refdb.Released{}, nil
		}
	}
	rows := make(heldArray, len(r.Refs)) // sorted
	for i, ref := range r.Refs {
		rows[i] = heldLock{refdb.StandingLock{LockID: refdb.LockID{Project: r.Project, Ref: ref, Owner: r.Owner, Token: r.Token}}, i}
	}
	found, err := d.endHeld(ctx, "release locks", rows, nextText(r.Next, r.Owner))
	if err != nil {
		return refdb.Released{}, err
	}
	var released refdb.Released
	for i, row := range found {
		if !row.ended {
			released.Missing = append(released.Missing, r.Refs[i])
		}
		d.tell(r.Project, r.Refs[i], row.told)
	}
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
	found, err := d.endHeld(ctx, "purge locks", sortHeld(rows), "")
	if err != nil {
		return nil, err
	}
	purged := make([]bool, len(locks))
	for i, row := range found {
		purged[i] = row.ended
		d.tell(locks[i].Project, locks[i].Ref, row.told)
	}
	return purged, nil
}
