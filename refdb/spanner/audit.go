package spanner

import (
	"context"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

var (
	recordColumns  = []string{"time", "id", "who", "origin", "action", "project", "detail", "reason"}
	outcomeColumns = []string{"time", "id", "outcome", "ended"}
)

const (
	auditSQL = `
SELECT time, id, who, origin, action, project, detail, reason, IFNULL(outcome, ''), ended FROM audit
WHERE (@project = '' OR project = @project) AND time >= @since AND (time > @time OR time = @time AND id > @id)
ORDER BY time, id LIMIT @limit`

	entrySQL = `SELECT ended FROM audit WHERE time = @time AND id = @id`
)

// Record implements driver.AuditStore.
func (d *Driver) Record(ctx context.Context, e driver.AuditEntry) (time.Time, error) {
	r := request{tag: "refdb.record", what: "record an action"}
	at, err := d.transact(ctx, r, func(ctx context.Context, t *transaction) error {
		var b batch
		b.add(len(recordColumns), spanner.Insert("audit", recordColumns,
			[]any{spanner.CommitTimestamp, e.ID, e.Who, e.Origin, e.Action, e.Project, e.Detail, e.Reason}))
		return t.write(&b)
	})
	if err != nil {
		return time.Time{}, err
	}
	return at.UTC(), nil
}

// Conclude implements driver.AuditStore.
func (d *Driver) Conclude(ctx context.Context, e driver.AuditCursor, outcome string) (there bool, err error) {
	r := request{tag: "refdb.conclude", what: "record an outcome"}
	s := spanner.Statement{SQL: entrySQL, Params: map[string]any{"time": e.Time, "id": e.ID}}
	_, err = d.transact(ctx, r, func(ctx context.Context, t *transaction) error {
		there = false
		var ended spanner.NullTime
		err := t.query(ctx, s, func(row *spanner.Row) error {
			there = true
			return row.Columns(&ended)
		})
		if err != nil || !there || ended.Valid {
			return err
		}
		var b batch
		b.add(len(outcomeColumns), spanner.Update("audit", outcomeColumns, []any{e.Time, e.ID, outcome, spanner.CommitTimestamp}))
		return t.write(&b)
	})
	return there && err == nil, err
}

// Audit implements driver.AuditStore.
func (d *Driver) Audit(ctx context.Context, q driver.AuditQuery) (page driver.AuditPage, err error) {
	r := request{tag: "refdb.audit", what: "list the audit"}
	page.Entries, err = readRows(ctx, d, r, entryOf, r.query(spanner.Statement{SQL: auditSQL, Params: map[string]any{
		"project": q.Project, "since": q.Since, "time": q.After.Time, "id": q.After.ID, "limit": int64(q.Limit),
	}}))
	if err != nil {
		return driver.AuditPage{}, err
	}
	if n := len(page.Entries); n > 0 && n == q.Limit {
		page.Next = page.Entries[n-1].Cursor()
	}
	return page, nil
}

func entryOf(row *spanner.Row) (e driver.AuditEntry, err error) {
	var ended spanner.NullTime
	err = row.Columns(&e.Time, &e.ID, &e.Who, &e.Origin, &e.Action, &e.Project, &e.Detail, &e.Reason, &e.Outcome, &ended)
	if e.Time = e.Time.UTC(); ended.Valid {
		e.Ended = ended.Time.UTC()
	}
	return e, err
}
