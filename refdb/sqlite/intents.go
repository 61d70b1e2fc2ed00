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

	intentColumns = `project, ref, token, owner, agent, old_value, new_value, time, decision, decided_by, reason, decided_at`

	// An intent, or the lock that it was recorded with.
	oneIntent = ` WHERE project = ?1 AND ref = ?2 AND token = ?3 AND owner = ?4`

	decide = `
		UPDATE intents SET decision = ?5, decided_by = ?6, reason = ?7, decided_at = ?8` + oneIntent + ` AND decision IS NULL
		AND (?5 = '` + string(refdb.KeepOld) + `' OR EXISTS (SELECT 1 FROM locks` + oneIntent + `))`

	takeNew = `
		INSERT OR REPLACE INTO refs (project, ref, value, time)
		SELECT project, ref, new_value, ?5 FROM intents` + oneIntent

	dropLock = `DELETE FROM locks` + oneIntent

	forget = `DELETE FROM intents` + oneIntent + ` AND decision IS NOT NULL`
)

// Intents implements refdb.IntentStore.
func (d *Driver) Intents(ctx context.Context, q refdb.IntentQuery) (refdb.IntentPage, error) {
	intents, last, err := page(ctx, d, "list intents", intentColumns+" FROM intents", intentsWhere(q), "project, ref, token", q.Limit, intentOf)
	return refdb.IntentPage{Intents: intents, Next: refdb.IntentCursor{Project: last.Project, Ref: last.Ref, Token: last.Token}}, err
}

func intentsWhere(q refdb.IntentQuery) (w where) {
	if q.Decided {
		w.add("decision IS NOT NULL")
	} else {
		w.add("decision IS NULL")
	}
	w.named(q.Project, q.Ref, q.Owner)
	if q.After != (refdb.IntentCursor{}) {
		w.add("(project, ref, token) > (?, ?, ?)", q.After.Project, q.After.Ref, int64(q.After.Token))
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

// keyOf returns the arguments of oneIntent.
func keyOf(i refdb.LockID) []any { return []any{i.Project, i.Ref, int64(i.Token), i.Owner} }

// Resolve implements refdb.IntentStore. Should the lock of an intent have been deleted
// by somebody who knows of no intents, the ref may have moved since: then it can
// only keep what it holds.
func (d *Driver) Resolve(ctx context.Context, r refdb.ResolveRequest) ([]bool, error) {
	return d.writeEach(ctx, "resolve intents", len(r.Intents), func(t *tx, i int) (bool, error) {
		key := keyOf(r.Intents[i])
		ended, err := t.execOne(decide, append(key, string(r.Decision), r.By, r.Reason, t.now)...)
		if err == nil && ended && r.Decision == refdb.TakeNew {
			_, err = t.exec(takeNew, append(key, t.now)...)
		}
		if err == nil && ended {
			_, err = t.exec(dropLock, key...)
		}
		return ended, err
	})
}

// Forget implements refdb.IntentStore.
func (d *Driver) Forget(ctx context.Context, intents []refdb.LockID) error {
	_, err := d.writeEach(ctx, "forget intents", len(intents), func(t *tx, i int) (bool, error) {
		return t.execOne(forget, keyOf(intents[i])...)
	})
	return err
}
