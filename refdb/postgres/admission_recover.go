package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/operation"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

const (
	// beginRecoverySQL permits the transaction to write. The setting is local to the transaction,
	// so neither a later trigger nor the pooler's next client sees it. Autovacuum yields a table to
	// a waiting lock request only after deadlock_timeout, which is longer than the lock_timeout of
	// other requests.
	beginRecoverySQL = `SELECT set_config('refdb.recovery', 'on', true), set_config('lock_timeout', '10s', true)`

	// excludeSQL waits for the transactions that passed the trigger while the server was still
	// admitted.
	excludeSQL = `LOCK TABLE refs, locks, intents IN SHARE ROW EXCLUSIVE MODE`

	withoutSQL = `
UPDATE witnesses SET without = true, since = greatest(clock_timestamp(), since + interval '1 microsecond')
WHERE name = ANY($1) AND server <> $2 AND NOT away AND NOT without`

	// undecidedSQL returns all lost changes of some refs, with each ref's value and pending intent.
	undecidedSQL = `
WITH chosen AS MATERIALIZED (
  SELECT DISTINCT project, ref FROM lost WHERE fate = '' ORDER BY project, ref LIMIT $1
)
SELECT ` + lostColumns + `, coalesce((SELECT value FROM refs AS r WHERE r.project = lost.project AND r.ref = lost.ref), ''),
  coalesce((SELECT split_part(nonce, E'\t', 1) FROM intents AS i WHERE i.project = lost.project AND i.ref = lost.ref AND decision IS NULL), '')
FROM lost JOIN chosen USING (project, ref) WHERE fate = '' ORDER BY project, ref, op`

	rewriteSQL = `
INSERT INTO refs (project, ref, value, time, op) VALUES ($1, $2, $3, clock_timestamp(), $4)
ON CONFLICT (project, ref) DO UPDATE SET value = excluded.value, time = excluded.time, op = excluded.op`

	// eraseSQL sets refdb.op, from which the trigger that records the removal takes the operation.
	eraseSQL = `WITH op AS MATERIALIZED (SELECT set_config('refdb.op', $3, true)) DELETE FROM refs USING op WHERE project = $1 AND ref = $2`

	endIntentSQL = `
WITH ended AS (DELETE FROM intents WHERE project = $1 AND ref = $2 AND decision IS NULL RETURNING token, owner)
DELETE FROM locks USING ended WHERE locks.project = $1 AND locks.ref = $2 AND locks.owner = ended.owner`

	fateSQL = `UPDATE lost SET fate = $4 WHERE project = $1 AND ref = $2 AND op = $3`

	// endLocksSQL deletes all locks except those of intents, because the changes that released
	// other locks may be lost.
	endLocksSQL = `DELETE FROM locks WHERE stale_after IS NULL OR stale_after < $1`

	// newEpochSQL begins an epoch before the changes that the recovery wrote: since the halt, the
	// database has accepted no other change. A position in that range may once have belonged to
	// another lost change.
	newEpochSQL = `
INSERT INTO epochs (first, id, began, asked_by, reason)
SELECT greatest((SELECT max(first) + 1 FROM epochs), coalesce(
    (SELECT min(position) FROM history WHERE time >= (SELECT since FROM admission WHERE id = 1 AND server = '')),
    pg_current_xact_id()::text::bigint + shift)), $1, clock_timestamp(), $2, $3 FROM history_state WHERE id = 1`
)

// Recover excludes all writers and all reports.
func (d *Driver) Recover(ctx context.Context, r driver.RecoverRequest) (answer driver.Recovered, err error) {
	// Only the last step needs all of these rights, but the first one must not start without them.
	if err := d.CheckRights(ctx, "recover"); err != nil {
		return driver.Recovered{}, err
	}
	err = d.changeAdmission(ctx, "recover", func(tx pgx.Tx, row admission) error {
		answer = driver.Recovered{}
		if row.admitted == row.server {
			answer.Done = true
			answer.Admission, err = admissionNow(ctx, tx)
			return err
		}
		if _, err := tx.Exec(ctx, beginRecoverySQL); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, excludeSQL); err != nil {
			return err
		}
		answer.Admission, err = admissionNow(ctx, tx)
		if err != nil || !r.MayBegin(answer.Admission) {
			return err
		}
		if answer.Lost > 0 {
			answer.Decided, err = decideLost(ctx, tx, r.Limit)
		}
		if err == nil {
			answer.Admission, err = admissionNow(ctx, tx)
		}
		if err != nil || answer.Lost > 0 {
			return err
		}
		for _, s := range []struct {
			sql  string
			args []any
		}{
			{withoutSQL, []any{r.Without, row.server}},
			{endLocksSQL, []any{driver.NeverStale.Microseconds()}},
			{raiseAboveAllSQL, nil},
			{newEpochSQL, []any{r.Epoch, r.By, r.Reason}},
			{admitSQL, []any{row.server}},
		} {
			if _, err := tx.Exec(ctx, s.sql, s.args...); err != nil {
				return err
			}
		}
		answer.Admission, err = admissionNow(ctx, tx)
		answer.Done = true
		return err
	})
	return answer, err
}

// decideLost decides about lost changes of at most limit refs.
func decideLost(ctx context.Context, tx pgx.Tx, limit int) (decided []driver.LostChange, err error) {
	rows, err := tx.Query(ctx, undecidedSQL, limit)
	if err != nil {
		return nil, err
	}
	var refs rules.LostRefs
	_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (l driver.LostChange, err error) {
		var now rules.LostRef
		l, err = lostAnd(row, &now.Value, &now.Intent)
		refs.Add(l, now)
		return l, err
	})
	if err != nil {
		return nil, err
	}
	batch := &pgx.Batch{}
	for _, ref := range refs {
		verdict := ref.Decide()
		if l := verdict.Again; l != nil {
			op := operation.Text(verdict.Origin())
			if l.New == driver.Unknown {
				batch.Queue(eraseSQL, l.Project, l.Ref, op)
			} else {
				batch.Queue(rewriteSQL, l.Project, l.Ref, string(l.New), op)
			}
		}
		if verdict.EndIntent {
			batch.Queue(endIntentSQL, ref.Project, ref.Ref)
		}
		for _, l := range verdict.Decided {
			batch.Queue(fateSQL, l.Project, l.Ref, l.Op, string(l.Fate))
		}
		decided = append(decided, verdict.Decided...)
	}
	return decided, tx.SendBatch(ctx, batch).Close()
}
