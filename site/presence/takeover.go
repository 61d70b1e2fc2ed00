package presence

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/durable"
	"github.com/globalrefdb/globalrefdb/site/moves"
	"github.com/globalrefdb/globalrefdb/site/pusher"
)

// TakeOver makes c's state directory the one that serves the site from now on, because an
// operator says so: the directory, or the database, was copied, moved, set back or lost. No other
// state directory of the site can serve it any more, and pending pushes will be resolved by the
// repositories that are here. TakeOver refuses while a daemon runs with this directory, or has a
// fresh lock on the site's name and is not proven to have ended. db's site must be c.Site.
func TakeOver(ctx context.Context, c *config.Config, db *refdb.DB, log *slog.Logger) error {
	p := New(db, log)
	lock, err := LockState(c.State)
	if err != nil {
		return err
	}
	defer lock.Close()
	held, err := p.lockName(ctx, c, p.mayTakeOver, func(lock *refdb.Lock) error {
		// The next start would take the pushes of a daemon with another state directory for
		// late requests of an earlier daemon with this one.
		if err := os.Remove(filepath.Join(c.State, "inherited")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("changing the daemon's state: %w", err)
		}
		// What moved under the other state directory is not on this one's list.
		if err := os.RemoveAll(moves.Dir(c.State)); err != nil {
			return fmt.Errorf("changing the daemon's state: %w", err)
		}
		if err := durable.SyncDir(c.State); err != nil {
			return fmt.Errorf("changing the daemon's state: %w", err)
		}
		held, err := p.held(ctx, c)
		if err != nil {
			return err
		}
		return p.advance(ctx, c, lock, location{}, held)
	})
	if err != nil {
		return err
	}
	p.release(held)
	return nil
}

// mayTakeOver lets an operator remove the lock of any daemon that has ended.
func (p *Presence) mayTakeOver(c *config.Config, earlier ownerProcesses, l refdb.LockInfo) error {
	if i, known := earlier.find(l.Owner); l.Stale() || known && pusher.ProvenEnded(i.process) {
		return nil
	}
	return fmt.Errorf("%w: %q is served by %s, which renewed its lock %s ago: stop that one, or wait until the lock is stale if it has ended",
		ErrTaken, c.Site, l.Owner, l.Age.Round(time.Second))
}
