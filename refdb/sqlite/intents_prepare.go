package sqlite

import (
	"context"
	"errors"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/operation"
	"github.com/globalrefdb/globalrefdb/refdb/internal/queue"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

const (
	insertIntents = `
		INSERT INTO intents (project, ref, token, owner, agent, old_value, new_value, time, nonce)
		SELECT ?1, move.value ->> 0, ?3, ?4, ?5, move.value ->> 1, move.value ->> 2, ?6, ?7 FROM json_each(?2) AS move`

	revokeIntents = `
		DELETE FROM intents
		WHERE project = ?1 AND decision IS NULL AND (ref, token) IN (SELECT ref, token FROM locks` + claimed + `)`

	revokeLocks = `DELETE FROM locks` + claimed + ` AND waiting IS NULL`

	insertRevocation = `
		INSERT INTO intents (project, ref, token, owner, agent, old_value, new_value, time, decision, decided_by, decided_at, nonce)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?4, ?8, ?10)`

	findRevocation = `SELECT 1 FROM intents WHERE project = ? AND ref = ? AND nonce = ? AND decision = '` + string(driver.Revoked) + `'`
)

// Prepare implements driver.IntentStore.
func (d *Driver) Prepare(ctx context.Context, r driver.PrepareRequest) (driver.Prepared, error) {
	refs := rules.RefsOf(r.Updates)
	var prepared driver.Prepared
	look := func() error {
		return d.lookFirst(ctx, r.Project, refs, r.Updates, rules.PrepareClaim(r), func(stored string, rows, around []rules.Row, _ time.Time) error {
			return rules.RefusePreparation(r, stored, rows, around)
		})
	}
	n := len(refs) + len(r.Packs) + len(r.RequiredValues)
	for _, p := range r.Parts {
		n += rowsOfPart(p)
	}
	err := d.contend(driver.Waiter{}, look, func() (err error) {
		prepared, err = decide(ctx, d, "prepare updates", n, func(t *tx) (driver.Prepared, error, error) { return t.prepare(r, refs) })
		return err
	})
	return prepared, err
}

// prepare writes nothing if it refuses r.
func (t *tx) prepare(r driver.PrepareRequest, refs []string) (prepared driver.Prepared, refused, err error) {
	if refused, err := t.refuseBarred(r.Owner); refused != nil || err != nil {
		return driver.Prepared{}, refused, err
	}
	rows, stored, err := t.ruledRows(r.Project, refs)
	if err != nil {
		return driver.Prepared{}, nil, err
	}
	around, err := t.around(r.Project, r.Updates)
	if err != nil {
		return driver.Prepared{}, nil, err
	}
	a, refused := rules.Prepare(r, stored, rows, around)
	if refused != nil || a.Adopted {
		return driver.Prepared{Token: a.Token, Time: time.UnixMicro(t.now)}, refused, nil
	}
	if refused, err = t.revoked(r); refused != nil || err != nil {
		return driver.Prepared{}, refused, err
	}
	if refused, err = t.usePacks(r); refused != nil || err != nil {
		return driver.Prepared{}, refused, err
	}
	token, err := t.take(rules.PrepareClaim(r), r.Project, driver.NeverStale, rows, a.After)
	if err != nil {
		return driver.Prepared{}, nil, err
	}
	moves := make([][3]string, len(r.Updates))
	for i, u := range r.Updates {
		moves[i] = [3]string{u.Ref, string(u.Old), string(u.New)}
	}
	_, err = t.exec(insertIntents, r.Project, asJSON(moves), int64(token), r.Owner, r.Agent, t.now, operation.OfIntent(r))
	return driver.Prepared{Token: token, Time: time.UnixMicro(t.now), Reclaimed: a.Reclaimed}, nil, err
}

// Revoke implements driver.IntentStore.
func (d *Driver) Revoke(ctx context.Context, r driver.PrepareRequest) error {
	refs := rules.RefsOf(r.Updates)
	return d.write(ctx, "revoke intents", len(refs), func(t *tx) error {
		if refused, err := t.refuseBarred(r.Owner); refused != nil || err != nil {
			return errors.Join(refused, err)
		}
		if _, err := t.exec(revokeIntents, r.Project, asJSON(refs), r.Owner, r.Nonce); err != nil {
			return err
		}
		n, err := t.exec(revokeLocks, r.Project, asJSON(refs), r.Owner, r.Nonce)
		if err == nil && int(n) < len(refs) {
			err = t.decideRows(r.Project, refs, func(row rules.Row) queue.RowUpdate {
				if !rules.PrepareClaim(r).Took(row) {
					return queue.RowUpdate{}
				}
				return queue.End(*row.Lock, row.Queue, driver.Waiter{}, timeOf(t.now))
			})
		}
		if err != nil {
			return err
		}
		token, err := t.newToken(nil)
		if err != nil {
			return err
		}
		u := r.Updates[0]
		_, err = t.exec(insertRevocation, r.Project, u.Ref, int64(token), r.Owner, r.Agent, string(u.Old), string(u.New), t.now,
			string(driver.Revoked), r.Nonce)
		return err
	})
}

// revoked returns driver.ErrReleased if r was revoked.
func (t *tx) revoked(r driver.PrepareRequest) (refused, err error) {
	err = t.query(func(row) { refused = driver.ErrReleased }, findRevocation, r.Project, r.Updates[0].Ref, r.Nonce)
	return refused, err
}
