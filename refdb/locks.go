package refdb

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"
)

// Locks iterates over the locks that f selects, in byte order of project and
// ref. It reads page by page, each as of its own point in time. An error ends it.
func (db *DB) Locks(ctx context.Context, f LockFilter) iter.Seq2[LockInfo, error] {
	return db.locks(ctx, LockQuery{LockFilter: f, Limit: pageSize})
}

// Orphans iterates over the marker rows that a crashed reclaim, by this package on
// Spanner or by Gerrit's plugin, left behind. A marker is a row of the table of
// locks whose project is [ReclaimPrefix], a project and a timestamp. It is an
// orphan unless the lock on its ref still has that timestamp as its token.
// Orphans do no harm. [DB.Purge] removes them.
func (db *DB) Orphans(ctx context.Context) iter.Seq2[LockInfo, error] {
	return func(yield func(LockInfo, error) bool) {
		for marker, err := range db.locks(ctx, LockQuery{Markers: true, Limit: pageSize}) {
			if err != nil {
				yield(LockInfo{}, err)
				return
			}
			project, token, ok := parseMarker(marker.Project)
			if !ok {
				continue
			}
			standing, err := db.lockOn(ctx, project, marker.Ref)
			if err == nil && slices.ContainsFunc(standing, func(l LockInfo) bool { return l.Token == token }) {
				continue
			}
			if !yield(marker, err) || err != nil {
				return
			}
		}
	}
}

func (db *DB) lockOn(ctx context.Context, project, ref string) ([]LockInfo, error) {
	q := LockQuery{LockFilter: LockFilter{Project: project, Ref: ref}, Limit: 1}
	page, err := retry(ctx, db, func(d Driver) (LockPage, error) { return d.Locks(ctx, q) })
	return page.Locks, err
}

func (db *DB) locks(ctx context.Context, q LockQuery) iter.Seq2[LockInfo, error] {
	if err := q.LockFilter.check(); err != nil {
		return failedListing[LockInfo]("locks", err)
	}
	return pages(ctx, db, "locks", func(d Driver, after LockCursor) ([]LockInfo, LockCursor, error) {
		q := q
		q.After = after
		page, err := d.Locks(ctx, q)
		return page.Locks, page.Next, err
	})
}

// check returns an error wrapping ErrInvalid if no lock can be selected by f.
func (f LockFilter) check() error {
	if f.Project != "" {
		if err := CheckProject(f.Project); err != nil {
			return err
		}
	}
	if f.Ref != "" {
		if err := CheckRef(f.Ref); err != nil {
			return err
		}
	}
	if fault := textFault(f.Owner); f.Owner != "" && fault != "" {
		return fmt.Errorf("%w owner %q: %s", ErrInvalid, f.Owner, fault)
	}
	if f.OlderThan < 0 {
		return fmt.Errorf("%w age %s: it can't be negative", ErrInvalid, f.OlderThan)
	}
	return checkPrefix(f.Prefix)
}

// A PurgeOption changes what [DB.Purge] may remove.
type PurgeOption func(*purge)

type purge struct{ fresh bool }

// PurgeFresh also removes fresh locks. Their holders learn of it with their next
// beat, and their fenced writes are refused. Until that beat, what they do
// elsewhere goes on unguarded.
func PurgeFresh() PurgeOption { return func(p *purge) { p.fresh = true } }

// Purge removes locks, as listed by [DB.Locks] or [DB.Orphans], and returns those
// that it removed:
//   - a lock that was listed as stale, or an orphan, only if it still has the listed
//     owner, token and heartbeat: it stays if it was renewed or changed hands since;
//   - a lock that was listed as fresh only with [PurgeFresh], and if it still has the
//     listed owner and token.
//
// If a fresh lock is given without PurgeFresh, or any lock that stands for an
// [Intent], nothing is removed and the error is a [*LockedError]. Purge works in
// chunks: after an error the returned locks are gone.
func (db *DB) Purge(ctx context.Context, locks []LockInfo, opts ...PurgeOption) (removed []LockInfo, err error) {
	var p purge
	for _, o := range opts {
		o(&p)
	}
	var fresh []LockInfo
	for _, l := range locks {
		if l.Intended() {
			return nil, fmt.Errorf("purging locks: %w: %w", &LockedError{Holders: []LockInfo{l}}, errIntent)
		}
		if !l.isMarker() && !l.Stale() {
			fresh = append(fresh, l)
		}
	}
	if len(fresh) > 0 && !p.fresh {
		return nil, fmt.Errorf("purging locks: %w", &LockedError{Holders: fresh})
	}
	start := time.Now()
	defer func() { db.observe(Event{Op: OpPurge, Refs: len(removed)}, start, err) }()
	for chunk := range slices.Chunk(locks, pageSize) {
		standing := make([]StandingLock, len(chunk))
		for i, l := range chunk {
			standing[i].LockID = l.ID()
			if l.isMarker() || l.Stale() {
				standing[i].Heartbeat = l.Heartbeat
			}
		}
		gone, err := retry(ctx, db, func(d Driver) ([]bool, error) { return d.Purge(ctx, standing) })
		if err != nil {
			return removed, fmt.Errorf("purging locks: %w", err)
		}
		for i, ok := range gone {
			if ok {
				removed = append(removed, chunk[i])
			}
		}
	}
	db.opts.Logger.InfoContext(ctx, "locks purged", "asked", len(locks), "removed", len(removed))
	return removed, nil
}

func (l LockInfo) isMarker() bool { return strings.HasPrefix(l.Project, ReclaimPrefix) }

// parseMarker splits RECLAIM_<project>_<T>, where T is a timestamp as Google's and
// Java's types print it.
func parseMarker(name string) (project string, token Token, ok bool) {
	name, ok = strings.CutPrefix(name, ReclaimPrefix)
	cut := strings.LastIndexByte(name, '_')
	if !ok || cut <= 0 {
		return "", 0, false
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999"} {
		if t, err := time.Parse(layout, name[cut+1:]); err == nil {
			return name[:cut], TokenOf(t), true
		}
	}
	return "", 0, false
}
