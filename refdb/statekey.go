package refdb

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/engine"
)

// A StateKey stands for what the refs of a project hold in the database. Keys are compared with ==.
// If two are equal, then each ref had the same value when they were read, and no other in between;
// [DB.StateKey] names the exceptions. So whatever was made of those values is still good.
type StateKey struct {
	project, server, epoch string
	newest                 Position
	// pruned is the mark, if newest is below it: then changes after newest may have been pruned.
	// Else 0, so that pruning leaves the keys of busy projects alone.
	pruned    Position
	revision  int64
	unsettled string // random; "" if the key is settled
}

// Settled reports whether every change that was acknowledged before the key was read is part of
// what it stands for. If not, an intent was pending, or a change was not complete: a push may have
// been acknowledged that is recorded later. Such a key equals no other.
func (k StateKey) Settled() bool { return k != StateKey{} && k.unsettled == "" }

// Revision is that of the project's row ([driver.Project]), which tells sites what to guard; 0 if
// the database has none.
func (k StateKey) Revision() int64 { return k.revision }

// StateKey returns the key of what a project's refs hold now. It is one request to the database,
// and cheap: caches ask for it before each use of what they keep. The key changes with each change
// of a ref and of the project's row, and when the database's server is restarted or replaced, or
// went back in time.
//
// A purged tombstone changes no key: unknown and deleted are the same. Nor, on Cloud Spanner, does
// a writer that records no history, such as Gerrit's own plugin: don't cache what it writes.
//
// It waits for nothing. At a server that is not admitted it fails with [ErrNotAdmitted] or
// [ErrLostChanges]: what is there may not be what was acknowledged.
func (db *DB) StateKey(ctx context.Context, project string) (StateKey, error) {
	if err := driver.CheckProject(project); err != nil {
		return StateKey{}, fmt.Errorf("reading the state of a project: %w", err)
	}
	tip, err := engine.Retry(ctx, db.engine, func(d Driver) (driver.Tip, error) {
		tip, err := d.Tip(ctx, project)
		if err == nil && !tip.State.Admitted {
			err = ErrNotAdmitted
		}
		return tip, err
	})
	if err != nil {
		return StateKey{}, fmt.Errorf("reading the state of %s: %w", project, err)
	}
	return keyOf(project, tip), nil
}

// keyOf returns the key that t stands for.
//
// If all transactions up to the newest change have ended, it is the last one: no other at or below
// it can appear any more. A change above it would be seen, unless it was pruned, which raises the
// mark above it.
func keyOf(project string, t driver.Tip) StateKey {
	k := StateKey{
		project: project, server: t.Server, epoch: t.State.Epochs[len(t.State.Epochs)-1].ID, newest: t.Newest, revision: t.Revision,
	}
	if t.Newest < t.State.Pruned {
		k.pruned = t.State.Pruned
	}
	if t.Pending || t.Newest > t.State.Ended {
		k.unsettled = rand.Text()
	}
	return k
}

// ChangedBetween returns the refs that have changed between two keys of a project, from the
// history. It returns false if that can't be told: a key is not settled, they are of different
// servers or of different rows of the project, the changes were pruned, those are more than limit,
// or the database went back in time, or to another server, since to was read.
func (db *DB) ChangedBetween(ctx context.Context, from, to StateKey, limit int) (refs []string, ok bool, err error) {
	same := from
	same.newest, same.pruned = to.newest, to.pruned
	if !from.Settled() || same != to || from.newest > to.newest {
		return nil, false, nil
	}
	page, err := engine.Retry(ctx, db.engine, func(d Driver) (driver.LogPage, error) {
		return d.Log(ctx, driver.LogRequest{Project: to.project, Before: driver.ChangeKey{Position: to.newest + 1}, Limit: limit + 1})
	})
	if err != nil {
		return nil, false, fmt.Errorf("reading changes: %w", err)
	}
	if h := page.State; !h.Admitted || h.Epochs[len(h.Epochs)-1].ID != to.epoch {
		return nil, false, nil // this history may lack changes that the key stands for
	}
	for _, c := range page.Changes {
		if c.Position <= from.newest {
			page.Next = driver.ChangeKey{}
			break
		}
		refs = append(refs, c.Ref)
	}
	if page.Next != (driver.ChangeKey{}) || len(refs) > limit || page.State.Pruned > from.newest+1 {
		return nil, false, nil
	}
	slices.Sort(refs)
	return slices.Compact(refs), true, nil
}
