package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// abandonSQL deletes what an acquisition took.
//
//	$1 project  $2 refs  $3 owner  $4 nonce
const abandonSQL = `
WITH doomed AS MATERIALIZED (
  SELECT tid, asked.ref, waiting FROM unnest($2::text[]) AS asked (ref), LATERAL (` + lockOfAsked + `) AS lock
  WHERE owner = $3 AND nonce = $4 AND NOT (` + isIntent + `)
), deleted AS (
  DELETE FROM locks WHERE ctid = ANY (ARRAY(SELECT tid FROM doomed))
)
SELECT ref, waiting FROM doomed`

// abandonLimit bounds an Abandon that nobody waits for.
const abandonLimit = 10 * time.Second

// Abandon waits for the keys, and so for an acquisition that is still being
// carried out, whose rows nobody sees yet. One that has not come to its keys when
// its caller gives up is not overtaken either: in a batch that waits for a connection
// it is left out, and one in a batch that was sent is disowned. That leaves what a
// connection that broke had under way: unless the server has begun with it, it may come later.
func (d *Driver) Abandon(ctx context.Context, r refdb.AbandonRequest) error {
	var freed []freedLock
	err := d.do(ctx, roundTrip{what: "abandon locks", writes: true}.
		lockRefs(r.Project, r.Refs).
		lockRows(r.Project, r.Refs).
		then(abandonSQL, func(rows pgx.Rows) (err error) {
			freed, err = readFreed(rows, r.Project)
			return err
		}, r.Project, r.Refs, r.Owner, r.Nonce))
	if err == nil {
		d.wakeFreed(freed...)
	}
	return err
}

// disown undoes what a call did, or may have done, whose caller has given up. An
// acquisition is given back, and the first of a queue that the answer has is woken.
func (d *Driver) disown(c call) {
	for _, q := range c.queues() {
		d.wake(refdb.Wakeup{Project: c.ref().project, Ref: c.ref().ref, Queue: q})
	}
	a, ok := c.(*acquireCall)
	if !ok || a.answer.refused() {
		return
	}
	// Close waits for the batch that this is called by, so it will for this.
	d.running.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), abandonLimit)
		defer cancel()
		r := a.request
		_ = d.Abandon(ctx, refdb.AbandonRequest{Project: r.Project, Refs: r.Refs, Owner: r.Owner, Nonce: r.Nonce})
	})
}

// readFreed reads rows of a ref of the project and the entries of its queue.
func readFreed(rows pgx.Rows, project string) (freed []freedLock, err error) {
	for rows.Next() {
		f := freedLock{project: project}
		if err := rows.Scan(&f.ref, &f.waiting); err != nil {
			return nil, err
		}
		freed = append(freed, f)
	}
	return freed, rows.Err()
}
