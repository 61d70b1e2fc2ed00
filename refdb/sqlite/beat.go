package sqlite

import (
	"context"
	"errors"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// matches is rules.Stands in SQL, for leases. ?5 is driver.NeverStale.
const (
	matches = ` WHERE project = ?1 AND ref = ?2 AND owner = ?3 AND coalesce(token, 0) = ?4` + isLease
	isLease = ` AND coalesce(stale_after, 0) < ?5`
)

const renew = `UPDATE locks SET heartbeat = ?6` + matches

// matching returns the arguments of matches, followed by others.
func matching(l driver.LockID, others ...any) []any {
	return append([]any{l.Project, l.Ref, l.Owner, int64(l.Token), microsOf(driver.NeverStale)}, others...)
}

// beatRows is the maximum number of rows that a transaction renews. They take about 20 ms, during
// which other writers wait.
const beatRows = 5000

// Beat implements driver.LockStore. As there is no network, a prepared statement for each lock is
// several times as fast as one statement over a list. If the files were removed or replaced, all
// locks are lost: other processes don't see them, and this process can no longer renew them.
func (d *Driver) Beat(ctx context.Context, locks []driver.LockID) ([]driver.BeatResult, error) {
	results := make([]driver.BeatResult, len(locks))
	var failure error
	failed := 0
	for first := 0; first < len(locks); first += beatRows {
		end := min(first+beatRows, len(locks))
		err := d.beat(ctx, locks[first:end], results[first:end])
		if errors.Is(err, errGone) {
			for i := range results {
				results[i] = driver.BeatLost
			}
			return results, nil
		}
		if err != nil {
			failure = err
			failed += end - first
		}
	}
	if failed > 0 && failed == len(locks) {
		return nil, failure
	}
	return results, nil
}

// beat renews rows in one transaction.
func (d *Driver) beat(ctx context.Context, locks []driver.LockID, results []driver.BeatResult) error {
	beaten, err := d.writeEach(ctx, "renew locks", len(locks), func(t *tx, i int) (bool, error) {
		return t.execOne(renew, matching(locks[i], t.now)...)
	})
	for i, ok := range beaten {
		results[i] = driver.BeatLost
		if ok {
			results[i] = driver.BeatRenewed
		}
	}
	return err
}
