package sqlite

import (
	"context"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	putIntents = `
		INSERT INTO intents (project, ref, token, owner, agent, old_value, new_value, time)
		SELECT ?1, move.value ->> 0, ?3, ?4, ?5, move.value ->> 1, move.value ->> 2, ?6 FROM json_each(?2) AS move`

	dropIntents = `
		DELETE FROM intents
		WHERE project = ?1 AND ref IN (SELECT value FROM json_each(?2)) AND token = ?3 AND decision IS NULL`

	// The intent that the row of a lock stands for.
	dropIntent = `
		DELETE FROM intents
		WHERE project = ?1 AND ref = ?2 AND decision IS NULL
		AND token = (SELECT coalesce(token, 0) FROM locks` + matches + `)`

	intentColumns = `project, ref, token, owner, agent, old_value, new_value, time, decision, decided_by, reason, decided_at`

	oneIntent = ` WHERE project = ?1 AND ref = ?2 AND token = ?3`

	decide = `
		UPDATE intents SET decision = ?4, decided_by = ?5, reason = ?6, decided_at = ?7` + oneIntent + ` AND decision IS NULL
		AND (?4 = '` + string(refdb.KeepOld) + `' OR EXISTS (SELECT 1 FROM locks` + oneIntent + `))`

	takeNew = `
		INSERT OR REPLACE INTO refs (project, ref, value, time)
		SELECT project, ref, new_value, ?4 FROM intents` + oneIntent

	dropLock = `DELETE FROM locks` + oneIntent

	forget = `DELETE FROM intents` + oneIntent + ` AND decision IS NOT NULL`
)

// intend records what r is about to do.
func (t *tx) intend(r refdb.AcquireRequest, token refdb.Token) error {
	if r.Intents == nil {
		return nil
	}
	moves := make([][3]string, len(r.Intents))
	for i, u := range r.Intents {
		moves[i] = [3]string{u.Ref, string(u.Old), string(u.New)}
	}
	_, err := t.exec(putIntents, r.Project, asJSON(moves), int64(token), r.Owner, r.Agent, t.now)
	return err
}

// Intents implements refdb.Driver. The time that ages are counted to is read
// before the rows, as that of locks.
func (d *Driver) Intents(ctx context.Context, q refdb.IntentQuery) ([]refdb.Intent, error) {
	w := intentsWhere(q)
	var page []refdb.Intent
	err := d.read(ctx, "list intents", func(c *conn) error {
		now := d.now()
		return c.query(ctx, func(r row) { page = append(page, intentOf(now, r)) },
			"SELECT "+intentColumns+" FROM intents"+w.String()+" ORDER BY project, ref, token LIMIT ?", w.with(int64(q.Limit))...)
	})
	if err != nil {
		return nil, err
	}
	return page, nil
}

func intentsWhere(q refdb.IntentQuery) *where {
	w := new(where)
	if q.Decided {
		w.add("decision IS NOT NULL")
	} else {
		w.add("decision IS NULL")
	}
	if q.Project != "" {
		w.add("project = ?", q.Project)
	}
	if q.Ref != "" {
		w.add("ref = ?", q.Ref)
	}
	w.owner(q.Owner)
	if q.AfterProject != "" || q.AfterRef != "" {
		w.add("(project, ref, token) > (?, ?, ?)", q.AfterProject, q.AfterRef, int64(q.AfterToken))
	}
	return w
}

// intentOf reads intentColumns.
func intentOf(now int64, r row) refdb.Intent {
	i := refdb.Intent{
		Project:   r.text(0),
		Ref:       r.text(1),
		Token:     refdb.Token(r.int(2)),
		Owner:     r.text(3),
		Agent:     r.text(4),
		Old:       refdb.Value(r.text(5)),
		New:       refdb.Value(r.text(6)),
		Time:      timeOf(r.int(7)),
		Age:       durationOf(now - r.int(7)),
		Decision:  refdb.Decision(r.text(8)),
		DecidedBy: r.text(9),
		Reason:    r.text(10),
	}
	if !r.null(11) {
		i.DecidedAt = timeOf(r.int(11))
	}
	return i
}

// Resolve implements refdb.Driver.
func (d *Driver) Resolve(ctx context.Context, r refdb.ResolveRequest) ([]bool, error) {
	ended := make([]bool, len(r.Intents))
	err := d.write(ctx, "resolve intents", len(r.Intents), func(t *tx) (err error) {
		for n, i := range r.Intents {
			if ended[n], err = t.resolve(i, r); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return ended, nil
}

// resolve reports whether i was pending. Should its lock have been deleted by
// somebody who knows of no intents, the ref may have moved since: then it can
// only keep what it holds.
func (t *tx) resolve(i refdb.Intent, r refdb.ResolveRequest) (bool, error) {
	key := []any{i.Project, i.Ref, int64(i.Token)}
	n, err := t.exec(decide, append(key, string(r.Decision), r.By, r.Reason, t.now)...)
	if err != nil || n == 0 {
		return false, err
	}
	if r.Decision == refdb.TakeNew {
		if _, err := t.exec(takeNew, append(key, t.now)...); err != nil {
			return false, err
		}
	}
	_, err = t.exec(dropLock, key...)
	return true, err
}

// Forget implements refdb.Driver.
func (d *Driver) Forget(ctx context.Context, intents []refdb.Intent) error {
	return d.write(ctx, "forget intents", len(intents), func(t *tx) error {
		for _, i := range intents {
			if _, err := t.exec(forget, i.Project, i.Ref, int64(i.Token)); err != nil {
				return err
			}
		}
		return nil
	})
}
