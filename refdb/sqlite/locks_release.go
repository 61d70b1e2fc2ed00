package sqlite

import (
	"context"
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/queue"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

const (
	purge = `DELETE FROM locks` + matches + ` AND waiting IS NULL AND (?6 IS NULL OR coalesce(heartbeat, 0) = ?6)`

	release = `DELETE FROM locks` + matches + ` AND waiting IS NULL`

	// claimed is rules.Claim.Took in SQL, for leases and for intents.
	claimed = ` WHERE project = ?1 AND ref IN (SELECT value FROM json_each(?2)) AND owner = ?3 AND nonce = ?4`

	abandon = `DELETE FROM locks` + claimed + isLease + ` AND waiting IS NULL`
)

// Release implements driver.LockStore.
func (d *Driver) Release(ctx context.Context, r driver.ReleaseRequest) (driver.Released, error) {
	missing, err := write(ctx, d, "release locks", len(r.Refs), func(t *tx) ([]string, error) { return t.release(r) })
	return driver.Released{Missing: missing}, err
}

// release returns the refs whose rows did not match.
func (t *tx) release(r driver.ReleaseRequest) (missing []string, err error) {
	id := driver.LockID{Project: r.Project, Owner: r.Owner, Token: r.Token}
	var rest []string
	for _, id.Ref = range r.Refs {
		deleted, err := t.execOne(release, matching(id)...)
		if err != nil {
			return nil, err
		}
		if !deleted {
			rest = append(rest, id.Ref)
		}
	}
	if len(rest) == 0 {
		return nil, nil
	}
	var queued []string
	err = t.decideRows(r.Project, rest, func(row rules.Row) queue.RowUpdate {
		if id.Ref = row.Name; !rules.Stands(row.Lock, id, rules.Lease) {
			return queue.RowUpdate{}
		}
		queued = append(queued, id.Ref)
		return queue.End(*row.Lock, row.Queue, r.Next, timeOf(t.now))
	})
	return slices.DeleteFunc(rest, func(ref string) bool {
		_, found := slices.BinarySearch(queued, ref)
		return found
	}), err
}

// Purge implements driver.LockStore.
func (d *Driver) Purge(ctx context.Context, locks []driver.StandingLock) ([]bool, error) {
	return d.writeEach(ctx, "purge locks", len(locks), func(t *tx, i int) (bool, error) { return t.purge(locks[i]) })
}

// purge reports whether the row matched.
func (t *tx) purge(l driver.StandingLock) (matched bool, err error) {
	var heartbeat any
	if !l.Heartbeat.IsZero() {
		heartbeat = l.Heartbeat.UnixMicro()
	}
	if matched, err = t.execOne(purge, matching(l.LockID, heartbeat)...); matched || err != nil {
		return matched, err
	}
	err = t.decideRows(l.Project, []string{l.Ref}, func(row rules.Row) queue.RowUpdate {
		if matched = rules.StandsAsListed(row.Lock, l); !matched {
			return queue.RowUpdate{}
		}
		return queue.Purge(*row.Lock, row.Queue, timeOf(t.now))
	})
	return matched, err
}

// Abandon implements driver.LockStore. An Acquire in progress writes before it.
func (d *Driver) Abandon(ctx context.Context, r driver.AbandonRequest) error {
	return d.write(ctx, "abandon locks", len(r.Refs), func(t *tx) error {
		n, err := t.exec(abandon, r.Project, asJSON(r.Refs), r.Owner, orNull(r.Nonce), microsOf(driver.NeverStale))
		if err != nil || int(n) == len(r.Refs) {
			return err
		}
		return t.decideRows(r.Project, r.Refs, func(row rules.Row) queue.RowUpdate { return rules.Abandon(r, row, timeOf(t.now)) })
	})
}
