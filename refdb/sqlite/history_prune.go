package sqlite

import (
	"context"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

const (
	// leastRead is the position up to which all followers have read.
	leastRead = `SELECT min(read) FROM followers`

	// oldChanges selects changes, and whether the ref has at least ?5 newer ones, for which it
	// reads at most ?5 rows.
	oldChanges = `
		SELECT position, project, ref, time, ?5 <= (SELECT count(*) FROM (
			SELECT 1 FROM history AS newer
			WHERE newer.project = h.project AND newer.ref = h.ref AND newer.position > h.position LIMIT ?5))
		FROM history AS h
		WHERE (position, project, ref) > (?1, ?2, ?3) AND position <= ?4
		ORDER BY position, project, ref LIMIT ?6`

	deleteChanges = `
		DELETE FROM history WHERE (project, ref, position) IN (
			SELECT change.value ->> 0, change.value ->> 1, change.value ->> 2 FROM json_each(?1) AS change)`

	raisePruned = `UPDATE history_state SET pruned = max(pruned, ?1), pruned_time = max(coalesce(pruned_time, ?2), ?2)`

	followers = `SELECT name, cursor, read, seen FROM followers ORDER BY name`

	putFollower = `INSERT OR REPLACE INTO followers (name, cursor, read, seen) VALUES (?, ?, ?, ?)`

	removeFollower = `DELETE FROM followers WHERE name = ?`
)

// Prune implements driver.HistoryStore.
func (d *Driver) Prune(ctx context.Context, r driver.PruneRequest) (driver.Pruned, error) {
	return write(ctx, d, "prune the history", r.Limit, func(t *tx) (driver.Pruned, error) { return t.prune(r) })
}

func (t *tx) prune(r driver.PruneRequest) (p driver.Pruned, err error) {
	upto, err := t.prunable(r)
	if err != nil {
		return p, err
	}
	var gone [][3]any
	var pruned driver.Position
	var latest int64
	looked := 0
	err = t.query(func(row row) {
		looked++
		p.Next = driver.ChangeKey{Position: driver.Position(row.int(0)), Project: row.text(1), Ref: row.text(2)}
		if row.int(4) != 0 {
			latest = max(row.int(3), latest)
			gone = append(gone, [3]any{p.Next.Project, p.Next.Ref, p.Next.Position})
			pruned = p.Next.Position + 1
		}
	}, oldChanges, int64(r.After.Position), r.After.Project, r.After.Ref, int64(upto), int64(r.Keep), int64(r.Limit))
	if looked < r.Limit {
		p.Next = driver.ChangeKey{}
	}
	if err != nil || len(gone) == 0 {
		return p, err
	}
	if _, err := t.exec(deleteChanges, asJSON(gone)); err != nil {
		return p, err
	}
	p.Deleted = len(gone)
	_, err = t.exec(raisePruned, int64(pruned), latest)
	return p, err
}

// prunable returns the last position that r may prune.
func (t *tx) prunable(r driver.PruneRequest) (upto driver.Position, err error) {
	upto = r.Upto
	err = t.query(func(row row) {
		if !row.null(0) {
			upto = min(upto, driver.Position(row.int(0)))
		}
	}, leastRead)
	return max(upto, min(r.Upto, r.EvenUnread)), err
}

// Followers implements driver.HistoryStore. It reads the time for the ages before the rows.
func (d *Driver) Followers(ctx context.Context) ([]driver.Follower, error) {
	return read(ctx, d, "list followers", func(c *conn) (all []driver.Follower, err error) {
		now := d.now()
		err = c.query(ctx, func(r row) {
			all = append(all, driver.Follower{
				Name: r.text(0), Cursor: r.text(1), Read: driver.Position(r.int(2)), Seen: timeOf(r.int(3)), Age: durationOf(now - r.int(3)),
			})
		}, followers)
		return all, err
	})
}

// PutFollower implements driver.HistoryStore.
func (d *Driver) PutFollower(ctx context.Context, f driver.Follower) error {
	return d.writeAnyway(ctx, "write a follower", 1, func(t *tx) error {
		_, err := t.exec(putFollower, f.Name, f.Cursor, int64(f.Read), t.now)
		return err
	})
}

// RemoveFollower implements driver.HistoryStore.
func (d *Driver) RemoveFollower(ctx context.Context, name string) (bool, error) {
	return writeAnyway(ctx, d, "remove a follower", func(t *tx) (bool, error) { return t.execOne(removeFollower, name) })
}
