package sqlite

import (
	"context"
	"errors"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/internal/queue"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

const (
	takeLock = `
		INSERT OR REPLACE INTO locks (project, ref, heartbeat, token, owner, nonce, stale_after)
		VALUES (?, ?, ?, ?, ?, ?, ?)`

	takeLocks = `
		INSERT OR REPLACE INTO locks (project, ref, heartbeat, token, owner, nonce, stale_after)
		SELECT ?1, name.value, ?3, ?4, ?5, ?6, ?7 FROM json_each(?2) AS name`

	deleteLocks = `DELETE FROM locks WHERE project = ?1 AND ref IN (SELECT value FROM json_each(?2))`
)

// Acquire implements refdb.LockStore.
func (d *Driver) Acquire(ctx context.Context, r refdb.AcquireRequest) (answer refdb.Acquired, err error) {
	look := func() error {
		return d.lookFirst(ctx, r.Project, r.Refs, rules.AcquireClaim(r), func(rows []rules.Row, now time.Time) error {
			a, refused := rules.Acquire(r, rows, now)
			if refused == nil || !unchanged(a.After) {
				return nil
			}
			answer.Place = a.Place
			return refused
		})
	}
	err = d.contend(r.Waiter, look, func() error {
		return d.decide(ctx, "acquire locks", len(r.Refs), func(t *tx) (refused, err error) {
			answer, refused, err = t.acquire(r)
			return refused, err
		})
	})
	if err != nil {
		return refdb.Acquired{Place: answer.Place}, err
	}
	return answer, nil
}

// contend takes locks. If it is likely that they are refused, it looks first: after a refusal of any
// request, or of this waiter. Contenders for a stale lock exclude each other by the write
// transaction: there is no marker row.
func (d *Driver) contend(waiter refdb.Waiter, look, take func() error) (err error) {
	if d.contended.Load() || !waiter.Place.Ticket.IsZero() {
		err = look()
	}
	if err == nil {
		err = take()
	}
	d.contended.Store(errors.Is(err, refdb.ErrLocked))
	return err
}

// lookFirst reads the rows of refs without a write transaction, and returns what decide says: a
// *refdb.LockedError if the claim is to be refused and that changes nothing. Most requests after a
// refusal end here. Waiters ask again and again; in a write transaction each time they would
// hold up the lock's holder. If an earlier request for the claim took some of the locks, there
// is something to write.
func (d *Driver) lookFirst(ctx context.Context, project string, refs []string, c rules.Claim, decide func(rows []rules.Row, now time.Time) error) error {
	var rows []rules.Row
	var now int64
	err := d.read(ctx, "look at locks", func(conn *conn) (err error) {
		// Read before the rows, the time makes no lock older than it is.
		now = d.now()
		rows, err = readRows(ctx, conn, now, project, refs)
		return err
	})
	if err != nil || c.TookAny(rows) {
		return err
	}
	return decide(rows, timeOf(now))
}

func (t *tx) acquire(r refdb.AcquireRequest) (answer refdb.Acquired, refused, err error) {
	rows, err := t.rows(r.Project, r.Refs)
	if err != nil {
		return refdb.Acquired{}, nil, err
	}
	a, refused := rules.Acquire(r, rows, timeOf(t.now))
	switch {
	case refused != nil:
		err = t.apply(r.Project, r.Refs, a.After)
	case !a.Adopted:
		a.Token, err = t.take(rules.AcquireClaim(r), r.Project, r.StaleAfter, rows, a.After)
	}
	return a.Acquired, refused, err
}

// take takes the locks on all rows, and leaves the rows with the queues of after.
func (t *tx) take(c rules.Claim, project string, staleAfter time.Duration, rows []rules.Row, after []queue.After) (refdb.Token, error) {
	token, err := t.newToken(rows)
	if err != nil {
		return 0, err
	}
	refs := namesOf(rows)
	statement, names := oneOrMany(takeLock, takeLocks, refs)
	_, err = t.exec(statement, project, names, t.now, int64(token), c.Owner, orNull(c.Nonce), microsOf(staleAfter))
	if err != nil {
		return 0, err
	}
	return token, t.setQueues(project, refs, after)
}

func namesOf(rows []rules.Row) []string {
	names := make([]string, len(rows))
	for i, r := range rows {
		names[i] = r.Name
	}
	return names
}
