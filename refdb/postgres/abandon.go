package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// abandonSQL deletes what an acquisition took.
//
//	$1 project  $2 refs  $3 owner  $4 nonce
const abandonSQL = `
WITH doomed AS MATERIALIZED (
  SELECT tid, asked.ref, waiting FROM unnest($2::text[]) AS asked (ref), LATERAL (` + lockOfAsked + `) AS lock
  WHERE owner = $3 AND nonce = $4 AND NOT (` + isIntent + `)
), deleted AS (
  DELETE FROM locks WHERE ctid = ANY (ARRAY(SELECT tid FROM doomed))
)
SELECT ref, waiting FROM doomed`

// Abandon waits for the keys, and so for an acquisition that is still being
// carried out, whose rows nobody sees yet.
func (d *Driver) Abandon(ctx context.Context, r refdb.AbandonRequest) error {
	var freed []freedLock
	err := d.do(ctx, roundTrip{what: "abandon locks", writes: true}.
		lockRefs(r.Project, r.Refs).
		lockRows(r.Project, r.Refs).
		then(abandonSQL, func(rows pgx.Rows) (err error) {
			freed, err = readFreed(rows, r.Project)
			return err
		}, r.Project, r.Refs, r.Owner, r.Nonce))
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
