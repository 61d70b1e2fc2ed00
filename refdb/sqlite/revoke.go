package sqlite

import (
	"context"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	dropRevokedIntents = `
		DELETE FROM intents
		WHERE project = ?1 AND decision IS NULL AND (ref, token) IN (
			SELECT ref, token FROM locks WHERE project = ?1 AND ref IN (SELECT value FROM json_each(?2)) AND nonce = ?3 AND owner = ?4)`

	dropRevokedLocks = `DELETE FROM locks WHERE project = ?1 AND ref IN (SELECT value FROM json_each(?2)) AND nonce = ?3 AND owner = ?4`

	putRevocation = `
		INSERT INTO intents (project, ref, token, owner, agent, old_value, new_value, time, decision, decided_by, decided_at, nonce)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?4, ?8, ?10)`

	findRevocation = `SELECT 1 FROM intents WHERE project = ? AND ref = ? AND nonce = ?`
)

// Revoke implements refdb.Driver.
func (d *Driver) Revoke(ctx context.Context, r refdb.AcquireRequest) error {
	return d.write(ctx, "revoke intents", len(r.Refs), func(t *tx) error {
		for _, statement := range []string{dropRevokedIntents, dropRevokedLocks} {
			if _, err := t.exec(statement, r.Project, asJSON(r.Refs), r.Nonce, r.Owner); err != nil {
				return err
			}
		}
		token, err := t.token(0)
		if err != nil {
			return err
		}
		u := r.Intents[0]
		_, err = t.exec(putRevocation, r.Project, u.Ref, int64(token), r.Owner, r.Agent, string(u.Old), string(u.New), t.now,
			string(refdb.Revoked), r.Nonce)
		return err
	})
}

// revoked reports whether r must not be carried out.
func (t *tx) revoked(r refdb.AcquireRequest) (found bool, err error) {
	err = t.query(func(row) { found = true }, findRevocation, r.Project, r.Refs[0], r.Nonce)
	return found, err
}
