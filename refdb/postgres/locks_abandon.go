package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

// abandonSQL ends what an acquisition took, and what is kept for the waiter. The waiter
// leaves the queues.
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
), ` + handOn + `, stripped AS (
  UPDATE locks SET waiting = places FROM found WHERE ctid = tid AND waits AND NOT ours
)
SELECT ref, told FROM handed`

// abandonLimit bounds an Abandon that nobody waits for.
const abandonLimit = 10 * time.Second

// Abandon waits for the keys, and so for an acquisition that is still being carried
// out, whose rows nobody sees yet. It does not overtake an acquisition that has not
// come to its keys either: a batch that waits for a connection leaves it out, and one in
// a batch that was sent is given back. Only an acquisition on a connection that broke
// may come later, if the server had not begun with it.
func (d *Driver) Abandon(ctx context.Context, r refdb.AbandonRequest) error {
	o := outcome{project: r.Project}
	err := d.pools.Do(ctx, roundtrip.Write("abandon locks").
		Then(lockRefs(r.Project, r.Refs), lockRows(r.Project, r.Refs)).
		Query(abandonSQL, func(rows pgx.Rows) (err error) {
			o.told, err = readTold(rows)
			return err
		}, r.Project, r.Refs, r.Owner, r.Nonce, r.Waiter))
	if err == nil {
		d.tellAll(&o)
	}
	return err
}

// giveBack ends the lock of a call that took it, or may have taken it, after its caller
// gave up.
func (d *Driver) giveBack(c call) {
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

// readTold reads rows of a ref and the places to be told of it.
func readTold(rows pgx.Rows) (map[string][]string, error) {
	told := map[string][]string{}
	for rows.Next() {
		var ref string
		var places []string
		if err := rows.Scan(&ref, &places); err != nil {
			return nil, err
		}
		told[ref] = places
	}
	return told, rows.Err()
}
