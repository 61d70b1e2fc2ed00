package memory

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/queue"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

// A lock is a row of the table of locks.
type lock struct {
	driver.LockInfo             // without an age
	nonce           string      // of the request that took it
	queue           queue.Queue // of those who wait for it
}

func (d *connection) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.Acquired, error) {
	return write(ctx, d, "acquire locks", func(t *tx) (answer driver.Acquired, _ error) {
		a, refused := rules.Acquire(r, t.rows(r.Project, r.Refs), t.now)
		answer = a.Acquired
		switch {
		case refused != nil:
			t.apply(r.Project, r.Refs, a.After)
		case !a.Adopted:
			answer.Token = t.lock(r.Project, r.Refs, r.Owner, r.Nonce, r.StaleAfter, a.After)
		}
		return answer, refused
	})
}

// rows returns what the tables hold about refs.
func (t *tx) rows(project string, refs []string) []rules.Row {
	rows := make([]rules.Row, len(refs))
	for i, ref := range refs {
		k := key{project, ref}
		rows[i].Name = ref
		if row, ok := t.refs[k]; ok {
			rows[i].Ref = &row
		}
		if l := t.locks[k]; l != nil {
			rows[i].Lock, rows[i].Nonce, rows[i].Queue = t.lockOn(k), l.nonce, l.queue
		}
	}
	return rows
}

// apply writes what becomes of the rows of refs.
func (t *tx) apply(project string, refs []string, after []queue.RowUpdate) {
	for i, ref := range refs {
		k := key{project, ref}
		switch a := after[i]; a.Action {
		case queue.SetQueue:
			t.locks[k].queue = a.Queue
		case queue.Reserve:
			t.locks[k] = &lock{a.Lock, a.Nonce, a.Queue}
		case queue.Delete:
			delete(t.locks, k)
		}
	}
}

// end ends the locks on refs: they go to next, or to the first waiter.
func (t *tx) end(project string, refs []string, next driver.Waiter) {
	after := make([]queue.RowUpdate, len(refs))
	for i, r := range t.rows(project, refs) {
		after[i] = queue.End(*r.Lock, r.Queue, next, t.now)
	}
	t.apply(project, refs, after)
}

// lock takes the locks on refs, whatever stands there, with the queues of after.
func (t *tx) lock(project string, refs []string, owner, nonce string, staleAfter time.Duration, after []queue.RowUpdate) driver.Token {
	token := t.token()
	for i, ref := range refs {
		info := driver.LockInfo{Project: project, Ref: ref, Owner: owner, Token: token, Heartbeat: t.now, StaleAfter: staleAfter}
		t.locks[key{project, ref}] = &lock{info, nonce, after[i].Queue}
	}
	return token
}

// token returns a token larger than any before, even if the clock was set back.
func (t *tx) token() driver.Token {
	t.mark = max(t.mark+1, driver.TokenOf(t.now))
	return t.mark
}

func (t *tx) unlock(locks []driver.LockInfo) {
	for _, l := range locks {
		delete(t.locks, key{l.Project, l.Ref})
	}
}

// lockOn returns a lock with its age, or nil.
func (t *tx) lockOn(k key) *driver.LockInfo {
	l := t.locks[k]
	if l == nil {
		return nil
	}
	info := l.LockInfo
	info.Age = t.now.Sub(info.Heartbeat)
	return &info
}

// locksIn returns a function that returns the lock on a ref of a project, or nil.
func (t *tx) locksIn(project string) func(ref string) *driver.LockInfo {
	return func(ref string) *driver.LockInfo { return t.lockOn(key{project, ref}) }
}

// locksWhere returns the locks that are wanted, in the order of their keys.
func (t *tx) locksWhere(wanted func(driver.LockInfo) bool) (locks []driver.LockInfo) {
	for _, k := range sorted(t.locks) {
		if l := t.lockOn(k); wanted(*l) {
			locks = append(locks, *l)
		}
	}
	return locks
}

func (d *connection) Beat(ctx context.Context, locks []driver.LockID) ([]driver.BeatResult, error) {
	return write(ctx, d, "renew locks", func(t *tx) (results []driver.BeatResult, _ error) {
		results = slices.Repeat([]driver.BeatResult{driver.BeatLost}, len(locks))
		for i, id := range locks {
			k := key{id.Project, id.Ref}
			if rules.Stands(t.lockOn(k), id, rules.Lease) {
				t.locks[k].Heartbeat, results[i] = t.now, driver.BeatRenewed
			}
		}
		return results, nil
	})
}

func (d *connection) Release(ctx context.Context, r driver.ReleaseRequest) (driver.Released, error) {
	return write(ctx, d, "release locks", func(t *tx) (released driver.Released, _ error) {
		held := driver.Fence{Refs: r.Refs, Owner: r.Owner, Token: r.Token}
		released.Missing = rules.Missing(r.Project, held, rules.Lease, t.locksIn(r.Project))
		t.end(r.Project, without(r.Refs, released.Missing), r.Next)
		return released, nil
	})
}

func (d *connection) Purge(ctx context.Context, locks []driver.StandingLock) ([]bool, error) {
	return write(ctx, d, "purge locks", func(t *tx) (purged []bool, _ error) {
		purged = make([]bool, len(locks))
		for i, s := range locks {
			refs := []string{s.Ref}
			row := t.rows(s.Project, refs)[0]
			if purged[i] = rules.StandsAsListed(row.Lock, s); purged[i] {
				t.apply(s.Project, refs, []queue.RowUpdate{queue.Purge(*row.Lock, row.Queue, t.now)})
			}
		}
		return purged, nil
	})
}

func (d *connection) Abandon(ctx context.Context, r driver.AbandonRequest) error {
	return d.write(ctx, "abandon locks", func(t *tx) error {
		after := make([]queue.RowUpdate, len(r.Refs))
		for i, row := range t.rows(r.Project, r.Refs) {
			after[i] = rules.Abandon(r, row, t.now)
		}
		t.apply(r.Project, r.Refs, after)
		return nil
	})
}

func (d *connection) Locks(ctx context.Context, q driver.LockQuery) (driver.LockPage, error) {
	return transact(ctx, d, "list locks", func(t *tx) (p driver.LockPage, _ error) {
		p.Locks = t.locksWhere(func(l driver.LockInfo) bool {
			marker := strings.HasPrefix(l.Project, driver.ReclaimPrefix)
			return key{l.Project, l.Ref}.compare(key(q.After)) > 0 && marker == q.Markers && selectsLock(q.LockFilter, l)
		})
		p.Locks = p.Locks[:min(len(p.Locks), q.Limit)]
		for i, l := range p.Locks {
			p.Locks[i].Waiters = len(t.locks[key{l.Project, l.Ref}].queue)
		}
		if n := len(p.Locks); n == q.Limit {
			last := p.Locks[n-1]
			p.Next = driver.LockCursor{Project: last.Project, Ref: last.Ref}
		}
		return p, nil
	})
}

func selectsLock(f driver.LockFilter, l driver.LockInfo) bool {
	return (f.Project == "" || l.Project == f.Project) &&
		(f.Ref == "" || l.Ref == f.Ref) &&
		strings.HasPrefix(l.Ref, f.Prefix) &&
		ownedBy(l.Owner, f.Owner) &&
		(!f.Stale || l.Stale()) &&
		(f.OlderThan == 0 || l.Age > f.OlderThan)
}
