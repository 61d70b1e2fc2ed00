package postgres

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

// Release ends a lock on a single ref in a batch, unless its row is locked or missing.
func (d *Driver) Release(ctx context.Context, r driver.ReleaseRequest) (driver.Released, error) {
	next := placeText(r.Next, r.Owner)
	if len(r.Refs) == 1 {
		c := releaseCall{request: r, next: next}
		if err := d.batcher.Do(ctx, &c); err != nil {
			return driver.Released{}, err
		}
		if c.row.ended {
			return driver.Released{}, nil
		}
	}
	rows := make(heldArray, len(r.Refs)) // sorted
	for i, ref := range r.Refs {
		rows[i] = heldLock{driver.StandingLock{LockID: driver.LockID{Project: r.Project, Ref: ref, Owner: r.Owner, Token: r.Token}}, i}
	}
	found, err := d.endHeld(ctx, "release locks", rows, next)
	if err != nil {
		return driver.Released{}, err
	}
	var released driver.Released
	for i, row := range found {
		if !row.ended {
			released.Missing = append(released.Missing, r.Refs[i])
			continue
		}
		d.notifier.NotifyNext(r.Project, r.Refs[i], row.toNotify, next)
	}
	return released, nil
}

// Purge deletes locks of any projects.
func (d *Driver) Purge(ctx context.Context, locks []driver.StandingLock) ([]bool, error) {
	if len(locks) == 0 {
		return nil, nil
	}
	rows := make(heldArray, len(locks))
	for i, l := range locks {
		rows[i] = heldLock{l, i}
	}
	found, err := d.endHeld(ctx, "purge locks", sortHeld(rows), "")
	if err != nil {
		return nil, err
	}
	purged := make([]bool, len(locks))
	for i, row := range found {
		purged[i] = row.ended
		d.notifier.Notify(locks[i].Project, locks[i].Ref, row.toNotify)
	}
	return purged, nil
}

const (
	// heldRows is the table of the arrays $1 to $5; n counts from 1.
	heldRows = `unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[], $5::timestamptz[])
  WITH ORDINALITY AS held (held_project, held_ref, held_owner, held_token, held_heartbeat, n)`

	// lockOfHeld selects the lock that a row of heldRows names, if it matches, and its location. A
	// lock that stands for an intent does not match: see finishSQL.
	//
	// Here and elsewhere, "owner IS NOT DISTINCT FROM" keeps the planner from looking up the lock
	// by its owner, who may have any number of locks.
	lockOfHeld = `SELECT *, ctid AS tid FROM locks
WHERE project = held_project AND ref = held_ref AND owner IS NOT DISTINCT FROM held_owner AND coalesce(token, 'epoch') = held_token
AND (held_heartbeat IS NULL OR coalesce(heartbeat, 'epoch') = held_heartbeat) AND NOT (` + isIntent + `) LIMIT 1`
)

// heldArray is a list of locks in the order of their keys, in which all transactions lock rows. The
// index of a lock is its position in the caller's list.
type heldArray []heldLock

type heldLock struct {
	driver.StandingLock
	index int
}

// sortHeld sorts all in place, and returns it.
func sortHeld(all heldArray) heldArray {
	slices.SortStableFunc(all, func(a, b heldLock) int {
		return cmp.Or(strings.Compare(a.Project, b.Project), strings.Compare(a.Ref, b.Ref))
	})
	return all
}

// args returns the arrays $1 to $5.
func (a heldArray) args() []any {
	projects, refs, owners := make([]string, len(a)), make([]string, len(a)), make([]string, len(a))
	tokens, heartbeats := make([]time.Time, len(a)), make([]*time.Time, len(a)) // nil: any heartbeat
	for i := range a {
		h := &a[i]
		projects[i], refs[i], owners[i], tokens[i] = h.Project, h.Ref, h.Owner, h.Token.Time()
		if !h.Heartbeat.IsZero() {
			heartbeats[i] = &h.Heartbeat
		}
	}
	return []any{projects, refs, owners, tokens, heartbeats}
}

const lockHeldSQL = `SELECT 1 FROM ` + heldRows + `, LATERAL (` + lockOfHeld + ` FOR UPDATE) AS lock`

// releaseHeldSQL ends the locks and hands them over. Purging a reservation deletes the row with its
// queue.
//
//	$6 the place of the next waiter, or ''
var releaseHeldSQL = `
WITH ends AS MATERIALIZED (
  SELECT n, held_project AS project, held_ref AS ref, tid, CASE WHEN NOT ` + isReserved + ` THEN ` + placesOf("waiting", "''") + ` END AS waiting, $6::text AS next,
         CASE WHEN ` + isReserved + ` THEN waiting[1:1] END AS forgotten
  FROM ` + heldRows + `, LATERAL (` + lockOfHeld + `) AS lock
), ` + handOver + `
SELECT n, coalesce(told, forgotten) FROM ends LEFT JOIN handed USING (project, ref)`

// An endedRow is the outcome for a row that was to end.
type endedRow struct {
	ended    bool
	toNotify []string // the places to notify
}

// endHeld ends the rows that match. They go to next, a place or "", or to their waiters. It returns
// the outcome for each row, in the caller's order. It takes no keys, because the rows exist:
// lockHeldSQL waits for any transaction that has locked a row, and reads the row again.
func (d *Driver) endHeld(ctx context.Context, what string, rows heldArray, next string) ([]endedRow, error) {
	found := make([]endedRow, len(rows))
	args := rows.args()
	err := d.pools.Do(ctx, roundtrip.Write(what).On(roundtrip.Releases).
		Exec(lockHeldSQL, args...).
		Query(releaseHeldSQL, func(answer pgx.Rows) error {
			clear(found)
			for answer.Next() {
				var n int
				var toNotify []string
				if err := answer.Scan(&n, &toNotify); err != nil {
					return err
				}
				found[rows[n-1].index] = endedRow{true, toNotify}
			}
			return answer.Err()
		}, append(args, next)...))
	return found, err
}

// abandonSQL ends the locks that an acquisition took and the reservations for the waiter, and
// removes the waiter from the queues.
//
//	$1 project  $2 refs  $3 owner  $4 nonce  $5 ID of the waiter, or ''
var abandonSQL = `
WITH found AS MATERIALIZED (
  SELECT tid, ` + placesOf("waiting", "$5::text") + ` AS places,
         $5 <> '' AND EXISTS (SELECT FROM unnest(waiting) AS p WHERE ` + idOf("p") + ` = $5) AS waits,
         coalesce(CASE WHEN ` + isReserved + ` THEN $5 <> '' AND (` + idOf("nonce") + ` = $5 OR nonce IS NULL AND cardinality(waiting) = 1 AND ` + idOf("waiting[1]") + ` = $5)
                  ELSE owner = $3 AND $4 <> '' AND nonce = $4 AND NOT (` + isIntent + `) END, false) AS ours
  FROM unnest($2::text[]) AS asked (ref), LATERAL (` + lockOfAsked + `) AS lock
), ends AS MATERIALIZED (
  SELECT tid, places AS waiting, '' AS next FROM found WHERE ours
), ` + handOver + `, stripped AS (
  UPDATE locks SET waiting = places FROM found WHERE ctid = tid AND waits AND NOT ours
)
SELECT ref, told FROM handed`

// abandonLimit bounds an Abandon that runs in the background.
const abandonLimit = 10 * time.Second

// Abandon waits for the keys, and so for an acquisition that is still in progress and whose rows
// are not visible yet. It does not overtake an acquisition that has not reached its keys: a batch
// that waits for a connection omits the acquisition, and giveBack undoes an acquisition in a batch
// that was sent. Only an acquisition on a broken connection may come later, if the server had not
// started it.
func (d *Driver) Abandon(ctx context.Context, r driver.AbandonRequest) error {
	o := outcome{project: r.Project}
	err := d.pools.Do(ctx, roundtrip.Write("abandon locks").
		Then(lockRefs(r.Project, r.Refs), lockRows(r.Project, r.Refs)).
		Query(abandonSQL, func(rows pgx.Rows) (err error) {
			o.toNotify, err = readToNotify(rows)
			return err
		}, r.Project, r.Refs, r.Owner, r.Nonce, r.Waiter))
	if err == nil {
		d.notifyAll(&o)
	}
	return err
}

// giveBack ends the lock of a call that took it, or may have taken it, after its caller gave up.
func (d *Driver) giveBack(c call) {
	a, ok := c.(*acquireCall)
	if !ok || a.answer.refused() {
		return
	}
	// Close waits for the batch that calls giveBack, and so it also waits for this goroutine.
	d.running.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), abandonLimit)
		defer cancel()
		r := a.request
		_ = d.Abandon(ctx, driver.AbandonRequest{Project: r.Project, Refs: r.Refs, Owner: r.Owner, Nonce: r.Nonce})
	})
}

// readToNotify reads rows of a ref and its places to notify.
func readToNotify(rows pgx.Rows) (map[string][]string, error) {
	toNotify := map[string][]string{}
	for rows.Next() {
		var ref string
		var places []string
		if err := rows.Scan(&ref, &places); err != nil {
			return nil, err
		}
		toNotify[ref] = places
	}
	return toNotify, rows.Err()
}
