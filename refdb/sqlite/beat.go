package sqlite

import (
	"context"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// matches selects the row of a lock by its key, its version and, if given, its heartbeat.
const matches = ` WHERE project = ?1 AND ref = ?2
	AND CASE WHEN ?4 IS NULL THEN coalesce(token, 0) = ?3 ELSE nonce = ?4 AND owner = ?6 END
	AND (?5 IS NULL OR coalesce(heartbeat, 0) = ?5)`

const renew = `UPDATE locks SET heartbeat = ?7` + matches

// beatRows is how many rows a transaction renews at most: some 20 ms, for which
// others wait.
const beatRows = 5000

// Beat implements refdb.Driver. With no network between, a prepared statement
// per lock is several times as fast as one statement over a list of them.
func (d *Driver) Beat(ctx context.Context, _ string, held []refdb.Held) ([]refdb.BeatResult, error) {
	results := make([]refdb.BeatResult, len(held))
	var failure error
	failed := 0
	for first := 0; first < len(held); first += beatRows {
		end := min(first+beatRows, len(held))
		if err := d.beat(ctx, held[first:end], results[first:end]); err != nil {
			failure = err
			failed += end - first
			clear(results[first:end])
		}
	}
	if failed > 0 && failed == len(held) {
		return nil, failure
	}
	return results, nil
}

// beat renews rows in one transaction.
func (d *Driver) beat(ctx context.Context, held []refdb.Held, results []refdb.BeatResult) error {
	return d.write(ctx, "beat", len(held), func(t *tx) error {
		for i, h := range held {
			n, err := t.exec(renew, append(version(h), t.now)...)
			if err != nil {
				return err
			}
			results[i] = refdb.BeatLost
			if n > 0 {
				results[i] = refdb.Beaten
			}
		}
		return nil
	})
}

// version returns the arguments of matches.
func version(h refdb.Held) []any {
	var heartbeat any
	if !h.Heartbeat.IsZero() {
		heartbeat = h.Heartbeat.UnixMicro()
	}
	return []any{h.Project, h.Ref, int64(h.Token), orNull(h.Nonce), heartbeat, h.Owner}
}
