package sqlite

import (
	"context"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	release = `DELETE FROM locks` + matches

	purge = release + ` AND (?6 IS NULL OR coalesce(heartbeat, 0) = ?6)`

	// The locks of a claim.
	claimed = ` WHERE project = ?1 AND ref IN (SELECT value FROM json_each(?2)) AND owner = ?3 AND nonce = ?4`

	abandon = `DELETE FROM locks` + claimed + ` AND coalesce(stale_after, 0) < ?5`
)

// Release implements refdb.LockStore.
func (d *Driver) Release(ctx context.Context, r refdb.ReleaseRequest) (released refdb.Released, err error) {
	deleted, err := d.writeEach(ctx, "release locks", len(r.Refs), func(t *tx, i int) (bool, error) {
		return t.execOne(release, matching(refdb.LockID{Project: r.Project, Ref: r.Refs[i], Owner: r.Owner, Token: r.Token})...)
	})
	for i, ok := range deleted {
		if !ok {
			released.Missing = append(released.Missing, r.Refs[i])
		}
	}
	return released, err
}

// Purge implements refdb.LockStore.
func (d *Driver) Purge(ctx context.Context, locks []refdb.StandingLock) ([]bool, error) {
	return d.writeEach(ctx, "purge locks", len(locks), func(t *tx, i int) (bool, error) {
		var heartbeat any
		if l := locks[i]; !l.Heartbeat.IsZero() {
			heartbeat = l.Heartbeat.UnixMicro()
		}
		return t.execOne(purge, matching(locks[i].LockID, heartbeat)...)
	})
}

// Abandon implements refdb.LockStore. An Acquire that is under way has its turn before.
func (d *Driver) Abandon(ctx context.Context, r refdb.AbandonRequest) error {
	return d.write(ctx, "abandon locks", len(r.Refs), func(t *tx) error {
		_, err := t.exec(abandon, r.Project, asJSON(r.Refs), r.Owner, r.Nonce, microsOf(refdb.NeverStale))
		return err
	})
}
