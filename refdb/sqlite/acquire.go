package sqlite

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/internal/queue"
)

const (
	readMark = `SELECT mark FROM token_mark`
	setMark  = `UPDATE token_mark SET mark = ?`

	takeLock = `
		INSERT OR REPLACE INTO locks (project, ref, heartbeat, token, owner, nonce, stale_after)
		VALUES (?, ?, ?, ?, ?, ?, ?)`

	takeLocks = `
		INSERT OR REPLACE INTO locks (project, ref, heartbeat, token, owner, nonce, stale_after)
		SELECT ?1, name.value, ?3, ?4, ?5, ?6, ?7 FROM json_each(?2) AS name`

	dropLocks = `DELETE FROM locks WHERE project = ?1 AND ref IN (SELECT value FROM json_each(?2))`
)

// A claim is what a request wants to write into the rows of locks.
type claim struct {
	project      string
	refs         []string
	owner, nonce string
	staleAfter   time.Duration
	waiter       refdb.Waiter // zero if nobody waits
}

// took reports whether the lock of s was taken by an earlier request for the same claim.
func (c claim) took(s state) bool {
	intended := c.staleAfter >= refdb.NeverStale
	return c.nonce != "" && s.nonce == c.nonce && s.lock.Owner == c.owner && s.lock.Intended() == intended
}

// Acquire implements refdb.LockStore.
func (d *Driver) Acquire(ctx context.Context, r refdb.AcquireRequest) (acquired refdb.Acquired, err error) {
	c := claim{r.Project, r.Refs, r.Owner, r.Nonce, r.StaleAfter, r.Waiter}
	glance := func() error {
		return d.glance(ctx, c, func(found findings, now int64) error {
			v := found.decide(c, now)
			if !v.Refused || !unchanged(v.After) {
				return nil
			}
			acquired.Place = v.Place
			return &refdb.LockedError{Holders: v.Others}
		})
	}
	err = d.contend(c, glance, func() error {
		return d.decide(ctx, "acquire locks", len(c.refs), func(t *tx) (refused, err error) {
			acquired, refused, err = t.acquire(c)
			return refused, err
		})
	})
	if err != nil {
		return refdb.Acquired{Place: acquired.Place}, err
	}
	return acquired, nil
}

// contend has c's locks taken unless it is refused, and has a glance before if that is
// likely: after a refusal of any claim, or of this waiter. Contenders for a stale lock
// exclude each other by the write transaction: there is no marker row.
func (d *Driver) contend(c claim, glance, take func() error) (err error) {
	if d.contended.Load() || !c.waiter.Place.Ticket.IsZero() {
		err = glance()
	}
	if err == nil {
		err = take()
	}
	d.contended.Store(errors.Is(err, refdb.ErrLocked))
	return err
}

// glance returns what refusal does: a *refdb.LockedError if c is to be refused and
// nothing changes by that, as with most claims that come after a refusal. Those that
// wait for a lock ask again and again, and would be in the way of its holder if they took
// a writer's turn each time.
func (d *Driver) glance(ctx context.Context, c claim, refusal func(found findings, now int64) error) error {
	var found findings
	var now int64
	err := d.read(ctx, "look at locks", func(conn *conn) error {
		// Read before the rows, the time makes no lock older than it is.
		now = d.now()
		states, err := look(ctx, conn, now, c.project, c.refs)
		found = survey(c, states)
		return err
	})
	if err != nil || len(found.ours) > 0 {
		return err
	}
	return refusal(found, now)
}

// acquire keeps what it did if it is refused: c's waiter has its place, and what is
// left of a request with the same nonce is gone then.
func (t *tx) acquire(c claim) (acquired refdb.Acquired, refused, err error) {
	states, err := t.look(c.project, c.refs)
	if err != nil {
		return refdb.Acquired{}, nil, err
	}
	found := survey(c, states)
	if len(found.ours) == len(c.refs) {
		return refdb.Acquired{Token: found.newest, Refs: found.refs}, nil, nil
	}
	v := found.decide(c, t.now)
	if v.Refused {
		return refdb.Acquired{Place: v.Place}, &refdb.LockedError{Holders: v.Others}, t.leave(c.project, c.refs, v.After)
	}
	queues := make([]queue.Queue, len(v.After))
	for i, a := range v.After {
		queues[i] = a.Queue
	}
	token, err := t.take(c, found.newest, queues)
	return refdb.Acquired{Token: token, Refs: found.refs, Reclaimed: v.Others}, nil, err
}

// take takes all of c's refs, on which the newest lock has that token, and leaves the
// rows with those queues.
func (t *tx) take(c claim, newest refdb.Token, queues []queue.Queue) (refdb.Token, error) {
	token, err := t.token(newest)
	if err != nil {
		return 0, err
	}
	statement, names := choose(takeLock, takeLocks, c.refs)
	_, err = t.exec(statement, c.project, names, t.now, int64(token), c.owner, orNull(c.nonce), microsOf(c.staleAfter))
	if err != nil {
		return 0, err
	}
	return token, t.queues(c.project, c.refs, queues)
}

// findings are what a claim finds on its refs.
type findings struct {
	refs   []refdb.Ref
	rows   []queue.Row // of locks, one for each ref
	ours   []string    // refs whose locks are of the same claim
	newest refdb.Token // of all locks
}

func survey(c claim, states []state) (f findings) {
	f.rows = make([]queue.Row, len(states))
	for i, s := range states {
		if s.row != nil {
			f.refs = append(f.refs, *s.row)
		}
		if s.lock == nil {
			continue
		}
		f.newest = max(f.newest, s.lock.Token)
		f.rows[i] = queue.Row{Lock: s.lock, Nonce: s.nonce, Queue: s.queue, Ours: c.took(s)}
		if f.rows[i].Ours {
			f.ours = append(f.ours, s.lock.Ref)
		}
	}
	return f
}

func (f findings) decide(c claim, now int64) queue.Verdict {
	return queue.Decide(f.rows, c.waiter, c.owner, timeOf(now))
}

// token returns a token larger than newest and than all that were given out,
// even if the clock was set back.
func (t *tx) token(newest refdb.Token) (refdb.Token, error) {
	if newest == math.MaxInt64 {
		return 0, errors.New("the lock that stands there has the largest token possible: it was not written by this program, delete it")
	}
	if t.mark == nil {
		if err := t.query(func(r row) { mark := r.int(0); t.mark = &mark }, readMark); err != nil {
			return 0, err
		}
		if t.mark == nil {
			return 0, errors.New("the table token_mark has lost its row: restore the file from a backup")
		}
	}
	if *t.mark == math.MaxInt64 {
		return 0, errors.New("the table token_mark holds the largest token possible: restore the file from a backup")
	}
	*t.mark = max(t.now, *t.mark+1, int64(newest)+1)
	return refdb.Token(*t.mark), nil
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}
