package refdb

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// pageSize is how many rows an iterator holds at a time, and how many a
// removal deletes in one transaction.
const pageSize = 1000

// A ListOption changes what [DB.Refs] lists.
type ListOption func(*RefQuery)

// IncludeDeleted also lists deleted refs: rows that hold a zero ID.
func IncludeDeleted() ListOption { return func(q *RefQuery) { q.Deleted = true } }

// Refs iterates over the refs of a project whose names start with prefix, in
// byte order. It reads page by page, and holds at most a thousand refs in memory;
// each page is as of its own point in time. An error ends it.
func (db *DB) Refs(ctx context.Context, project, prefix string, opts ...ListOption) iter.Seq2[Ref, error] {
	q := RefQuery{Project: project, Prefix: prefix, Limit: pageSize}
	for _, o := range opts {
		o(&q)
	}
	err := CheckProject(project)
	if err == nil {
		err = checkPrefix(prefix)
	}
	if err != nil {
		return failedListing[Ref]("refs", err)
	}
	return pages(ctx, db, "refs of "+project, func(d Driver, after string) ([]Ref, string, error) {
		q := q
		if after != "" {
			q.After = after
		}
		page, err := d.List(ctx, q)
		return page.Refs, page.Next, err
	})
}

// A RemoveOption changes what [DB.RemoveProject] does.
type RemoveOption func(*RemoveRequest)

// Force removes a project in spite of fresh locks on it, and removes those too.
func Force() RemoveOption { return func(r *RemoveRequest) { r.Locks = AdvisoryLocks } }

// RemoveProject removes all refs and locks of a project and of no other, and
// returns how many refs it removed. It refuses with a [*LockedError] while a
// fresh lock stands on the project. After the refs it removes the project's packs. It works
// in chunks: after an error some of them may be gone, and calling it again removes the rest.
func (db *DB) RemoveProject(ctx context.Context, project string, opts ...RemoveOption) (int, error) {
	r := RemoveRequest{Origin: db.origin(), Project: project, Limit: pageSize}
	for _, o := range opts {
		o(&r)
	}
	n, err := db.remove(ctx, project, func(d Driver) (int, error) { return d.Remove(ctx, r) })
	if err != nil {
		return n, err
	}
	// A driver may have no place for packs.
	if _, err := db.RemovePacks(ctx, project); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return n, err
	}
	return n, nil
}

// PurgeTombstones removes the rows of refs that were deleted at least olderThan
// ago, and returns how many. After that a site that missed the deletion, and still
// has the ref, can bring it back: choose olderThan well above the longest time that
// a site may lag behind.
func (db *DB) PurgeTombstones(ctx context.Context, project string, olderThan time.Duration) (int, error) {
	if olderThan < 0 {
		return 0, fmt.Errorf("%w age %s: it can't be negative", ErrInvalid, olderThan)
	}
	r := TombstoneRequest{Project: project, Limit: pageSize, OlderThan: olderThan}
	return db.remove(ctx, project, func(d Driver) (int, error) { return d.PurgeTombstones(ctx, r) })
}

// remove calls chunk, which removes some refs of a project, until none are left.
func (db *DB) remove(ctx context.Context, project string, chunk func(Driver) (int, error)) (total int, err error) {
	if err := CheckProject(project); err != nil {
		return 0, fmt.Errorf("removing refs: %w", err)
	}
	start := time.Now()
	defer func() { db.observe(Event{Op: OpRemove, Refs: total}, start, err) }()
	if err := db.schemaError(); err != nil {
		return 0, fmt.Errorf("removing refs: %w", err)
	}
	defer db.feeds.hint()
	for {
		n, err := retry(ctx, db, chunk)
		total += n
		if err != nil {
			return total, fmt.Errorf("removing refs of %s, after %d: %w", project, total, err)
		}
		if n == 0 {
			return total, nil
		}
	}
}

func checkPrefix(prefix string) error {
	if !utf8.ValidString(prefix) || len(prefix) > MaxNameBytes {
		return fmt.Errorf("%w prefix %q: not UTF-8, or over %d bytes", ErrInvalid, prefix, MaxNameBytes)
	}
	if strings.Contains(prefix, "\x00") {
		return fmt.Errorf("%w prefix %q: holds a NUL byte", ErrInvalid, prefix)
	}
	return nil
}

// pages iterates over a listing, page by page. read returns the page after a cursor, and the
// cursor of the next page, zero if there is none. what names the listing in errors.
func pages[T any, C comparable](ctx context.Context, db *DB, what string, read func(d Driver, after C) (page []T, next C, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var after, none C
		for {
			var next C
			start := time.Now()
			page, err := retry(ctx, db, func(d Driver) (page []T, err error) {
				page, next, err = read(d, after)
				return page, err
			})
			db.observe(Event{Op: OpList, Refs: len(page)}, start, err)
			if err != nil {
				var zero T
				yield(zero, fmt.Errorf("listing %s: %w", what, err))
				return
			}
			for _, item := range page {
				if !yield(item, nil) {
					return
				}
			}
			if next == none {
				return
			}
			after = next
		}
	}
}

// failedListing is a listing that yields only err, because its arguments are invalid.
func failedListing[T any](what string, err error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		yield(zero, fmt.Errorf("listing %s: %w", what, err))
	}
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
	refs, err = checkRefs(project, refs, MaxUpdateRefs)
	if err != nil {
		return nil, fmt.Errorf("getting refs: %w", err)
	}
	start := time.Now()
	defer func() { db.observe(Event{Op: OpGet, Refs: len(refs)}, start, err) }()
	rows, err = retry(ctx, db, func(d Driver) ([]Ref, error) { return d.Get(ctx, project, refs) })
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
		return nil, fmt.Errorf("%w: %d refs, at most %d are allowed", ErrTooMany, len(refs), most)
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
