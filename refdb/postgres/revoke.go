package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	// revokeSQL undoes what a request did, and leaves a record that the request
	// reads, under the same keys, before it does anything.
	//
	//	$1 project  $2 refs  $3 owner  $4 nonce  $5 agent  $6 old and $7 new value of the first ref
	revokeSQL = `
WITH doomed AS MATERIALIZED (
  SELECT project, asked.ref, owner, token, tid, waiting FROM unnest($2::text[]) AS asked (ref), LATERAL (` + lockOfAsked + `) AS lock
  WHERE nonce = $4 AND owner = $3
), ended AS (
  DELETE FROM intents WHERE ctid = ANY (ARRAY(SELECT intent.tid FROM doomed AS asked, LATERAL (` + pendingOfAsked + `) AS intent))
), deleted AS (
  DELETE FROM locks WHERE ctid = ANY (ARRAY(SELECT tid FROM doomed))
), recorded AS (
  INSERT INTO intents (project, ref, token, owner, agent, old_value, new_value, time, decision, decided_by, decided_at, nonce)
  SELECT $1, ($2::text[])[1], now, $3, $5, $6, $7, now, '` + string(refdb.Revoked) + `', $3, now, $4
  FROM (SELECT clock_timestamp() AS now OFFSET 0) AS clock
)
SELECT ref, waiting FROM doomed`

	isRevoked = `EXISTS (SELECT FROM intents WHERE project = $1 AND ref = ($2::text[])[1] AND nonce = $4)`
)

// Revoke excludes the request by its keys: it comes before, or after.
func (d *Driver) Revoke(ctx context.Context, r refdb.PrepareRequest) error {
	refs, _, _ := columnsOf(r.Updates)
	first := r.Updates[0]
	var freed []freedLock
	err := d.do(ctx, roundTrip{what: "revoke intents", writes: true}.
		lockRefs(r.Project, refs).
		lockRows(r.Project, refs).
		then(revokeSQL, func(rows pgx.Rows) (err error) {
			freed, err = readFreed(rows, r.Project)
			return err
		}, r.Project, refs, r.Owner, r.Nonce, r.Agent, string(first.Old), string(first.New)))
	if err == nil {
		d.wakeFreed(freed...)
	}
	return err
}

// readFreed reads rows of a ref of the project and the entries of its queue.
func readFreed(rows pgx.Rows, project string) (freed []freedLock, err error) {
	for rows.Next() {
		f := freedLock{project: project}
		if err := rows.Scan(&f.ref, &f.waiting); err != nil {
			return nil, err
		}
		freed = append(freed, f)
	}
	return freed, rows.Err()
}
