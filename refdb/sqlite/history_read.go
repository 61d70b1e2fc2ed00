package sqlite

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/internal/operation"
)

// The rows of the history are written by triggers: see the migrations. Writers take turns, so
// every position up to that of the last change is complete.
const (
	readState = `
		SELECT s.position, s.pruned, s.pruned_time, e.id, e.first, e.began, e.asked_by, e.reason
		FROM history_state AS s CROSS JOIN epochs AS e ORDER BY e.first`

	changeColumns = `project, ref, position, old, new, time, op`

	newestChange = `SELECT ` + changeColumns + ` FROM history WHERE position >= ? ORDER BY position DESC, project DESC, ref DESC LIMIT 1`

	tipOfProject = `
		SELECT ifnull((SELECT position FROM history WHERE project = ?1 ORDER BY position DESC LIMIT 1), 0),
			EXISTS (SELECT 1 FROM intents WHERE project = ?1 AND decision IS NULL),
			ifnull((SELECT revision FROM projects WHERE project = ?1), 0)`

	oneChange = `SELECT op FROM history WHERE project = ? AND ref = ? AND position = ?`
)

// HistoryState implements refdb.HistoryStore.
func (d *Driver) HistoryState(ctx context.Context) (refdb.HistoryState, error) {
	return d.readHistory(ctx, "read the history", func(*conn, refdb.HistoryState) error { return nil })
}

// Newest implements refdb.HistoryStore.
func (d *Driver) Newest(ctx context.Context) (c refdb.Change, s refdb.HistoryState, err error) {
	s, err = d.readHistory(ctx, "find the newest change", func(conn *conn, s refdb.HistoryState) error {
		c = refdb.Change{}
		return conn.query(ctx, func(r row) { c = changeOf(r) }, newestChange, int64(s.Pruned))
	})
	if err != nil {
		return refdb.Change{}, refdb.HistoryState{}, err
	}
	return c, s, nil
}

// Tip implements refdb.HistoryStore.
func (d *Driver) Tip(ctx context.Context, project string) (t refdb.Tip, err error) {
	t.State, err = d.readHistory(ctx, "find the tip of a project", func(c *conn, _ refdb.HistoryState) error {
		return c.query(ctx, func(r row) {
			t.Newest, t.Pending, t.Revision = refdb.Position(r.int(0)), r.int(1) != 0, r.int(2)
		}, tipOfProject, project)
	})
	if err != nil {
		return refdb.Tip{}, err
	}
	t.Server = d.server
	return t, nil
}

// readHistory runs do in one snapshot, with the history's state of that.
func (d *Driver) readHistory(ctx context.Context, doing string, do func(*conn, refdb.HistoryState) error) (s refdb.HistoryState, err error) {
	err = d.snapshot(ctx, doing, func(c *conn) error {
		if s, err = historyState(ctx, c); err != nil {
			return err
		}
		if s.Admitted, err = d.isAdmitted(ctx, c); err != nil {
			return err
		}
		return do(c, s)
	})
	if err != nil {
		return refdb.HistoryState{}, err
	}
	return s, nil
}

// snapshot is read for several statements, which see the same.
func (d *Driver) snapshot(ctx context.Context, doing string, do func(*conn) error) error {
	return d.read(ctx, doing, func(c *conn) error {
		if _, err := c.exec(ctx, "BEGIN"); err != nil {
			return err
		}
		defer c.rollback()
		return do(c)
	})
}

func historyState(ctx context.Context, c *conn) (s refdb.HistoryState, err error) {
	err = c.query(ctx, func(r row) {
		s.Upto, s.Pruned = refdb.Position(r.int(0)), refdb.Position(r.int(1))
		s.Ended = s.Upto
		if !r.null(2) {
			s.PrunedTime = timeOf(r.int(2))
		}
		s.Epochs = append(s.Epochs, refdb.Epoch{
			ID: r.text(3), First: refdb.Position(r.int(4)), Began: timeOf(r.int(5)), By: r.text(6), Reason: r.text(7),
		})
	}, readState)
	if err == nil && len(s.Epochs) == 0 {
		err = errors.New("the table history_state or epochs has lost its row: restore the file from a backup")
	}
	return s, err
}

// Changes implements refdb.HistoryStore.
func (d *Driver) Changes(ctx context.Context, r refdb.ChangesRequest) (p refdb.ChangesPage, err error) {
	p.State, err = d.readHistory(ctx, "read changes", func(c *conn, s refdb.HistoryState) error {
		if r.Last.Ref != "" {
			last := func(row row) { p.LastOp, p.LastFound = operation.ID(row.text(0)), true }
			if err := c.query(ctx, last, oneChange, r.Last.Project, r.Last.Ref, int64(r.Last.Position)); err != nil {
				return err
			}
		}
		var more bool
		w, order := changesWhere(r, s.Pruned)
		p.Changes, more, err = c.changes(ctx, w, order, r.Limit)
		if p.Next = (refdb.ChangeKey{Position: s.Upto + 1}); more {
			p.Next = p.Changes[r.Limit-1].Key()
		}
		return err
	})
	if err != nil {
		return refdb.ChangesPage{}, err
	}
	return p, nil
}

func changesWhere(r refdb.ChangesRequest, pruned refdb.Position) (w where, order string) {
	after := r.After
	if after.Position < pruned {
		after = refdb.ChangeKey{Position: pruned}
	}
	if r.Project == "" {
		w.add("(position, project, ref) > (?, ?, ?)", int64(after.Position), after.Project, after.Ref)
		return w, "position, project, ref"
	}
	w.add("project = ?", r.Project)
	w.add("(position, ref) > (?, ?)", int64(after.Position), refIn(r.Project, after))
	w.prefix("ref", r.Prefix)
	return w, "position, ref"
}

// refIn returns k's place among the refs of a project that have changes at k's position.
func refIn(project string, k refdb.ChangeKey) string {
	switch strings.Compare(k.Project, project) {
	case -1:
		return ""
	case 0:
		return k.Ref
	default:
		return afterAll
	}
}

// changes reads at most limit changes, and reports whether there are more.
func (c *conn) changes(ctx context.Context, w where, order string, limit int) (all []refdb.Change, more bool, err error) {
	err = c.query(ctx, func(r row) { all = append(all, changeOf(r)) },
		changesSQL(w, order), append(w.args, int64(limit)+1)...)
	if len(all) > limit {
		return all[:limit], true, err
	}
	return all, false, err
}

func changesSQL(w where, order string) string {
	return "SELECT " + changeColumns + " FROM history WHERE " + strings.Join(w.conditions, " AND ") + " ORDER BY " + order + " LIMIT ?"
}

// changeOf reads changeColumns.
func changeOf(r row) refdb.Change {
	by := operation.Parse(r.text(6))
	return refdb.Change{
		Project: r.text(0), Ref: r.text(1), Position: refdb.Position(r.int(2)),
		Old: refdb.Value(r.text(3)), New: refdb.Value(r.text(4)), Time: timeOf(r.int(5)),
		Op: by.ID, Owner: by.Owner, By: by.By,
	}
}

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
