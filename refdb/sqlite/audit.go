package sqlite

import (
	"context"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

const (
	record = `
		INSERT INTO audit (time, id, who, origin, action, project, detail, reason)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?)`

	conclude = `UPDATE audit SET outcome = coalesce(outcome, ?1), ended = coalesce(ended, ?2) WHERE time = ?3 AND id = ?4`

	entryColumns = `time, id, who, origin, action, project, detail, reason, coalesce(outcome, ''), ended`
)

// Record implements driver.AuditStore.
func (d *Driver) Record(ctx context.Context, e driver.AuditEntry) (time.Time, error) {
	return writeAnyway(ctx, d, "record an action", func(t *tx) (time.Time, error) {
		_, err := t.exec(record, t.now, e.ID, e.Who, e.Origin, e.Action, e.Project, e.Detail, e.Reason)
		return timeOf(t.now), err
	})
}

// Conclude implements driver.AuditStore.
func (d *Driver) Conclude(ctx context.Context, e driver.AuditCursor, outcome string) (bool, error) {
	return writeAnyway(ctx, d, "record an outcome", func(t *tx) (bool, error) {
		return t.execOne(conclude, outcome, t.now, e.Time.UnixMicro(), e.ID)
	})
}

// Audit implements driver.AuditStore.
func (d *Driver) Audit(ctx context.Context, q driver.AuditQuery) (driver.AuditPage, error) {
	var w where
	w.add("time >= ?", microsOfTime(q.Since))
	w.add("(time, id) > (?, ?)", microsOfTime(q.After.Time), q.After.ID)
	w.filter(q.Project, "", "")
	entries, last, err := page(ctx, d, "list the audit", entryColumns+" FROM audit", w, "time, id", q.Limit, entryOf)
	return driver.AuditPage{Entries: entries, Next: last.Cursor()}, err
}

// microsOfTime returns 0 for the zero time.
func microsOfTime(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func entryOf(_ int64, r row) driver.AuditEntry {
	e := driver.AuditEntry{
		Time: timeOf(r.int(0)), ID: r.text(1), Who: r.text(2), Origin: r.text(3), Action: r.text(4), Project: r.text(5),
		Detail: r.text(6), Reason: r.text(7), Outcome: r.text(8),
	}
	if !r.null(9) {
		e.Ended = timeOf(r.int(9))
	}
	return e
}
