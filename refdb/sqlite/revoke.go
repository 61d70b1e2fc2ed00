package sqlite

import (
	"context"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	revokeIntents = `
		DELETE FROM intents
		WHERE project = ?1 AND decision IS NULL AND (ref, token) IN (SELECT ref, token FROM locks` + claimed + `)`

	revokeLocks = `DELETE FROM locks` + claimed

	putRevocation = `
		INSERT INTO intents (project, ref, token, owner, agent, old_value, new_value, time, decision, decided_by, decided_at, nonce)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?4, ?8, ?10)`

	findRevocation = `SELECT 1 FROM intents WHERE project = ? AND ref = ? AND nonce = ?`
)

// Revoke implements refdb.IntentStore.
func (d *Driver) Revoke(ctx context.Context, r refdb.PrepareRequest) error {
	refs := asJSON(refsOf(r.Updates))
	return d.write(ctx, "revoke intents", len(r.Updates), func(t *tx) error {
		for _, statement := range []string{revokeIntents, revokeLocks} {
			if _, err := t.exec(statement, r.Project, refs, r.Owner, r.Nonce); err != nil {
				return err
			}
		}
		token, err := t.token(0)
		if err != nil {
			return err
		}
		u := r.Updates[0]
		_, err = t.exec(putRevocation, r.Project, u.Ref, int64(token), r.Owner, r.Agent, string(u.Old), string(u.New), t.now,
			string(refdb.Revoked), r.Nonce)
		return err
	})
}

// revoked returns refdb.ErrReleased if r must not be carried out.
func (t *tx) revoked(r refdb.PrepareRequest) (refused, err error) {
	err = t.query(func(row) { refused = refdb.ErrReleased }, findRevocation, r.Project, r.Updates[0].Ref, r.Nonce)
	return refused, err
}
