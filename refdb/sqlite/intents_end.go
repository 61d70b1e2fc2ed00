package sqlite

import (
	"context"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/queue"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

const deleteIntents = `
	DELETE FROM intents
	WHERE project = ?1 AND ref IN (SELECT value FROM json_each(?2)) AND token = ?3 AND decision IS NULL`

// Finish implements driver.IntentStore.
func (d *Driver) Finish(ctx context.Context, r driver.FinishRequest) error {
	return d.decide(ctx, "finish intents", 2*len(r.Done)+len(r.Dropped), func(t *tx) (refused, err error) { return t.finish(r) })
}

// finish writes nothing if it refuses r.
func (t *tx) finish(r driver.FinishRequest) (refused, err error) {
	if refused, err := t.refuseBarred(r.Owner); refused != nil || err != nil {
		return refused, err
	}
	held := rules.Intents(r)
	var rows []rules.Row
	missing, err := t.missing(r.Project, held, rules.Intent)
	if err == nil && len(missing) == 0 && len(r.Done) > 0 {
		rows, err = t.rows(r.Project, rules.RefsOf(r.Done))
	}
	if err != nil {
		return nil, err
	}
	if refused := rules.Finish(r, missing, rows); refused != nil {
		return refused, nil
	}
	if err := t.put(r.Project, r.Origin, r.Done); err != nil {
		return nil, err
	}
	if err := t.end(r.Project, held.Refs, driver.Waiter{}); err != nil {
		return nil, err
	}
	_, err = t.exec(deleteIntents, r.Project, asJSON(held.Refs), int64(r.Token))
	return nil, err
}

const (
	// oneIntent selects an intent, or the lock that was taken with it.
	oneIntent = ` WHERE project = ?1 AND ref = ?2 AND token = ?3 AND owner = ?4`

	// decideIntent is rules.Resolvable in SQL.
	decideIntent = `
		UPDATE intents SET decision = ?5, decided_by = ?6, reason = ?7, decided_at = ?8` + oneIntent + ` AND decision IS NULL
		AND (?5 = '` + string(driver.KeepOld) + `' OR EXISTS (SELECT 1 FROM locks` + oneIntent + `))`

	takeNew = `
		INSERT INTO refs (project, ref, value, time, op)
		SELECT project, ref, new_value, ?5, ?6 FROM intents` + oneIntent + overwrite

	deleteLock = `DELETE FROM locks` + oneIntent + ` AND waiting IS NULL`

	forget = `DELETE FROM intents` + oneIntent + ` AND decision IS NOT NULL`
)

// keyOf returns the arguments of oneIntent.
func keyOf(i driver.LockID) []any { return []any{i.Project, i.Ref, int64(i.Token), i.Owner} }

// Resolve implements driver.IntentStore.
func (d *Driver) Resolve(ctx context.Context, r driver.ResolveRequest) ([]bool, error) {
	return d.writeEach(ctx, "resolve intents", len(r.Intents), func(t *tx, i int) (bool, error) {
		id := r.Intents[i]
		key := keyOf(id)
		ended, err := t.execOne(decideIntent, append(key, string(r.Decision), r.By, r.Reason, t.now)...)
		if err == nil && ended && r.Decision == driver.TakeNew {
			_, err = t.exec(takeNew, append(key, t.now, opOf(r.Origin))...)
		}
		if err == nil && ended {
			err = t.endResolved(id)
		}
		return ended, err
	})
}

// endResolved ends the lock that was taken with an intent, if it still exists.
func (t *tx) endResolved(id driver.LockID) error {
	if deleted, err := t.execOne(deleteLock, keyOf(id)...); deleted || err != nil {
		return err
	}
	return t.decideRows(id.Project, []string{id.Ref}, func(row rules.Row) queue.RowUpdate {
		if !rules.Stands(row.Lock, id, rules.Intent) {
			return queue.RowUpdate{}
		}
		return queue.End(*row.Lock, row.Queue, driver.Waiter{}, timeOf(t.now))
	})
}

// Forget implements driver.IntentStore.
func (d *Driver) Forget(ctx context.Context, intents []driver.LockID) error {
	_, err := d.writeEach(ctx, "forget intents", len(intents), func(t *tx, i int) (bool, error) {
		return t.execOne(forget, keyOf(intents[i])...)
	})
	return err
}
