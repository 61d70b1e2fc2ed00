package sqlite

import (
	"context"
	"errors"
	"math"

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

// Acquire implements refdb.Driver. Contenders for a stale lock exclude each
// other by the write transaction: there is no marker row.
func (d *Driver) Acquire(ctx context.Context, r refdb.AcquireRequest) (refdb.Acquired, error) {
	var acquired refdb.Acquired
	var refused, err error
	if d.contended.Load() {
		refused, err = d.glance(ctx, r)
	}
	if err == nil && refused == nil {
		err = d.write(ctx, "acquire locks", len(r.Refs), func(t *tx) (err error) {
			acquired, refused, err = t.acquire(r)
			return err
		})
	}
	if err != nil {
		return refdb.Acquired{}, err
	}
	d.contended.Store(errors.Is(refused, refdb.ErrLocked))
	return acquired, refused
}

// glance returns a *refdb.LockedError if r is to be refused, as most requests
// are that come after a refusal: those that wait for a lock ask again and again,
// and would be in the way of its holder if they took a writer's turn each time.
func (d *Driver) glance(ctx context.Context, r refdb.AcquireRequest) (refused, err error) {
	err = d.read(ctx, "look at locks", func(c *conn) error {
		// Read before the rows, the time makes no lock older than it is.
		states, err := look(func(each func(row), query string, args ...any) error {
			return c.query(ctx, each, query, args...)
		}, d.now(), r.Project, r.Refs)
		if found := survey(states, &r); err == nil && len(found.own) == 0 {
			refused = found.refusal()
		}
		return err
	})
	return refused, err
}

// acquire keeps what it did if it is refused: what is left of a request with
// the same nonce is gone then.
func (t *tx) acquire(r refdb.AcquireRequest) (acquired refdb.Acquired, refused, err error) {
	states, err := look(t.query, t.now, r.Project, r.Refs)
	if err != nil {
		return refdb.Acquired{}, nil, err
	}
	found := survey(states, &r)
	acquired = refdb.Acquired{Token: found.newest, Refs: found.refs, Reclaimed: found.others}
	if len(found.own) == len(r.Refs) {
		return acquired, nil, nil
	}
	if r.Intents != nil {
		// What is left of a preparation is for its owner to finish.
		refused := survey(states, nil).refusal()
		if refused == nil {
			refused = compare(refdb.Transaction{Project: r.Project, Updates: r.Intents}, states)
		}
		if refused == nil {
			revoked, err := t.revoked(r)
			if err != nil {
				return refdb.Acquired{}, nil, err
			}
			if revoked {
				refused = refdb.ErrReleased
			}
		}
		if refused != nil {
			return refdb.Acquired{}, refused, nil
		}
	} else if len(found.own) > 0 {
		if _, err := t.exec(dropLocks, r.Project, asJSON(found.own)); err != nil {
			return refdb.Acquired{}, nil, err
		}
	}
	if refused := found.refusal(); refused != nil {
		return refdb.Acquired{}, refused, nil
	}
	if acquired.Token, err = t.token(found.newest); err != nil {
		return refdb.Acquired{}, nil, err
	}
	statement, names := choose(takeLock, takeLocks, r.Refs)
	_, err = t.exec(statement, r.Project, names, t.now, int64(acquired.Token), r.Owner, orNull(r.Nonce), microsOf(r.StaleAfter))
	if err == nil {
		err = t.intend(r, acquired.Token)
	}
	return acquired, nil, err
}

// findings is what an acquisition finds on its refs.
type findings struct {
	refs   []refdb.Ref
	own    []string         // refs with a lock of the same acquisition
	others []refdb.LockInfo // the other locks
	fresh  bool             // one of others is
	newest refdb.Token      // of all locks
}

// survey takes no lock for r's own if r is nil.
func survey(states []state, r *refdb.AcquireRequest) (f findings) {
	for _, s := range states {
		if s.row != nil {
			f.refs = append(f.refs, *s.row)
		}
		if s.lock == nil {
			continue
		}
		f.newest = max(f.newest, s.lock.Token)
		if r != nil && r.Nonce != "" && s.nonce == r.Nonce && s.lock.Owner == r.Owner {
			f.own = append(f.own, s.lock.Ref)
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
