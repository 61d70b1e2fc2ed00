package sqlite

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
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

// Acquire implements driver.LockStore.
func (d *Driver) Acquire(ctx context.Context, r driver.AcquireRequest) (answer driver.Acquired, err error) {
	look := func() error {
		return d.lookFirst(ctx, r.Project, r.Refs, nil, rules.AcquireClaim(r), func(_ string, rows, _ []rules.Row, now time.Time) error {
			a, refused := rules.Acquire(r, rows, now)
			if refused == nil || !unchanged(a.After) {
				return nil
			}
			answer.Place = a.Place
			return refused
		})
	}
	err = d.contend(r.Waiter, look, func() (err error) {
		answer, err = decide(ctx, d, "acquire locks", len(r.Refs), func(t *tx) (driver.Acquired, error, error) { return t.acquire(r) })
		return err
	})
	return answer, err
}

// contend takes locks. After a refusal of any request, or of this waiter, it reads them first,
// because another refusal is likely. Contenders for a stale lock exclude each other by the write
// transaction: there is no marker row.
func (d *Driver) contend(waiter driver.Waiter, look, take func() error) (err error) {
	if d.contended.Load() || !waiter.Place.Ticket.IsZero() {
		err = look()
	}
	if err == nil {
		err = take()
	}
	d.contended.Store(errors.Is(err, driver.ErrLocked))
	return err
}

// lookFirst reads the rows of refs without a write transaction, and returns the result of decide: a
// *driver.LockedError, or a *driver.FrozenError, if the claim is to be refused without any change.
// Most requests after a refusal end here. Waiters repeat their requests; if each one used a write
// transaction, they would delay the lock's holder. If an earlier request for the claim took some of
// the locks, a write is needed.
//
// If updates create refs, decide also gets the rows that decide about their names.
func (d *Driver) lookFirst(ctx context.Context, project string, refs []string, updates []driver.Update, c rules.Claim,
	decide func(stored string, rows, around []rules.Row, now time.Time) error) error {
	var stored string
	var rows, around []rules.Row
	var now int64
	err := d.read(ctx, "inspect locks", func(conn *conn) (err error) {
		// As the time is read before the rows, no lock seems older than it is.
		now = d.now()
		if rows, stored, err = readRows(ctx, conn, now, project, refs); err != nil {
			return err
		}
		around, err = readRowsAround(ctx, conn, now, project, updates)
		return err
	})
	if err != nil || c.TookAny(rows) {
		return err
	}
	return decide(stored, rows, around, timeOf(now))
}

func (t *tx) acquire(r driver.AcquireRequest) (answer driver.Acquired, refused, err error) {
	rows, err := t.rows(r.Project, r.Refs)
	if err != nil {
		return driver.Acquired{}, nil, err
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

// take takes the locks on all rows, and writes the queues of after to the rows.
func (t *tx) take(c rules.Claim, project string, staleAfter time.Duration, rows []rules.Row, after []queue.RowUpdate) (driver.Token, error) {
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

const (
	readMark = `SELECT mark FROM token_mark`
	setMark  = `UPDATE token_mark SET mark = ?`
)

// newToken returns a token larger than the tokens of the locks in rows and than all tokens ever
// assigned, even if the clock was set back.
func (t *tx) newToken(rows []rules.Row) (driver.Token, error) {
	var newest driver.Token
	for _, l := range rules.Locks(rows) {
		newest = max(newest, l.Token)
	}
	if newest == math.MaxInt64 {
		return 0, errors.New("the existing lock has the largest possible token, and was not written by this program: delete the lock")
	}
	if err := t.readMark(); err != nil {
		return 0, err
	}
	if *t.mark == math.MaxInt64 {
		return 0, errors.New("the table token_mark holds the largest possible token: restore the file from a backup")
	}
	*t.mark = max(t.now, *t.mark+1, int64(newest)+1)
	return driver.Token(*t.mark), nil
}

// readMark reads the mark, unless the transaction has already read it.
func (t *tx) readMark() error {
	if t.mark != nil {
		return nil
	}
	err := t.query(func(r row) { mark := r.int(0); t.mark = &mark }, readMark)
	if err == nil && t.mark == nil {
		err = errors.New("the table token_mark has lost its row: restore the file from a backup")
	}
	return err
}
