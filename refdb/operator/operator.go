// Package operator contains the operations that only operators' commands need: it diagnoses a
// database, checks privileges, and deletes stale locks, orphaned markers, tombstones and old
// history. refdbctl uses this package.
package operator

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/engine"
)

// A Handle operates on a database for operators: see refdb.DB.Operator. Its methods may be called
// concurrently.
type Handle struct{ engine *engine.Engine }

// New returns a Handle on e. Only package refdb calls it: programs get theirs from a refdb.DB.
func New(e *engine.Engine) *Handle { return &Handle{engine: e} }

// Diagnose checks the settings of the database on which the guarantees of package refdb depend. It
// returns nothing for a driver without such settings.
func (h *Handle) Diagnose(ctx context.Context) ([]driver.Diagnosis, error) {
	d, ok, err := engine.RoleOf[driver.Diagnoser](h.engine)
	if !ok {
		return nil, err
	}
	return d.Diagnose(ctx)
}

// CheckRights returns an error if it is known that the user lacks the privileges for a step of a
// command of refdbctl. A command of several steps calls it before the first step.
func (h *Handle) CheckRights(ctx context.Context, command string) error {
	c, ok, err := engine.RoleOf[driver.RightsChecker](h.engine)
	if ok {
		err = c.CheckRights(ctx, command)
	}
	if err != nil {
		return fmt.Errorf("nothing was done: %w", err)
	}
	return nil
}

// Orphans iterates over the marker rows that a crashed reclaim, by a driver on Spanner or by
// Gerrit's plugin, has left. A marker is a row of the table of locks whose project consists of
// [driver.ReclaimPrefix], a project and a timestamp. A marker is an orphan unless the lock on its
// ref still has that timestamp as its token. Orphans are harmless. [Handle.Purge] removes them.
func (h *Handle) Orphans(ctx context.Context) iter.Seq2[driver.LockInfo, error] {
	return func(yield func(driver.LockInfo, error) bool) {
		for marker, err := range h.engine.Locks(ctx, driver.LockQuery{Markers: true, Limit: engine.PageSize}) {
			if err != nil {
				yield(driver.LockInfo{}, err)
				return
			}
			project, token, ok := parseMarker(marker.Project)
			if !ok {
				continue
			}
			standing, err := h.lockOn(ctx, project, marker.Ref)
			if err == nil && slices.ContainsFunc(standing, func(l driver.LockInfo) bool { return l.Token == token }) {
				continue
			}
			if !yield(marker, err) || err != nil {
				return
			}
		}
	}
}

func (h *Handle) lockOn(ctx context.Context, project, ref string) ([]driver.LockInfo, error) {
	q := driver.LockQuery{LockFilter: driver.LockFilter{Project: project, Ref: ref}, Limit: 1}
	page, err := engine.Retry(ctx, h.engine, func(d driver.Driver) (driver.LockPage, error) { return d.Locks(ctx, q) })
	return page.Locks, err
}

// A PurgeOption changes what [Handle.Purge] may remove.
type PurgeOption func(*purge)

type purge struct{ fresh bool }

// PurgeFresh also removes fresh locks. Their holders learn of the loss with their next beat, and
// their fenced writes are refused. Until that beat, their work outside the database is unguarded.
func PurgeFresh() PurgeOption { return func(p *purge) { p.fresh = true } }

// Purge removes locks, as listed by refdb.DB.Locks or [Handle.Orphans], and returns those that it
// removed:
//   - a lock that was listed as stale, or an orphan, only if it still has the listed owner, token
//     and heartbeat: it stays if it was renewed or changed hands since;
//   - a lock that was listed as fresh only with [PurgeFresh], and if it still has the listed owner
//     and token.
//
// If a fresh lock is given without PurgeFresh, or any lock of a [driver.Intent], nothing is removed
// and the error is a [*driver.LockedError]. Purge works in chunks: after an error the returned
// locks have been removed.
func (h *Handle) Purge(ctx context.Context, locks []driver.LockInfo, opts ...PurgeOption) (removed []driver.LockInfo, err error) {
	var p purge
	for _, o := range opts {
		o(&p)
	}
	var fresh []driver.LockInfo
	for _, l := range locks {
		if l.Intended() {
			return nil, fmt.Errorf("purging locks: %w: %w", &driver.LockedError{Holders: []driver.LockInfo{l}}, errIntent)
		}
		if !isMarker(l) && !l.Stale() {
			fresh = append(fresh, l)
		}
	}
	if len(fresh) > 0 && !p.fresh {
		return nil, fmt.Errorf("purging locks: %w", &driver.LockedError{Holders: fresh})
	}
	start := time.Now()
	defer func() { h.engine.Observed(driver.Event{Op: driver.OpPurge, Refs: len(removed)}, start, err) }()
	for chunk := range slices.Chunk(locks, engine.PageSize) {
		standing := make([]driver.StandingLock, len(chunk))
		for i, l := range chunk {
			standing[i].LockID = l.ID()
			if isMarker(l) || l.Stale() {
				standing[i].Heartbeat = l.Heartbeat
			}
		}
		gone, err := engine.Retry(ctx, h.engine, func(d driver.Driver) ([]bool, error) { return d.Purge(ctx, standing) })
		if err != nil {
			return removed, fmt.Errorf("purging locks: %w", err)
		}
		for i, ok := range gone {
			if ok {
				removed = append(removed, chunk[i])
			}
		}
	}
	h.engine.Logger.InfoContext(ctx, "locks purged", "asked", len(locks), "removed", len(removed))
	return removed, nil
}

func isMarker(l driver.LockInfo) bool { return strings.HasPrefix(l.Project, driver.ReclaimPrefix) }

// parseMarker splits RECLAIM_<project>_<T>, where T is a timestamp as Google's and
// Java's types print it.
func parseMarker(name string) (project string, token driver.Token, ok bool) {
	name, ok = strings.CutPrefix(name, driver.ReclaimPrefix)
	cut := strings.LastIndexByte(name, '_')
	if !ok || cut <= 0 {
		return "", 0, false
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999"} {
		if t, err := time.Parse(layout, name[cut+1:]); err == nil {
			return name[:cut], driver.TokenOf(t), true
		}
	}
	return "", 0, false
}

// errIntent explains why a lock can't be purged.
var errIntent = errors.New("the lock stands for an intent: the intent's site ends it, or `refdbctl locks resolve`")

// PurgeTombstones removes the rows of refs that were deleted at least olderThan ago, and returns
// their number. Afterwards a site that missed the deletion and still has the ref can restore it:
// choose olderThan well above the longest time that a site may lag behind.
func (h *Handle) PurgeTombstones(ctx context.Context, project string, olderThan time.Duration) (int, error) {
	if olderThan < 0 {
		return 0, fmt.Errorf("%w age %s: it can't be negative", driver.ErrInvalid, olderThan)
	}
	r := driver.TombstoneRequest{Project: project, Limit: engine.PageSize, OlderThan: olderThan}
	return h.engine.Remove(ctx, project, func(d driver.Driver) (int, error) { return d.PurgeTombstones(ctx, r) })
}

// PruneOptions selects the changes that [Handle.PruneHistory] deletes.
type PruneOptions struct {
	OlderThan time.Duration // only changes of at least this age
	Keep      int           // the number of newest changes to keep for each ref, however old
	// EvenUnread, unless 0, is the age from which changes are deleted even if a registered follower
	// has not read them, or a witness has not compared the database since. The follower then fails
	// with [driver.ErrPruned], and the witness reports the changes as lost.
	EvenUnread time.Duration
}

// PruneHistory deletes old changes and returns their number. It works in chunks, while the database
// is in use: after an error some changes may have been deleted, and calling it again deletes the
// rest.
func (h *Handle) PruneHistory(ctx context.Context, o PruneOptions) (total int, err error) {
	if o.OlderThan < 0 || o.EvenUnread < 0 || o.Keep < 0 {
		return 0, fmt.Errorf("pruning the history: %w: ages and numbers can't be negative", driver.ErrInvalid)
	}
	start := time.Now()
	defer func() { h.engine.Observed(driver.Event{Op: driver.OpRemove, Refs: total}, start, err) }()
	now, err := h.engine.Now(ctx)
	if err != nil {
		return 0, fmt.Errorf("pruning the history: %w", err)
	}
	bound := func(age time.Duration) (driver.Position, error) {
		return engine.Retry(ctx, h.engine, func(d driver.Driver) (driver.Position, error) {
			at, _, err := d.PositionAt(ctx, now.Add(-age))
			return at, err
		})
	}
	r := driver.PruneRequest{Keep: o.Keep, Limit: engine.PageSize, EvenUnread: math.MinInt64}
	age, err := h.engine.UncomparedAge(ctx, now)
	if err == nil {
		r.Upto, err = bound(max(o.OlderThan, age))
	}
	if err == nil && o.EvenUnread > 0 {
		r.EvenUnread, err = bound(max(o.EvenUnread, o.OlderThan))
		r.Upto = max(r.Upto, r.EvenUnread)
	}
	for err == nil {
		var p driver.Pruned
		p, err = engine.Retry(ctx, h.engine, func(d driver.Driver) (driver.Pruned, error) { return d.Prune(ctx, r) })
		total += p.Deleted
		if err == nil && p.Next == (driver.ChangeKey{}) {
			return total, nil
		}
		r.After = p.Next
	}
	return total, fmt.Errorf("pruning the history, after %d changes: %w", total, err)
}
