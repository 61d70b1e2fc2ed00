package sqlite

import (
	"context"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// matches selects the row of a lock by its key, its version and, if given, its heartbeat.
const matches = ` WHERE project = ?1 AND ref = ?2
	AND CASE WHEN ?4 IS NULL THEN coalesce(token, 0) = ?3 ELSE nonce = ?4 END
	AND (?5 IS NULL OR coalesce(heartbeat, 0) = ?5)`

const beat = `UPDATE locks SET heartbeat = ?6` + matches

// Beat implements refdb.Driver. It is one transaction, and in it a prepared
// statement per lock: with no network between, that is several times as fast as
// one statement over a list of 5,000 locks.
func (d *Driver) Beat(ctx context.Context, _ string, held []refdb.Held) ([]refdb.BeatResult, error) {
	results := make([]refdb.BeatResult, len(held))
	err := d.write(ctx, "beat", func(t *tx) error {
		for i, h := range held {
			n, err := t.exec(beat, append(version(h), t.now)...)
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
	if err != nil {
		return nil, err
	}
	return results, nil
}

// version returns the arguments of matches.
func version(h refdb.Held) []any {
	var heartbeat any
	if !h.Heartbeat.IsZero() {
		heartbeat = h.Heartbeat.UnixMicro()
	}
	return []any{h.Project, h.Ref, int64(h.Token), orNull(h.Nonce), heartbeat}
}
