package postgres

import (
	"context"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	// revokeSQL undoes what a request did, and leaves a record that the request
	// reads, under the same keys, before it does anything.
	//
	//	$1 project  $2 refs  $3 owner  $4 nonce  $5 agent  $6 old and $7 new value of the first ref
	revokeSQL = `
WITH clock AS MATERIALIZED (
  SELECT clock_timestamp() AS now
), doomed AS MATERIALIZED (
  SELECT $1 AS project, asked.ref, token, lock.tid FROM unnest($2::text[]) AS asked (ref), LATERAL (` + lockOfAsked + `) AS lock
  WHERE nonce = $4 AND owner = $3
), ended AS (
  DELETE FROM intents WHERE ctid = ANY (ARRAY(SELECT intent.tid FROM doomed AS asked, LATERAL (` + pendingOfAsked + `) AS intent))
), deleted AS (
  DELETE FROM locks WHERE ctid = ANY (ARRAY(SELECT tid FROM doomed))
)
INSERT INTO intents (project, ref, token, owner, agent, old_value, new_value, time, decision, decided_by, decided_at, nonce)
SELECT $1, ($2::text[])[1], now, $3, $5, $6, $7, now, '` + string(refdb.Revoked) + `', $3, now, $4 FROM clock`

	isRevoked = `EXISTS (SELECT FROM intents WHERE project = $1 AND ref = ($2::text[])[1] AND nonce = $4)`
)

// Revoke excludes the request by its keys: it comes before, or after.
func (d *Driver) Revoke(ctx context.Context, r refdb.AcquireRequest) error {
	u := r.Intents[0]
	return d.do(ctx, trip{what: "revoke intents", writes: true}.
		lockRefs(r.Project, keysOf(r.Project, r.Refs)).
		lockRows(r.Project, r.Refs).
		then(revokeSQL, nil, r.Project, r.Refs, r.Owner, r.Nonce, r.Agent, string(u.Old), string(u.New)))
}
