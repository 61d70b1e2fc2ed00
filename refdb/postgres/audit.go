package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

const (
	recordSQL = `
INSERT INTO audit (time, id, who, origin, action, project, detail, reason)
VALUES (clock_timestamp(), $1, $2, $3, $4, $5, $6, $7) RETURNING time`

	concludeSQL = `
UPDATE audit SET outcome = coalesce(outcome, $3), ended = coalesce(ended, clock_timestamp()) WHERE time = $1 AND id = $2`

	auditSQL = `
SELECT time, id, who, origin, action, project, detail, reason, coalesce(outcome, ''), ended FROM audit
WHERE ($1 = '' OR project = $1) AND time >= $2 AND (time, id) > ($3, $4) ORDER BY time, id LIMIT $5`
)

// Record implements driver.AuditStore.
func (d *Driver) Record(ctx context.Context, e driver.AuditEntry) (at time.Time, err error) {
	err = d.pools.Do(ctx, roundtrip.Write("record an action").
		Query(recordSQL, func(rows pgx.Rows) error { return one(rows, &at) }, e.ID, e.Who, e.Origin, e.Action, e.Project, e.Detail, e.Reason))
	return at.UTC(), err
}

// Conclude implements driver.AuditStore.
func (d *Driver) Conclude(ctx context.Context, e driver.AuditCursor, outcome string) (there bool, err error) {
	err = d.pools.Do(ctx, roundtrip.Write("record an outcome").
		Query(concludeSQL, func(rows pgx.Rows) error {
			rows.Close()
			there = rows.CommandTag().RowsAffected() > 0
			return rows.Err()
		}, e.Time, e.ID, outcome))
	return there, err
}

// Audit implements driver.AuditStore.
func (d *Driver) Audit(ctx context.Context, q driver.AuditQuery) (page driver.AuditPage, err error) {
	err = d.pools.Do(ctx, roundtrip.Read("list the audit").Query(auditSQL, func(rows pgx.Rows) (err error) {
		page.Entries, err = pgx.CollectRows(rows, entryOf)
		return err
	}, q.Project, q.Since, q.After.Time, q.After.ID, q.Limit))
	if err != nil {
		return driver.AuditPage{}, err
	}
	if n := len(page.Entries); n > 0 && n == q.Limit {
		page.Next = page.Entries[n-1].Cursor()
	}
	return page, nil
}

func entryOf(row pgx.CollectableRow) (e driver.AuditEntry, err error) {
	var ended *time.Time
	err = row.Scan(&e.Time, &e.ID, &e.Who, &e.Origin, &e.Action, &e.Project, &e.Detail, &e.Reason, &e.Outcome, &ended)
	if e.Time = e.Time.UTC(); ended != nil {
		e.Ended = ended.UTC()
	}
	return e, err
}
