package postgres

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	// heldRows are the arrays $1 to $5, n counting from 1.
	heldRows = `unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[], $5::timestamptz[])
  WITH ORDINALITY AS held (held_project, held_ref, held_owner, held_token, held_heartbeat, n)`

	// lockOfHeld is the lock that such a row names, if it matches, and where it
	// is stored. One that stands for an intent needs more than that: see finishSQL.
	//
	// Here and elsewhere "owner IS NOT DISTINCT FROM" keeps the planner from looking
	// the lock up by its owner, who may have any number of them.
	lockOfHeld = `SELECT *, ctid AS tid FROM locks
WHERE project = held_project AND ref = held_ref AND owner IS NOT DISTINCT FROM held_owner AND coalesce(token, 'epoch') = held_token
AND (held_heartbeat IS NULL OR coalesce(heartbeat, 'epoch') = held_heartbeat) AND NOT (` + isIntent + `) LIMIT 1`
)

// heldArray is a list of locks in the order of their keys, which is the order
// that everybody locks rows in, each with its place in the caller's list.
type heldArray []heldLock

type heldLock struct {
	refdb.StandingLock
	index int
}

// sortHeld sorts all.
func sortHeld(all heldArray) heldArray {
	slices.SortStableFunc(all, func(a, b heldLock) int {
		return cmp.Or(strings.Compare(a.Project, b.Project), strings.Compare(a.Ref, b.Ref))
	})
	return all
}

// args are the arrays $1 to $5.
func (a heldArray) args() []any {
	projects, refs, owners := make([]string, len(a)), make([]string, len(a)), make([]string, len(a))
	tokens, heartbeats := make([]time.Time, len(a)), make([]*time.Time, len(a)) // nil: any will do
	for i := range a {
		h := &a[i]
		projects[i], refs[i], owners[i], tokens[i] = h.Project, h.Ref, h.Owner, h.Token.Time()
		if !h.Heartbeat.IsZero() {
			heartbeats[i] = &h.Heartbeat
		}
	}
	return []any{projects, refs, owners, tokens, heartbeats}
}

const (
	lockHeldSQL = `SELECT 1 FROM ` + heldRows + `, LATERAL (` + lockOfHeld + ` FOR UPDATE) AS lock`
)

// releaseHeldSQL hands the locks on. What is no lock but kept for somebody, and is purged,
// goes with its queue.
//
//	$6 who is next, or ''
var releaseHeldSQL = `
WITH ends AS MATERIALIZED (
  SELECT n, held_project AS project, held_ref AS ref, tid, CASE WHEN NOT ` + isReserved + ` THEN ` + placesOf("waiting", "''") + ` END AS waiting, $6::text AS next,
         CASE WHEN ` + isReserved + ` THEN waiting[1:1] END AS forgotten
  FROM ` + heldRows + `, LATERAL (` + lockOfHeld + `) AS lock
), ` + handOn + `
SELECT n, coalesce(told, forgotten) FROM ends LEFT JOIN handed USING (project, ref)`

// An endedRow is what became of a row that was to end.
type endedRow struct {
	ended bool
	told  []string // the places to be told
}

// endHeld ends the rows that match, which go to next, a place or "", or to whoever waits; and
// says what became of each, in the caller's order. It needs no keys, for the rows are there:
// lockHeldSQL waits for whoever has locked a row, and looks at the row again.
func (d *Driver) endHeld(ctx context.Context, what string, rows heldArray, next string) ([]endedRow, error) {
	found := make([]endedRow, len(rows))
	args := rows.args()
	err := d.do(ctx, roundTrip{what: what, writes: true, spare: d.spares.releases}.
		guard().
		then(lockHeldSQL, nil, args...).
		then(releaseHeldSQL, func(answer pgx.Rows) error {
			clear(found)
			for answer.Next() {
				var n int
				var told []string
				if err := answer.Scan(&n, &told); err != nil {
					return err
				}
				found[rows[n-1].index] = endedRow{true, told}
			}
			return answer.Err()
		}, append(args, next)...))
	return found, err
}
