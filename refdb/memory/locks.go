package memory

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/internal/queue"
)

// A lock is a row of the table of locks.
type lock struct {
	refdb.LockInfo             // without an age
	nonce          string      // of the request that took it
	queue          queue.Queue // of those who wait for it
}

func (d *driver) Acquire(ctx context.Context, r refdb.AcquireRequest) (a refdb.Acquired, err error) {
	err = d.transact(ctx, "acquire locks", func(t *tx) error {
		ours := t.taken(r.Project, r.Refs, r.Owner, r.Nonce)
		if len(ours) == len(r.Refs) {
			a = refdb.Acquired{Token: ours[0].Token, Refs: t.rows(r.Project, r.Refs)}
			return nil
		}
		rows := t.queues(r.Project, r.Refs)
		for i, ref := range r.Refs {
			rows[i].Ours = slices.Contains(refsOfLocks(ours), ref) // others took the rest: it starts over
		}
		v := queue.Decide(rows, r.Waiter, r.Owner, t.now)
		if v.Refused {
			a.Place = v.Place
			t.leave(r.Project, r.Refs, v.After)
			return &refdb.LockedError{Holders: v.Others}
		}
		token := t.lock(r.Project, r.Refs, r.Owner, r.Nonce, r.StaleAfter)
		for i, ref := range r.Refs {
			t.locks[key{r.Project, ref}].queue = v.After[i].Queue
		}
		a = refdb.Acquired{Token: token, Refs: t.rows(r.Project, r.Refs), Reclaimed: v.Others}
		return nil
	})
	return a, err
}

// queues are the rows of refs as package queue has them.
func (t *tx) queues(project string, refs []string) []queue.Row {
	rows := make([]queue.Row, len(refs))
	for i, ref := range refs {
		if l := t.locks[key{project, ref}]; l != nil {
			info := t.info(l)
			rows[i] = queue.Row{Lock: &info, Nonce: l.nonce, Queue: l.queue}
		}
	}
	return rows
}

// leave leaves the rows of refs as a decision wants them.
func (t *tx) leave(project string, refs []string, after []queue.After) {
	for i, ref := range refs {
		k := key{project, ref}
		switch a := after[i]; a.Change {
		case queue.Queues:
			t.locks[k].queue = a.Queue
		case queue.Reserve:
			t.locks[k] = &lock{a.Lock, a.Nonce, a.Queue}
		case queue.Delete:
			delete(t.locks, k)
		}
	}
}

// end ends the locks on refs: they go to next, or to whoever waits for them.
func (t *tx) end(project string, refs []string, next refdb.Waiter) {
	after := make([]queue.After, len(refs))
	for i, r := range t.queues(project, refs) {
		after[i] = queue.End(*r.Lock, r.Queue, next, t.now)
	}
	t.leave(project, refs, after)
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
		k := key{project, ref}
		var waiting queue.Queue
		if old := t.locks[k]; old != nil {
			waiting = old.queue
		}
		t.locks[k] = &lock{info, nonce, waiting}
	}
	return token
}

// token returns one that is larger than any before, also if the clock was set back.
func (t *tx) token() refdb.Token {
	t.mark = max(t.mark+1, refdb.TokenOf(t.now))
	return t.mark
}

func refsOfLocks(locks []refdb.LockInfo) []string {
	refs := make([]string, len(locks))
	for i, l := range locks {
		refs[i] = l.Ref
	}
	return refs
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
		t.end(r.Project, without(r.Refs, released.Missing), r.Next)
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
				t.end(s.Project, []string{s.Ref}, refdb.Waiter{})
			}
		}
		return nil
	})
	return purged, err
}

func (d *driver) Abandon(ctx context.Context, r refdb.AbandonRequest) error {
	return d.transact(ctx, "abandon locks", func(t *tx) error {
		after := make([]queue.After, len(r.Refs))
		for i, row := range t.queues(r.Project, r.Refs) {
			after[i] = queue.Withdraw(row, r.Waiter, t.now)
		}
		t.leave(r.Project, r.Refs, after)
		ours := slices.DeleteFunc(t.taken(r.Project, r.Refs, r.Owner, r.Nonce), refdb.LockInfo.Intended)
		t.end(r.Project, refsOfLocks(ours), refdb.Waiter{})
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
