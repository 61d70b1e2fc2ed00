// Package followers registers readers of a database's history. Changes that a registered reader has
// not read are not pruned. Site daemons use this package.
package followers

import (
	"context"
	"fmt"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/engine"
)

// A Handle manages the followers of a database: see refdb.DB.Followers. Its methods may be called
// concurrently.
type Handle struct{ engine *engine.Engine }

// New returns a Handle on e. Only package refdb calls it: programs get theirs from a refdb.DB.
func New(e *engine.Engine) *Handle { return &Handle{engine: e} }

// All returns all registered followers, in byte order of their names.
func (h *Handle) All(ctx context.Context) ([]driver.Follower, error) {
	all, err := engine.Retry(ctx, h.engine, func(d driver.Driver) ([]driver.Follower, error) { return d.Followers(ctx) })
	if err != nil {
		return nil, fmt.Errorf("listing followers: %w", err)
	}
	return all, nil
}

// Put registers a reader of the history, or records its progress: it has read all changes up to the
// cursor. Later changes are not pruned, except by operator.PruneOptions.EvenUnread.
func (h *Handle) Put(ctx context.Context, name string, read driver.Cursor) error {
	if err := driver.CheckFollower(name); err != nil {
		return fmt.Errorf("recording a follower: %w", err)
	}
	f := driver.Follower{Name: name, Cursor: read.String(), Read: read.Position()}
	if _, err := engine.Retry(ctx, h.engine, func(d driver.Driver) (struct{}, error) { return struct{}{}, d.PutFollower(ctx, f) }); err != nil {
		return fmt.Errorf("recording follower %q: %w", name, err)
	}
	return nil
}

// Remove ends the registration of a follower, and reports whether it was registered. Changes that
// the follower has not read may be pruned from then on.
func (h *Handle) Remove(ctx context.Context, name string) (bool, error) {
	if err := driver.CheckFollower(name); err != nil {
		return false, fmt.Errorf("removing a follower: %w", err)
	}
	found, err := engine.Retry(ctx, h.engine, func(d driver.Driver) (bool, error) { return d.RemoveFollower(ctx, name) })
	if err != nil {
		return false, fmt.Errorf("removing follower %q: %w", name, err)
	}
	return found, nil
}
