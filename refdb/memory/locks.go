package memory

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// A lock is a row of the table of locks.
type lock struct {
	refdb.LockInfo        // without an age
	nonce          string // of the request that took it
}

func (d *driver) Acquire(ctx context.Context, r refdb.AcquireRequest) (a refdb.Acquired, err error) {
	err = d.transact(ctx, "acquire locks", func(t *tx) error {
		ours := t.taken(r.Project, r.Refs, r.Owner, r.Nonce)
		if len(ours) == len(r.Refs) {
			a = refdb.Acquired{Token: ours[0].Token, Refs: t.rows(r.Project, r.Refs)}
			return nil
		}
		t.unlock(ours) // others took the rest: it starts over
		others := t.locksOn(r.Project, r.Refs)
		if err := refusal(others, refdb.MandatoryLocks); err != nil {
			return err
		}
		token := t.lock(r.Project, r.Refs, r.Owner, r.Nonce, r.StaleAfter)
		a = refdb.Acquired{Token: token, Refs: t.rows(r.Project, r.Refs), Reclaimed: others}
		return nil
	})
	return a, err
}

// taken returns the locks on refs that one request took. Its nonce counts for its owner only.
func (t *tx) taken(project string, refs []string, owner, nonce string) []refdb.LockInfo {
	return slices.DeleteFunc(t.locksOn(project, refs), func(l refdb.LockInfo) bool {
		return l.Owner != owner || t.locks[key{project, l.Ref}].nonce != nonce
	})
}

// lock takes the locks on refs, whatever stands there.
func (t *tx) lock(project string, refs []string, owner, nonce string, staleAfter time.Duration) refdb.Token {
	token := t.token()
	for _, ref := range refs {
		info := refdb.LockInfo{Project: project, Ref: ref, Owner: owner, Token: token, Heartbeat: t.now, StaleAfter: staleAfter}
		t.locks[key{project, ref}] = &lock{info, nonce}
	}
	return token
}

// token returns one that is larger than any before, also if the clock was set back.
func (t *tx) token() refdb.Token {
	t.mark = max(t.mark+1, refdb.TokenOf(t.now))
	return t.mark
}

func (t *tx) unlock(locks []refdb.LockInfo) {
	for _, l := range locks {
		delete(t.locks, key{l.Project, l.Ref})
	}
}

// locksOn returns the locks on refs, in the order of refs.
func (t *tx) locksOn(project string, refs []string) (locks []refdb.LockInfo) {
	for _, ref := range refs {
		if l := t.locks[key{project, ref}]; l != nil {
			locks = append(locks, t.info(l))
		}
	}
	return locks
}

// locksWhere returns the locks that are wanted, in the order of their keys.
func (t *tx) locksWhere(wanted func(refdb.LockInfo) bool) (locks []refdb.LockInfo) {
	for _, k := range sorted(t.locks) {
		if info := t.info(t.locks[k]); wanted(info) {
			locks = append(locks, info)
		}
	}
	return locks
}

func (t *tx) info(l *lock) refdb.LockInfo {
	info := l.LockInfo
	info.Age = t.now.Sub(info.Heartbeat)
	return info
}

// refusal returns a *refdb.LockedError if one of the locks stands in the way.
func refusal(locks []refdb.LockInfo, mode refdb.LockMode) error {
	inTheWay := func(l refdb.LockInfo) bool {
		return l.Intended() || mode == refdb.MandatoryLocks && !l.Stale()
	}
	if !slices.ContainsFunc(locks, inTheWay) {
		return nil
	}
	return &refdb.LockedError{Holders: locks}
}

// held returns the lock of that name, and nil if it doesn't stand, or stands for an intent.
func (t *tx) held(id refdb.LockID) *lock {
	if l := t.locks[key{id.Project, id.Ref}]; l != nil && l.ID() == id && !l.Intended() {
		return l
	}
	return nil
}

// missing returns the refs on which the lock is not held.
func (t *tx) missing(project string, refs []string, owner string, token refdb.Token) (missing []string) {
	for _, ref := range refs {
		if t.held(refdb.LockID{Project: project, Ref: ref, Owner: owner, Token: token}) == nil {
			missing = append(missing, ref)
		}
	}
	return missing
}

func (d *driver) Beat(ctx context.Context, locks []refdb.LockID) (results []refdb.BeatResult, err error) {
	err = d.transact(ctx, "renew locks", func(t *tx) error {
		results = slices.Repeat([]refdb.BeatResult{refdb.BeatLost}, len(locks))
		for i, id := range locks {
			if l := t.held(id); l != nil {
				l.Heartbeat, results[i] = t.now, refdb.Beaten
			}
		}
		return nil
	})
	return results, err
}

func (d *driver) Release(ctx context.Context, r refdb.ReleaseRequest) (released refdb.Released, err error) {
	err = d.transact(ctx, "release locks", func(t *tx) error {
		released.Missing = t.missing(r.Project, r.Refs, r.Owner, r.Token)
		t.unlock(t.locksOn(r.Project, without(r.Refs, released.Missing)))
		return nil
	})
	return released, err
}

func (d *driver) Purge(ctx context.Context, locks []refdb.StandingLock) (purged []bool, err error) {
	err = d.transact(ctx, "purge locks", func(t *tx) error {
		purged = make([]bool, len(locks))
		for i, s := range locks {
			l := t.held(s.LockID)
			purged[i] = l != nil && (s.Heartbeat.IsZero() || s.Heartbeat.Equal(l.Heartbeat))
			if purged[i] {
				delete(t.locks, key{s.Project, s.Ref})
			}
		}
		return nil
	})
	return purged, err
}

func (d *driver) Abandon(ctx context.Context, r refdb.AbandonRequest) error {
	return d.transact(ctx, "abandon locks", func(t *tx) error {
		ours := t.taken(r.Project, r.Refs, r.Owner, r.Nonce)
		t.unlock(slices.DeleteFunc(ours, refdb.LockInfo.Intended))
		return nil
	})
}

func (d *driver) Locks(ctx context.Context, q refdb.LockQuery) (p refdb.LockPage, err error) {
	err = d.transact(ctx, "list locks", func(t *tx) error {
		p.Locks = t.locksWhere(func(l refdb.LockInfo) bool {
			marker := strings.HasPrefix(l.Project, refdb.ReclaimPrefix)
			return key{l.Project, l.Ref}.compare(key(q.After)) > 0 && marker == q.Markers && selectsLock(q.LockFilter, l)
		})
		p.Locks = p.Locks[:min(len(p.Locks), q.Limit)]
		if n := len(p.Locks); n == q.Limit {
			last := p.Locks[n-1]
			p.Next = refdb.LockCursor{Project: last.Project, Ref: last.Ref}
		}
		return nil
	})
	return p, err
}

func selectsLock(f refdb.LockFilter, l refdb.LockInfo) bool {
	return (f.Project == "" || l.Project == f.Project) &&
		(f.Ref == "" || l.Ref == f.Ref) &&
		strings.HasPrefix(l.Ref, f.Prefix) &&
		ownedBy(l.Owner, f.Owner) &&
		(!f.Stale || l.Stale()) &&
		(f.OlderThan == 0 || l.Age > f.OlderThan)
}
