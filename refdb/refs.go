package refdb

import (
	"context"
	"fmt"
	"iter"
	"time"
	"unicode/utf8"
)

// pageSize is how many rows an iterator holds at a time, and how many a
// removal deletes in one transaction.
const pageSize = 1000

// A ListOption changes what [DB.Refs] lists.
type ListOption func(*RefQuery)

// IncludeDeleted lists deleted refs too: rows that hold a zero ID.
func IncludeDeleted() ListOption { return func(q *RefQuery) { q.Deleted = true } }

// Refs iterates over the refs of a project whose names start with prefix, in
// byte order. It reads page by page, and so holds a thousand at a time in
// memory; each page is as of its own point in time. An error ends it.
func (db *DB) Refs(ctx context.Context, project, prefix string, opts ...ListOption) iter.Seq2[Ref, error] {
	q := RefQuery{Project: project, Prefix: prefix, Limit: pageSize}
	for _, o := range opts {
		o(&q)
	}
	return func(yield func(Ref, error) bool) {
		err := CheckProject(project)
		if err == nil {
			err = checkPrefix(prefix)
		}
		if err != nil {
			yield(Ref{}, fmt.Errorf("listing refs: %w", err))
			return
		}
		for q := q; ; {
			start := time.Now()
			page, err := retry(ctx, db, func() (RefPage, error) { return db.driver.List(ctx, q) })
			db.observe(Event{Op: OpList, Refs: len(page.Refs)}, start, err)
			if err != nil {
				yield(Ref{}, fmt.Errorf("listing refs of %s: %w", project, err))
				return
			}
			for _, ref := range page.Refs {
				if !yield(ref, nil) {
					return
				}
			}
			if page.Next == "" {
				return
			}
			q.After = page.Next
		}
	}
}

// A RemoveOption changes what [DB.RemoveProject] does.
type RemoveOption func(*RemoveRequest)

// Force removes a project in spite of fresh locks on it, and them with it.
func Force() RemoveOption { return func(r *RemoveRequest) { r.Locks = AdvisoryLocks } }

// RemoveProject removes all refs and locks of a project and of no other, and
// returns how many refs it removed. It refuses with a [*LockedError] while a
// fresh lock stands on the project. It works in chunks: after an error some of the
// refs may be gone, and calling it again removes the rest.
func (db *DB) RemoveProject(ctx context.Context, project string, opts ...RemoveOption) (int, error) {
	r := RemoveRequest{Project: project, Limit: pageSize}
	for _, o := range opts {
		o(&r)
	}
	return db.remove(ctx, project, func() (int, error) { return db.driver.Remove(ctx, r) })
}

// PurgeTombstones removes the rows of refs that were deleted at least olderThan
// ago, and returns how many. After that nothing keeps a site that missed the
// deletion, and still has the ref, from bringing it back: choose olderThan
// well above the longest that a site may lag behind.
func (db *DB) PurgeTombstones(ctx context.Context, project string, olderThan time.Duration) (int, error) {
	if olderThan < 0 {
		return 0, fmt.Errorf("%w age %s: it can't be negative", ErrInvalid, olderThan)
	}
	r := TombstoneRequest{Project: project, Limit: pageSize, OlderThan: olderThan}
	return db.remove(ctx, project, func() (int, error) { return db.driver.PurgeTombstones(ctx, r) })
}

// remove has chunk remove refs of a project until there are none left.
func (db *DB) remove(ctx context.Context, project string, chunk func() (int, error)) (total int, err error) {
	if err := CheckProject(project); err != nil {
		return 0, fmt.Errorf("removing refs: %w", err)
	}
	start := time.Now()
	defer func() { db.observe(Event{Op: OpRemove, Refs: total}, start, err) }()
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
	for _, c := range []byte(prefix) {
		if c == 0 {
			return fmt.Errorf("%w prefix %q: holds a NUL byte", ErrInvalid, prefix)
		}
	}
	return nil
}
