package refdb

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/engine"
)

// HistoryState returns what the history holds now.
func (db *DB) HistoryState(ctx context.Context) (HistoryState, error) {
	s, err := engine.Retry(ctx, db.engine, func(d Driver) (HistoryState, error) { return d.HistoryState(ctx) })
	if err != nil {
		return HistoryState{}, fmt.Errorf("reading the history: %w", err)
	}
	return s, nil
}

// A HistoryOption changes what [DB.History] lists.
type HistoryOption func(*driver.LogRequest)

// Before lists only the changes before a place in the order of all changes, for a listing that goes on
// where an earlier one stopped.
func Before(place driver.ChangeKey) HistoryOption {
	return func(r *driver.LogRequest) { r.Before = place }
}

// History iterates over the changes of a ref or, given ref "", of all refs of a project, newest
// first. It reads page by page, and ends where the history was pruned or began. An error
// ends it.
func (db *DB) History(ctx context.Context, project, ref string, opts ...HistoryOption) iter.Seq2[Change, error] {
	r := driver.LogRequest{Project: project, Ref: ref, Limit: engine.PageSize}
	for _, o := range opts {
		o(&r)
	}
	err := driver.CheckProject(project)
	if ref != "" {
		err = driver.CheckKey(project, ref)
	}
	if err != nil {
		return engine.FailedListing[Change]("changes", err)
	}
	return engine.Pages(ctx, db.engine, "changes of "+project, func(d Driver, before driver.ChangeKey) ([]Change, driver.ChangeKey, error) {
		r := r
		if before != (driver.ChangeKey{}) {
			r.Before = before
		}
		page, err := d.Log(ctx, r)
		return page.Changes, page.Next, err
	})
}

// RefsAt iterates over the refs of a project whose names start with prefix, in byte order, as they
// were right after a position: one consistent state of the past. The position must be complete
// ([HistoryState]), and not be pruned: else the error wraps [ErrInvalid] or [ErrPruned]. An error
// ends it.
func (db *DB) RefsAt(ctx context.Context, project, prefix string, at Position, opts ...ListOption) iter.Seq2[Ref, error] {
	q := driver.RefQuery{Project: project, Prefix: prefix, Limit: engine.PageSize}
	for _, o := range opts {
		o(&q)
	}
	err := errors.Join(driver.CheckProject(project), engine.CheckPrefix(prefix))
	if err != nil {
		return engine.FailedListing[Ref]("refs of the past", err)
	}
	return engine.Pages(ctx, db.engine, "refs of "+project+" in the past", func(d Driver, after string) ([]Ref, string, error) {
		q := q
		if after != "" {
			q.After = after
		}
		page, err := d.Past(ctx, driver.PastRequest{RefQuery: q, At: at})
		if err == nil {
			err = checkPast(page.State, at)
		}
		return page.Refs, page.Next, err
	})
}

// checkPast returns an error unless s knows the state right after a position.
func checkPast(s HistoryState, at Position) error {
	switch {
	case at < s.Pruned-1:
		return fmt.Errorf("%w: position %d, it begins with %d", ErrPruned, at, s.Pruned)
	case at > s.Upto:
		return fmt.Errorf("%w position %d: it is in the future, the last complete one now is %d", ErrInvalid, at, s.Upto)
	}
	return nil
}

// PositionAt returns the last position for which no change up to it is later than t, by the
// database's clock. What is not complete is not looked at: a transaction that has not ended may
// still bring changes up to t, behind that position. The error wraps [ErrPruned] if the history
// begins later.
func (db *DB) PositionAt(ctx context.Context, t time.Time) (Position, error) {
	type answer struct {
		at    Position
		state HistoryState
	}
	a, err := engine.Retry(ctx, db.engine, func(d Driver) (a answer, err error) {
		a.at, a.state, err = d.PositionAt(ctx, t)
		return a, err
	})
	if err != nil {
		return 0, fmt.Errorf("finding the position at %s: %w", t.UTC().Format(time.RFC3339), err)
	}
	return a.at, checkTime(a.state, t, a.at)
}

// checkTime returns an error if the history does not reach back to t.
func checkTime(s HistoryState, t time.Time, at Position) error {
	begins := s.Epochs[0].Began
	if begins.Before(s.PrunedTime) {
		begins = s.PrunedTime
	}
	if t.Before(begins) {
		return fmt.Errorf("%w: %s, it begins at %s", ErrPruned, t.UTC().Format(time.RFC3339Nano), begins.UTC().Format(time.RFC3339Nano))
	}
	return checkPast(s, at)
}
