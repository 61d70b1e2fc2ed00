package refdb

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/engine"
)

// A ListOption changes what [DB.Refs] lists.
type ListOption func(*driver.RefQuery)

// IncludeDeleted also lists deleted refs: rows that hold a zero ID.
func IncludeDeleted() ListOption { return func(q *driver.RefQuery) { q.Deleted = true } }

// Refs iterates over the refs of a project whose names start with prefix, in
// byte order. It reads page by page, and holds at most a thousand refs in memory;
// each page is as of its own point in time. An error ends it.
func (db *DB) Refs(ctx context.Context, project, prefix string, opts ...ListOption) iter.Seq2[Ref, error] {
	q := driver.RefQuery{Project: project, Prefix: prefix, Limit: engine.PageSize}
	for _, o := range opts {
		o(&q)
	}
	err := driver.CheckProject(project)
	if err == nil {
		err = engine.CheckPrefix(prefix)
	}
	if err != nil {
		return engine.FailedListing[Ref]("refs", err)
	}
	return engine.Pages(ctx, db.engine, "refs of "+project, func(d Driver, after string) ([]Ref, string, error) {
		q := q
		if after != "" {
			q.After = after
		}
		page, err := d.List(ctx, q)
		return page.Refs, page.Next, err
	})
}

// Get returns what a ref holds: [Unknown] if the database has no row for it, a
// zero ID if it was deleted.
func (db *DB) Get(ctx context.Context, project, ref string) (Value, error) {
	rows, err := db.GetAll(ctx, project, ref)
	if err != nil || len(rows) == 0 {
		return Unknown, err
	}
	return rows[0].Value, nil
}

// GetAll returns the rows of those refs that have one, deleted ones included,
// in byte order, as they were at one point in time.
func (db *DB) GetAll(ctx context.Context, project string, refs ...string) (rows []Ref, err error) {
	refs, err = engine.CheckRefs(project, refs, MaxUpdateRefs)
	if err != nil {
		return nil, fmt.Errorf("getting refs: %w", err)
	}
	start := time.Now()
	defer func() { db.engine.Observed(Event{Op: driver.OpGet, Refs: len(refs)}, start, err) }()
	rows, err = engine.Retry(ctx, db.engine, func(d Driver) ([]Ref, error) { return d.Get(ctx, project, refs) })
	if err != nil {
		return nil, fmt.Errorf("getting refs of %s: %w", project, err)
	}
	slices.SortFunc(rows, func(a, b Ref) int { return strings.Compare(a.Name, b.Name) })
	return rows, nil
}

// Exists reports whether the database has a row for the ref, even a tombstone.
func (db *DB) Exists(ctx context.Context, project, ref string) (bool, error) {
	rows, err := db.GetAll(ctx, project, ref)
	return len(rows) > 0, err
}

// IsUpToDate reports whether a site whose copy of the ref holds local is up to
// date. It is if the ref is unknown to the database, if it holds local, or if it
// is deleted and local is absent: [Unknown] or a zero ID.
func (db *DB) IsUpToDate(ctx context.Context, project, ref string, local Value) (bool, error) {
	if err := driver.CheckValue(local); err != nil {
		return false, err
	}
	global, err := db.Get(ctx, project, ref)
	if err != nil {
		return false, err
	}
	return global == Unknown || global == local || global.IsDeleted() && local.IsAbsent(), nil
}
