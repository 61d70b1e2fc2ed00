package refdb

import (
	"context"
	"crypto/rand"
	"fmt"
	"iter"
	"time"
)

// An AuditEntry is one action of an operator.
type AuditEntry struct {
	Time    time.Time // the database's, before the action
	ID      string
	Who     string // user@host, and the user who called sudo
	Origin  string // where the operator came from: a host, an address
	Action  string // the command
	Project string // "" if it is about none, or several
	Detail  string // what the action was on
	Reason  string // "" if none was given
	Outcome string // "" if it is not known
	Ended   time.Time
}

// Cursor names the entry.
func (e AuditEntry) Cursor() AuditCursor { return AuditCursor{e.Time, e.ID} }

// An AuditCursor names an entry.
type AuditCursor struct {
	Time time.Time
	ID   string
}

// An AuditQuery selects a page of entries. Zero fields select all.
type AuditQuery struct {
	Project string
	Since   time.Time   // of that time or later
	After   AuditCursor // only entries after this; zero to start
	Limit   int
}

// An AuditPage is a page of entries. Next is the last one's cursor if there may be more.
type AuditPage struct {
	Entries []AuditEntry
	Next    AuditCursor
}

// Record writes an entry before its action, and returns it with its time and ID. The action
// must not be done if there is an error. If the reply is lost, it is recorded again: then
// there may be two entries, one of them without an outcome.
func (db *DB) Record(ctx context.Context, e AuditEntry) (AuditEntry, error) {
	e.Outcome, e.Ended = "", time.Time{}
	at, err := retry(ctx, db, func(d Driver) (time.Time, error) {
		e.ID = rand.Text()
		return d.Record(ctx, e)
	})
	if err != nil {
		return AuditEntry{}, fmt.Errorf("recording %s for the audit: %w", e.Action, err)
	}
	e.Time = at
	return e, nil
}

// Conclude writes the outcome of an entry, unless it has one already.
func (db *DB) Conclude(ctx context.Context, e AuditEntry, outcome string) error {
	there, err := retry(ctx, db, func(d Driver) (bool, error) { return d.Conclude(ctx, e.Cursor(), outcome) })
	if err == nil && !there {
		err = fmt.Errorf("the entry of %s is gone", e.Time.UTC().Format(time.RFC3339))
	}
	if err != nil {
		return fmt.Errorf("recording the outcome of %s: %w", e.Action, err)
	}
	return nil
}

// An AuditFilter selects entries of the audit. Zero fields select all.
type AuditFilter struct {
	Project string
	Since   time.Time // of that time or later
}

// Audit iterates over the entries that f selects, ordered by time.
func (db *DB) Audit(ctx context.Context, f AuditFilter) iter.Seq2[AuditEntry, error] {
	return pages(ctx, db, "the audit", func(d Driver, after AuditCursor) ([]AuditEntry, AuditCursor, error) {
		page, err := d.Audit(ctx, AuditQuery{Project: f.Project, Since: f.Since, After: after, Limit: pageSize})
		return page.Entries, page.Next, err
	})
}
