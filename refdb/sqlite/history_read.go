package sqlite

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/operation"
)

// Triggers write the rows of the history: see the migrations. Writers take turns, so every position
// up to that of the last change is complete.
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

// HistoryState implements driver.HistoryStore.
func (d *Driver) HistoryState(ctx context.Context) (driver.HistoryState, error) {
	_, s, err := readHistory(ctx, d, "read the history", func(*conn, driver.HistoryState) (struct{}, error) { return struct{}{}, nil })
	return s, err
}

// Newest implements driver.HistoryStore.
func (d *Driver) Newest(ctx context.Context) (driver.Change, driver.HistoryState, error) {
	return readHistory(ctx, d, "find the newest change", func(c *conn, s driver.HistoryState) (newest driver.Change, err error) {
		err = c.query(ctx, func(r row) { newest = changeOf(r) }, newestChange, int64(s.Pruned))
		return newest, err
	})
}

// Tip implements driver.HistoryStore.
func (d *Driver) Tip(ctx context.Context, project string) (driver.Tip, error) {
	t, _, err := readHistory(ctx, d, "find the tip of a project", func(c *conn, s driver.HistoryState) (driver.Tip, error) {
		t := driver.Tip{Server: d.server, State: s}
		err := c.query(ctx, func(r row) {
			t.Newest, t.Pending, t.Revision = driver.Position(r.int(0)), r.int(1) != 0, r.int(2)
		}, tipOfProject, project)
		return t, err
	})
	return t, err
}

// readHistory runs do in one snapshot, with the state of the history in that snapshot.
func readHistory[T any](ctx context.Context, d *Driver, doing string, do func(*conn, driver.HistoryState) (T, error)) (T, driver.HistoryState, error) {
	type answer struct {
		T     T
		state driver.HistoryState
	}
	a, err := snapshot(ctx, d, doing, func(c *conn) (a answer, err error) {
		if a.state, err = historyState(ctx, c); err != nil {
			return a, err
		}
		if a.state.Admitted, err = d.isAdmitted(ctx, c); err != nil {
			return a, err
		}
		a.T, err = do(c, a.state)
		return a, err
	})
	return a.T, a.state, err
}

// snapshot is read for several statements, which share a snapshot.
func (d *Driver) snapshot(ctx context.Context, doing string, do func(*conn) error) error {
	return d.read(ctx, doing, func(c *conn) error {
		if _, err := c.exec(ctx, "BEGIN"); err != nil {
			return err
		}
		defer c.rollback()
		return do(c)
	})
}

func historyState(ctx context.Context, c *conn) (s driver.HistoryState, err error) {
	err = c.query(ctx, func(r row) {
		s.Upto, s.Pruned = driver.Position(r.int(0)), driver.Position(r.int(1))
		s.Ended, s.Begun = s.Upto, s.Upto
		if !r.null(2) {
			s.PrunedTime = timeOf(r.int(2))
		}
		s.Epochs = append(s.Epochs, driver.Epoch{
			ID: r.text(3), First: driver.Position(r.int(4)), Began: timeOf(r.int(5)), By: r.text(6), Reason: r.text(7),
		})
	}, readState)
	if err == nil && len(s.Epochs) == 0 {
		err = errors.New("the table history_state or epochs has lost its row: restore the file from a backup")
	}
	return s, err
}

// Changes implements driver.HistoryStore.
func (d *Driver) Changes(ctx context.Context, r driver.ChangesRequest) (driver.ChangesPage, error) {
	p, _, err := readHistory(ctx, d, "read changes", func(c *conn, s driver.HistoryState) (driver.ChangesPage, error) {
		p := driver.ChangesPage{State: s}
		if r.Last.Ref != "" {
			last := func(row row) { p.LastOp, p.LastFound = operation.ID(row.text(0)), true }
			if err := c.query(ctx, last, oneChange, r.Last.Project, r.Last.Ref, int64(r.Last.Position)); err != nil {
				return p, err
			}
		}
		w, order := changesWhere(r, s.Pruned)
		changes, next, err := c.changes(ctx, w, order, r.Limit)
		p.Changes, p.Next = changes, cmp.Or(next, driver.ChangeKey{Position: s.Upto + 1})
		return p, err
	})
	return p, err
}

func changesWhere(r driver.ChangesRequest, pruned driver.Position) (w where, order string) {
	after := r.After
	if after.Position < pruned {
		after = driver.ChangeKey{Position: pruned}
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

// refIn returns k's position among the refs of a project that have changes at k's position.
func refIn(project string, k driver.ChangeKey) string {
	switch strings.Compare(k.Project, project) {
	case -1:
		return ""
	case 0:
		return k.Ref
	default:
		return afterAll
	}
}

// changes reads at most limit changes. If there are more, it also returns the key of the last one
// read.
func (c *conn) changes(ctx context.Context, w where, order string, limit int) (all []driver.Change, next driver.ChangeKey, err error) {
	err = c.query(ctx, func(r row) { all = append(all, changeOf(r)) },
		changesSQL(w, order), append(w.args, int64(limit)+1)...)
	if len(all) > limit {
		all = all[:limit]
		next = all[limit-1].Key()
	}
	return all, next, err
}

func changesSQL(w where, order string) string {
	return "SELECT " + changeColumns + " FROM history WHERE " + strings.Join(w.conditions, " AND ") + " ORDER BY " + order + " LIMIT ?"
}

// changeOf reads changeColumns.
func changeOf(r row) driver.Change {
	by := operation.Parse(r.text(6))
	return driver.Change{
		Project: r.text(0), Ref: r.text(1), Position: driver.Position(r.int(2)),
		Old: driver.Value(r.text(3)), New: driver.Value(r.text(4)), Time: timeOf(r.int(5)),
		Op: by.ID, Owner: by.Owner, By: by.By,
	}
}

// past finds the names by skipping from each to the next in the primary keys of refs and history,
// because a removed ref is in the history only. A ref's value right after a position is the old
// value of its first later change or, without one, its present value. Its time and operation are
// those of its newest change up to the position; if the ref has not changed since, those of its row
// are right, too.
//
// ?1: project, ?2: after, ?3: number of names, ?4: the first name, ?5: the end of the names, ?6:
// the position.
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

// Log implements driver.HistoryStore.
func (d *Driver) Log(ctx context.Context, r driver.LogRequest) (driver.LogPage, error) {
	p, _, err := readHistory(ctx, d, "read a log", func(c *conn, s driver.HistoryState) (driver.LogPage, error) {
		w, order := logWhere(r)
		changes, next, err := c.changes(ctx, w, order, r.Limit)
		return driver.LogPage{Changes: changes, Next: next, State: s}, err
	})
	return p, err
}

func logWhere(r driver.LogRequest) (w where, order string) {
	w.add("project = ?", r.Project)
	if r.Ref != "" {
		w.add("ref = ?", r.Ref)
	}
	if r.Before != (driver.ChangeKey{}) {
		w.add("(position, ref) < (?, ?)", int64(r.Before.Position), refIn(r.Project, r.Before))
	}
	return w, "position DESC, ref DESC"
}

// Past implements driver.HistoryStore.
func (d *Driver) Past(ctx context.Context, r driver.PastRequest) (driver.PastPage, error) {
	p, _, err := readHistory(ctx, d, "read refs of the past", func(c *conn, s driver.HistoryState) (driver.PastPage, error) {
		p, names := driver.PastPage{State: s}, 0
		err := c.query(ctx, func(row row) {
			ref := refOf(row.text(0), row.text(1), row.int(2), row.text(3))
			if ref.Value != driver.Unknown && (r.Deleted || !ref.Value.IsDeleted()) {
				p.Refs = append(p.Refs, ref)
			}
			if names++; names == r.Limit {
				p.Next = ref.Name
			}
		}, past, r.Project, r.After, int64(r.Limit), r.Prefix, behind(r.Prefix), int64(r.At))
		return p, err
	})
	return p, err
}

// PositionAt implements driver.HistoryStore.
func (d *Driver) PositionAt(ctx context.Context, t time.Time) (driver.Position, driver.HistoryState, error) {
	return readHistory(ctx, d, "find a position", func(c *conn, s driver.HistoryState) (driver.Position, error) {
		p := s.Upto
		err := c.query(ctx, func(r row) { p = driver.Position(r.int(0)) - 1 }, firstLater, t.UnixMicro())
		return p, err
	})
}
