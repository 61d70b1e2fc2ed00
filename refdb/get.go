package refdb

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

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
	refs, err = checkRefs(project, refs, MaxUpdateRefs)
	if err != nil {
		return nil, fmt.Errorf("getting refs: %w", err)
	}
	start := time.Now()
	defer func() { db.observe(Event{Op: OpGet, Refs: len(refs)}, start, err) }()
	rows, err = retry(ctx, db, func() ([]Ref, error) { return db.driver.Get(ctx, project, refs) })
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
	if err := CheckValue(local); err != nil {
		return false, err
	}
	global, err := db.Get(ctx, project, ref)
	if err != nil {
		return false, err
	}
	return global == Unknown || global == local || global.IsDeleted() && local.IsAbsent(), nil
}

// checkRefs returns refs sorted, or an error if they can't be requested.
func checkRefs(project string, refs []string, most int) ([]string, error) {
	if len(refs) == 0 {
		return nil, fmt.Errorf("%w request: no refs given", ErrInvalid)
	}
	if len(refs) > most {
		return nil, fmt.Errorf("%w: %d, at most %d are allowed", ErrTooMany, len(refs), most)
	}
	refs = slices.Sorted(slices.Values(refs))
	for i, ref := range refs {
		if err := CheckKey(project, ref); err != nil {
			return nil, err
		}
		if i > 0 && ref == refs[i-1] {
			return nil, fmt.Errorf("%w request: ref %q is given twice", ErrInvalid, ref)
		}
	}
	return refs, nil
}
