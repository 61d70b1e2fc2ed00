package engine

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// PageSize is the number of rows that an iterator holds at a time, and that a removal deletes in
// one transaction.
const PageSize = 1000

// Pages iterates over a listing, page by page. read returns the page after a cursor, and the
// cursor of the next page, zero if there is none. what names the listing in errors.
func Pages[T any, C comparable](ctx context.Context, e *Engine, what string, read func(d driver.Driver, after C) (page []T, next C, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var after, none C
		for {
			var next C
			start := time.Now()
			page, err := Retry(ctx, e, func(d driver.Driver) (page []T, err error) {
				page, next, err = read(d, after)
				return page, err
			})
			e.Observed(driver.Event{Op: driver.OpList, Refs: len(page)}, start, err)
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

// FailedListing is a listing that yields only err, because its arguments are invalid.
func FailedListing[T any](what string, err error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		yield(zero, fmt.Errorf("listing %s: %w", what, err))
	}
}

// Remove calls chunk, which removes some refs of a project, until none are left.
func (e *Engine) Remove(ctx context.Context, project string, chunk func(driver.Driver) (int, error)) (total int, err error) {
	if err := driver.CheckProject(project); err != nil {
		return 0, fmt.Errorf("removing refs: %w", err)
	}
	start := time.Now()
	defer func() { e.Observed(driver.Event{Op: driver.OpRemove, Refs: total}, start, err) }()
	if err := e.SchemaError(); err != nil {
		return 0, fmt.Errorf("removing refs: %w", err)
	}
	defer e.Changed()
	for {
		n, err := Retry(ctx, e, chunk)
		total += n
		if err != nil {
			return total, fmt.Errorf("removing refs of %s, after %d: %w", project, total, err)
		}
		if n == 0 {
			return total, nil
		}
	}
}

// Locks iterates over the rows that q selects.
func (e *Engine) Locks(ctx context.Context, q driver.LockQuery) iter.Seq2[driver.LockInfo, error] {
	if err := CheckLockFilter(q.LockFilter); err != nil {
		return FailedListing[driver.LockInfo]("locks", err)
	}
	return Pages(ctx, e, "locks", func(d driver.Driver, after driver.LockCursor) ([]driver.LockInfo, driver.LockCursor, error) {
		q := q
		if after != (driver.LockCursor{}) { // else it is the first page
			q.After = after
		}
		page, err := d.Locks(ctx, q)
		return page.Locks, page.Next, err
	})
}

// Now returns the database's time.
func (e *Engine) Now(ctx context.Context) (time.Time, error) {
	return Retry(ctx, e, func(d driver.Driver) (time.Time, error) { return d.Now(ctx) })
}
