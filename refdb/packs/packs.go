// Package packs stores packs of Git objects in a database for the copies of a repository, and reads
// them. A preparation of package intents uses such packs. Site daemons use this package.
package packs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/engine"
)

// A Handle stores and reads the packs of a database: see refdb.DB.Packs. Its methods may be called
// concurrently.
type Handle struct{ engine *engine.Engine }

// New returns a Handle on e. Only package refdb calls it: programs get theirs from a refdb.DB.
func New(e *engine.Engine) *Handle { return &Handle{engine: e} }

// Store stores a part of a pack: see [driver.PackStore].
func (h *Handle) Store(ctx context.Context, p driver.PackPart) error {
	err := engine.CheckPart(p)
	if err == nil {
		store := func(s driver.PackStore) (struct{}, error) { return struct{}{}, s.StorePart(ctx, p) }
		_, err = request(ctx, h, store)
		// Storing the part again changes nothing.
		for try := 1; try < engine.RetryTries && errors.Is(err, driver.ErrOutcomeUnknown) && ctx.Err() == nil; try++ {
			_, err = request(ctx, h, store)
		}
	}
	if err != nil {
		return fmt.Errorf("storing a pack: %w", err)
	}
	return nil
}

// Page returns a page of used packs of a project: see [driver.PackStore].
func (h *Handle) Page(ctx context.Context, q driver.PackQuery) (driver.PackPage, error) {
	err := driver.CheckProject(q.Project)
	var page driver.PackPage
	if err == nil {
		page, err = request(ctx, h, func(s driver.PackStore) (driver.PackPage, error) { return s.Packs(ctx, q) })
	}
	if err != nil {
		return driver.PackPage{}, fmt.Errorf("listing packs: %w", err)
	}
	return page, nil
}

// Part returns a part of a pack, counted from 0.
func (h *Handle) Part(ctx context.Context, id string, number int) ([]byte, error) {
	data, err := request(ctx, h, func(s driver.PackStore) ([]byte, error) { return s.PackPart(ctx, id, number) })
	if err != nil {
		return nil, fmt.Errorf("reading a pack: %w", err)
	}
	return data, nil
}

// Drop deletes a pack unless it was used.
func (h *Handle) Drop(ctx context.Context, id string) error {
	_, err := request(ctx, h, func(s driver.PackStore) (struct{}, error) { return struct{}{}, s.DropPack(ctx, id) })
	if err != nil {
		return fmt.Errorf("dropping a pack: %w", err)
	}
	return nil
}

// DropAbandoned deletes packs that were not used and have received no part for olderThan. It
// returns their number.
func (h *Handle) DropAbandoned(ctx context.Context, olderThan time.Duration) (int, error) {
	return h.drop(ctx, func(s driver.PackStore) (int, error) { return s.DropAbandonedPacks(ctx, olderThan, chunkSize) })
}

// DropSuperseded deletes the packs of a project that precede its latest base. It returns their
// number.
func (h *Handle) DropSuperseded(ctx context.Context, project string) (int, error) {
	if err := driver.CheckProject(project); err != nil {
		return 0, fmt.Errorf("dropping packs: %w", err)
	}
	return h.drop(ctx, func(s driver.PackStore) (int, error) { return s.DropSupersededPacks(ctx, project, chunkSize) })
}

// Remove deletes all packs of a project. It returns their number.
func (h *Handle) Remove(ctx context.Context, project string) (int, error) {
	if err := driver.CheckProject(project); err != nil {
		return 0, fmt.Errorf("removing packs: %w", err)
	}
	return h.drop(ctx, func(s driver.PackStore) (int, error) { return s.RemovePacks(ctx, project, chunkSize) })
}

// Usage returns the number and size of the stored packs of a project, or of all projects if project
// is "".
func (h *Handle) Usage(ctx context.Context, project string) (driver.PackUsage, error) {
	u, err := request(ctx, h, func(s driver.PackStore) (driver.PackUsage, error) { return s.PackUsage(ctx, project) })
	if err != nil {
		return driver.PackUsage{}, fmt.Errorf("counting packs: %w", err)
	}
	return u, nil
}

// chunkSize is the maximum number of packs that one transaction deletes.
const chunkSize = 50

// drop deletes packs chunk by chunk until none are left.
func (h *Handle) drop(ctx context.Context, chunk func(driver.PackStore) (int, error)) (total int, err error) {
	for {
		n, err := request(ctx, h, chunk)
		total += n
		if err != nil {
			return total, fmt.Errorf("dropping packs: %w", err)
		}
		if n == 0 {
			return total, nil
		}
	}
}

func request[T any](ctx context.Context, h *Handle, send func(driver.PackStore) (T, error)) (none T, err error) {
	if err := h.engine.SchemaError(); err != nil {
		return none, err
	}
	return engine.Retry(ctx, h.engine, func(d driver.Driver) (T, error) {
		s, err := engine.PackStoreOf(d)
		if err != nil {
			return none, err
		}
		return send(s)
	})
}
