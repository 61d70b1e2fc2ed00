package sqlite

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
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
}

// took reports whether the lock of s was taken by an earlier request for the same claim.
func (c claim) took(s state) bool {
	intended := c.staleAfter >= refdb.NeverStale
	return c.nonce != "" && s.nonce == c.nonce && s.lock.Owner == c.owner && s.lock.Intended() == intended
}

// Acquire implements refdb.LockStore.
func (d *Driver) Acquire(ctx context.Context, r refdb.AcquireRequest) (acquired refdb.Acquired, err error) {
	c := claim{r.Project, r.Refs, r.Owner, r.Nonce, r.StaleAfter}
	err = d.contend(ctx, "acquire locks", c, func(t *tx) (refused, err error) {
		acquired, refused, err = t.acquire(c)
		return refused, err
	})
	if err != nil {
		return refdb.Acquired{}, err
	}
	return acquired, nil
}

// contend carries out do, which takes locks unless it is refused. Contenders for a
// stale lock exclude each other by the write transaction: there is no marker row.
func (d *Driver) contend(ctx context.Context, doing string, c claim, do func(*tx) (refused, err error)) error {
	var err error
	if d.contended.Load() {
		err = d.glance(ctx, c)
	}
	if err == nil {
		err = d.decide(ctx, doing, len(c.refs), do)
	}
	d.contended.Store(errors.Is(err, refdb.ErrLocked))
	return err
}

// glance returns a *refdb.LockedError if c is to be refused, as most claims are
// that come after a refusal: those that wait for a lock ask again and again, and
// would be in the way of its holder if they took a writer's turn each time.
func (d *Driver) glance(ctx context.Context, c claim) error {
	var found findings
	err := d.read(ctx, "look at locks", func(conn *conn) error {
		// Read before the rows, the time makes no lock older than it is.
		states, err := look(ctx, conn, d.now(), c.project, c.refs)
		found = survey(c, states)
		return err
	})
	if err == nil && len(found.ours) == 0 {
		err = found.refusal()
	}
	return err
}

// acquire keeps what it did if it is refused: what is left of a request with
// the same nonce is gone then.
func (t *tx) acquire(c claim) (acquired refdb.Acquired, refused, err error) {
	states, err := t.look(c.project, c.refs)
	if err != nil {
		return refdb.Acquired{}, nil, err
	}
	found := survey(c, states)
	acquired = refdb.Acquired{Token: found.newest, Refs: found.refs, Reclaimed: found.others}
	if len(found.ours) == len(c.refs) {
		return acquired, nil, nil
	}
	if len(found.ours) > 0 {
		if _, err := t.exec(dropLocks, c.project, asJSON(found.ours)); err != nil {
			return refdb.Acquired{}, nil, err
		}
	}
	if refused := found.refusal(); refused != nil {
		return refdb.Acquired{}, refused, nil
	}
	acquired.Token, err = t.take(c, found.newest)
	return acquired, nil, err
}

// take takes all of c's refs, on which the newest lock has that token.
func (t *tx) take(c claim, newest refdb.Token) (refdb.Token, error) {
	token, err := t.token(newest)
	if err != nil {
		return 0, err
	}
	statement, names := choose(takeLock, takeLocks, c.refs)
	_, err = t.exec(statement, c.project, names, t.now, int64(token), c.owner, orNull(c.nonce), microsOf(c.staleAfter))
	return token, err
}

// findings are what a claim finds on its refs.
type findings struct {
	refs   []refdb.Ref
	ours   []string         // refs whose locks are of the same claim
	others []refdb.LockInfo // the other locks
	fresh  bool             // one of others is
	newest refdb.Token      // of all locks
}

func survey(c claim, states []state) (f findings) {
	for _, s := range states {
		if s.row != nil {
			f.refs = append(f.refs, *s.row)
		}
		if s.lock == nil {
			continue
		}
		f.newest = max(f.newest, s.lock.Token)
		if c.took(s) {
			f.ours = append(f.ours, s.lock.Ref)
			continue
		}
		f.others = append(f.others, *s.lock)
		f.fresh = f.fresh || !s.lock.Stale()
	}
	return f
}

// refusal returns nil, or a *refdb.LockedError.
func (f findings) refusal() error {
	if !f.fresh {
		return nil
	}
	return &refdb.LockedError{Holders: f.others}
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
