package memory

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

func compareEntries(a, b driver.AuditCursor) int {
	return cmp.Or(a.Time.Compare(b.Time), strings.Compare(a.ID, b.ID))
}

func (d *connection) Record(ctx context.Context, e driver.AuditEntry) (time.Time, error) {
	return transact(ctx, d, "record an action", func(t *tx) (at time.Time, _ error) {
		at = t.now
		e.Time, e.Outcome, e.Ended = at, "", time.Time{}
		t.audit = append(t.audit, e)
		slices.SortFunc(t.audit, func(a, b driver.AuditEntry) int { return compareEntries(a.Cursor(), b.Cursor()) })
		return at, nil
	})
}

func (d *connection) Conclude(ctx context.Context, c driver.AuditCursor, outcome string) (bool, error) {
	return transact(ctx, d, "record an outcome", func(t *tx) (there bool, _ error) {
		for i, e := range t.audit {
			if compareEntries(e.Cursor(), c) != 0 {
				continue
			}
			if there = true; e.Ended.IsZero() {
				t.audit[i].Outcome, t.audit[i].Ended = outcome, t.now
			}
		}
		return there, nil
	})
}

func (d *connection) Audit(ctx context.Context, q driver.AuditQuery) (driver.AuditPage, error) {
	return transact(ctx, d, "list the audit", func(t *tx) (page driver.AuditPage, _ error) {
		for _, e := range t.audit {
			if (q.Project == "" || e.Project == q.Project) && !e.Time.Before(q.Since) && compareEntries(e.Cursor(), q.After) > 0 && len(page.Entries) < q.Limit {
				page.Entries = append(page.Entries, e)
			}
		}
		if n := len(page.Entries); n > 0 && n == q.Limit {
			page.Next = page.Entries[n-1].Cursor()
		}
		return page, nil
	})
}
