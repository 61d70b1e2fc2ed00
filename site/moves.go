package site

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/moves"
)

// restoreEvery is how often the daemon tries to write the list of moves again, after it could not.
const restoreEvery = time.Second

// moveList is the list of what has moved here, for guards that keep indexes. The rules are in PROTOCOL.md, M15 to M18.
type moveList struct {
	*moves.Log
	left   []*moves.Begun // of earlier daemons
	failed atomic.Bool    // it could not be written, and that was logged
}

// openMoves opens the list. It is called before anything can move.
func (d *Daemon) openMoves(ctx context.Context, c *config.Config) {
	var err error
	d.list.Log, d.list.left, err = moves.Open(moves.Dir(c.State), d.boot)
	if d.list.IsNew() {
		d.o.Logger.InfoContext(ctx, "a new list of moves begins: its readers compare everything")
	}
	d.listFailed(err)
}

// listFailed logs that the list can't be written, once.
func (d *Daemon) listFailed(err error) {
	if err != nil && !d.list.failed.Swap(true) {
		d.o.Logger.Error("moves can't be listed: guards' indexes do not follow until that is mended; look at the disk of site.state", "error", err)
	}
}

// listMoved puts refs on the list that may have moved in the repository at path. Nobody can make these moves any more. Who is the guard
// that made and reported them; "" if that was somebody else.
func (d *Daemon) listMoved(who, path string, refs ...string) {
	d.listFailed(d.list.Append(entriesOf(who, path, refs)...))
}

// listAbout records moves that are about to be made in the repository at path. They are listed when the function is called that it
// returns: nobody can make them any more then.
func (d *Daemon) listAbout(path string, refs ...string) (ended func()) {
	b, err := d.list.Begin(entriesOf("", path, refs)...)
	d.listFailed(err)
	return func() { d.listFailed(b.End()) }
}

// listRepository says that the repository at path is new here, has gone, or took the place of another.
func (d *Daemon) listRepository(path string) { d.listMoved("", path, "") }

func entriesOf(who, path string, refs []string) []moves.Entry {
	entries := make([]moves.Entry, len(refs))
	for i, ref := range refs {
		entries[i] = moves.Entry{Who: who, Ref: ref, Dir: path}
	}
	return entries
}

// listLeft lists what earlier daemons have let their followers move, once no such git runs any more.
func (d *Daemon) listLeft(ctx context.Context, left *moves.Begun) {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 20*time.Millisecond, time.Second
	for _, path := range slices.Compact(left.Dirs()) {
		for d.awaitEarlierFollowers(ctx, path) != nil {
			if !pauseFor(ctx, pause.NextBackOff()) {
				return
			}
		}
	}
	d.listFailed(left.End())
}

// keepMoves lets a new list begin when the last one could not be written, and forgets readers that have gone, until ctx ends.
func (d *Daemon) keepMoves(ctx context.Context) {
	for _, left := range d.list.left {
		d.tasks.Go(func() { d.listLeft(ctx, left) })
	}
	for pauseFor(ctx, restoreEvery) {
		d.readers.forget(d.guards.lives)
		if d.list.Writable() != nil && d.list.Restore() == nil {
			d.list.failed.Store(false)
			d.o.Logger.WarnContext(ctx, "moves can be listed again: what moved meanwhile is not on the list, and its readers compare everything")
		}
	}
}
