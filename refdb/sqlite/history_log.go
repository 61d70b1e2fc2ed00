package sqlite

import (
	"context"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// The names are found by jumping from each to the next in the primary keys of refs and history, since a ref
// that was removed is in the history only. What a ref held right after a position is what its first change after
// that found; else what it holds. Its time and operation are those of its newest change up to the position; those of its row are right, too,
// if it has not changed since.
// ?1: project, ?2: after, ?3: how many names, ?4: the first name, ?5: the end of the names, ?6: the position.
const past = `
WITH RECURSIVE name (ref, n) AS (
  SELECT (SELECT min(ref) FROM (
    SELECT min(ref) AS ref FROM refs WHERE project = ?1 AND ref > ?2 AND ref >= ?4 AND ref < ?5
    UNION ALL SELECT min(ref) FROM history WHERE project = ?1 AND ref > ?2 AND ref >= ?4 AND ref < ?5)), 1
  UNION ALL
  SELECT (SELECT min(ref) FROM (
    SELECT min(ref) AS ref FROM refs WHERE project = ?1 AND ref > name.ref AND ref < ?5
    UNION ALL SELECT min(ref) FROM history WHERE project = ?1 AND ref > name.ref AND ref < ?5)), n + 1
  FROM name WHERE name.ref IS NOT NULL AND n < ?3
)
SELECT name.ref, coalesce(next.old, r.value),
  CASE WHEN before.ref IS NOT NULL THEN before.time WHEN next.ref IS NULL THEN r.time END,
  CASE WHEN before.ref IS NOT NULL THEN before.op WHEN next.ref IS NULL THEN r.op END
FROM name
LEFT JOIN history AS before ON before.project = ?1 AND before.ref = name.ref AND before.position = (
  SELECT max(position) FROM history WHERE project = ?1 AND ref = name.ref AND position <= ?6)
LEFT JOIN history AS next ON next.project = ?1 AND next.ref = name.ref AND next.position = (
  SELECT min(position) FROM history WHERE project = ?1 AND ref = name.ref AND position > ?6)
LEFT JOIN refs AS r ON r.project = ?1 AND r.ref = name.ref
WHERE name.ref IS NOT NULL ORDER BY name.ref`

const firstLater = `SELECT position FROM history WHERE latest > ? ORDER BY latest, position LIMIT 1`

// Log implements refdb.HistoryStore.
func (d *Driver) Log(ctx context.Context, r refdb.LogRequest) (p refdb.LogPage, err error) {
	p.State, err = d.readHistory(ctx, "read a log", func(c *conn, _ refdb.HistoryState) error {
		var more bool
		w, order := logWhere(r)
		p.Changes, more, err = c.changes(ctx, w, order, r.Limit)
		if more {
			p.Next = p.Changes[r.Limit-1].Key()
		}
		return err
	})
	if err != nil {
		return refdb.LogPage{}, err
	}
	return p, nil
}

func logWhere(r refdb.LogRequest) (w where, order string) {
	w.add("project = ?", r.Project)
	if r.Ref != "" {
		w.add("ref = ?", r.Ref)
	}
	if r.Before != (refdb.ChangeKey{}) {
		w.add("(position, ref) < (?, ?)", int64(r.Before.Position), refIn(r.Project, r.Before))
	}
	return w, "position DESC, ref DESC"
}

// Past implements refdb.HistoryStore.
func (d *Driver) Past(ctx context.Context, r refdb.PastRequest) (p refdb.PastPage, err error) {
	p.State, err = d.readHistory(ctx, "read refs of the past", func(c *conn, _ refdb.HistoryState) error {
		names := 0
		return c.query(ctx, func(row row) {
			ref := refOf(row.text(0), row.text(1), row.int(2), row.text(3))
			if ref.Value != refdb.Unknown && (r.Deleted || !ref.Value.IsDeleted()) {
				p.Refs = append(p.Refs, ref)
			}
			if names++; names == r.Limit {
				p.Next = ref.Name
			}
		}, past, r.Project, r.After, int64(r.Limit), r.Prefix, behind(r.Prefix), int64(r.At))
	})
	if err != nil {
		return refdb.PastPage{}, err
	}
	return p, nil
}

// PositionAt implements refdb.HistoryStore.
func (d *Driver) PositionAt(ctx context.Context, t time.Time) (p refdb.Position, s refdb.HistoryState, err error) {
	s, err = d.readHistory(ctx, "find a position", func(c *conn, s refdb.HistoryState) error {
		p = s.Upto
		return c.query(ctx, func(r row) { p = refdb.Position(r.int(0)) - 1 }, firstLater, t.UnixMicro())
	})
	return p, s, err
}
