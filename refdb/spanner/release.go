package spanner

import (
	"context"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Release deletes the rows of a lock that still match.
func (d *Driver) Release(ctx context.Context, r refdb.ReleaseRequest) (released refdb.Released, err error) {
	keys := make([]lockKey, len(r.Refs))
	for i, ref := range r.Refs {
		keys[i] = keyOf(i, refdb.LockID{Project: r.Project, Ref: ref, Owner: r.Owner, Token: r.Token})
	}
	deleted, err := d.deleteMatching(ctx, request{tag: "refdb.release", what: "release locks"}, matchSQL, keys)
	for i, ok := range deleted {
		if !ok {
			released.Missing = append(released.Missing, r.Refs[i])
		}
	}
	return released, err
}

// Purge deletes the locks that still match.
func (d *Driver) Purge(ctx context.Context, locks []refdb.StandingLock) ([]bool, error) {
	keys := make([]lockKey, len(locks))
	for i, l := range locks {
		keys[i] = keyOf(i, l.LockID)
		keys[i].Heartbeat = spanner.NullInt64{Int64: l.Heartbeat.UnixMicro(), Valid: !l.Heartbeat.IsZero()}
	}
	return d.deleteMatching(ctx, request{tag: "refdb.purge", what: "purge locks"}, matchSQL+heartbeatSQL, keys)
}

// deleteMatching deletes the rows of locks that match, and says which did.
func (d *Driver) deleteMatching(ctx context.Context, r request, sql string, keys []lockKey) (deleted []bool, err error) {
	_, err = decide(ctx, d, r, matching(sql, keys), func(b *batch, match []bool) error {
		for i, k := range keys {
			if match[i] {
				b.deleteLock(k.Project, k.Ref)
			}
		}
		deleted = match
		return nil
	})
	if err != nil {
		return nil, err
	}
	return deleted, nil
}

// Abandon deletes the rows that an acquisition took.
func (d *Driver) Abandon(ctx context.Context, r refdb.AbandonRequest) error {
	_, err := decide(ctx, d, request{tag: "refdb.abandon", what: "abandon locks"}, statesOf(stateStatement(r.Project), lockKeys(r.Refs)),
		func(b *batch, states []state) error {
			for _, l := range survey(claim{project: r.Project, owner: r.Owner, nonce: r.Nonce}, states).ours {
				b.deleteLock(l.Project, l.Ref)
			}
			return nil
		})
	return err
}
