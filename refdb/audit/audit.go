// Package audit records the actions of operators on a database: each action before it is carried
// out, and its outcome afterwards. refdbctl uses this package.
package audit

import (
	"context"
	"crypto/rand"
	"fmt"
	"iter"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/engine"
)

// A Handle writes and reads the audit of a database: see refdb.DB.Audit. Its methods may be called
// concurrently.
type Handle struct{ engine *engine.Engine }

// New returns a Handle on e. Only package refdb calls it: programs get theirs from a refdb.DB.
func New(e *engine.Engine) *Handle { return &Handle{engine: e} }

// Record writes an entry before its action, and returns the entry with its time and ID. After an
// error the action must not be carried out. If the reply is lost, the entry is recorded again: then
// there may be two entries, one of them without an outcome.
func (h *Handle) Record(ctx context.Context, e driver.AuditEntry) (driver.AuditEntry, error) {
	e.Outcome, e.Ended = "", time.Time{}
	at, err := engine.Retry(ctx, h.engine, func(d driver.Driver) (time.Time, error) {
		e.ID = rand.Text()
		return d.Record(ctx, e)
	})
	if err != nil {
		return driver.AuditEntry{}, fmt.Errorf("recording %s for the audit: %w", e.Action, err)
	}
	e.Time = at
	return e, nil
}

// Conclude writes the outcome of an entry, unless it has one already.
func (h *Handle) Conclude(ctx context.Context, e driver.AuditEntry, outcome string) error {
	there, err := engine.Retry(ctx, h.engine, func(d driver.Driver) (bool, error) { return d.Conclude(ctx, e.Cursor(), outcome) })
	if err == nil && !there {
		err = fmt.Errorf("the entry of %s is gone", e.Time.UTC().Format(time.RFC3339))
	}
	if err != nil {
		return fmt.Errorf("recording the outcome of %s: %w", e.Action, err)
	}
	return nil
}

// A Filter selects entries of the audit. Zero fields select all.
type Filter struct {
	Project string
	Since   time.Time // only entries of this time or later
}

// All iterates over the entries that f selects, ordered by time.
func (h *Handle) All(ctx context.Context, f Filter) iter.Seq2[driver.AuditEntry, error] {
	return engine.Pages(ctx, h.engine, "the audit", func(d driver.Driver, after driver.AuditCursor) ([]driver.AuditEntry, driver.AuditCursor, error) {
		page, err := d.Audit(ctx, driver.AuditQuery{Project: f.Project, Since: f.Since, After: after, Limit: engine.PageSize})
		return page.Entries, page.Next, err
	})
}
