package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	// heldIntentRows are the arrays $1 to $7: those of heldRows, and whether the
	// row may stand for an intent.
	heldIntentRows = `unnest($1::text[], $2::text[], $3::timestamptz[], $4::text[], $5::text[], $6::timestamptz[], $7::boolean[])
  WITH ORDINALITY AS held (held_project, held_ref, held_token, held_nonce, held_owner, held_heartbeat, held_intent, n)`

	// lockOfHeldIntent is the lock that such a row names, if it matches.
	lockOfHeldIntent = `SELECT *, ctid AS tid FROM locks WHERE project = held_project AND ref = held_ref AND` + matchesAny + `
AND (held_intent OR NOT (` + isIntent + `)) LIMIT 1`

	lockHeldIntentsSQL = `SELECT 1 FROM ` + heldIntentRows + `, LATERAL (` + lockOfHeldIntent + ` FOR UPDATE) AS lock`

	releaseIntentsSQL = `
WITH doomed AS MATERIALIZED (
  SELECT n, lock.* FROM ` + heldIntentRows + `, LATERAL (` + lockOfHeldIntent + `) AS lock
), ended AS (
  DELETE FROM intents WHERE ctid = ANY (ARRAY(SELECT intent.tid FROM doomed AS asked, LATERAL (` + pendingOfAsked + `) AS intent))
), deleted AS (
  DELETE FROM locks WHERE ctid = ANY (ARRAY(SELECT tid FROM doomed))
)
SELECT n, waiting FROM doomed`
)

// releaseIntents releases locks that may stand for intents, which end with them.
// Like Release it needs no keys: whoever ends a pending intent locks the row of its lock first.
func (d *Driver) releaseIntents(ctx context.Context, held []refdb.Held) ([]bool, error) {
	rows := sortHeld(held)
	intents := make([]bool, len(rows))
	for i, h := range rows {
		intents[i] = h.Intent
	}
	args := append(rows.args(), intents)
	var gone []bool
	var freed []freedLock
	err := d.do(ctx, rows.excluding("release locks").
		then(lockHeldIntentsSQL, nil, args...).
		then(releaseIntentsSQL, func(answer pgx.Rows) (err error) {
			gone, freed, err = rows.released(answer)
			return err
		}, args...))
	if err != nil {
		return nil, err
	}
	d.released(freed)
	return gone, nil
}
