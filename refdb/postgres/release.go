package postgres

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	lockHeldSQL = `SELECT 1 FROM ` + heldRows + `, LATERAL (` + lockOfHeld + ` FOR UPDATE) AS lock`

	releaseSQL = `
WITH doomed AS MATERIALIZED (
  SELECT n, tid, waiting FROM ` + heldRows + `, LATERAL (` + lockOfHeld + `) AS lock
), deleted AS (
  DELETE FROM locks WHERE ctid = ANY (ARRAY(SELECT tid FROM doomed))
)
SELECT n, waiting FROM doomed`

	// releaseOneSQL is what a lock on a single ref needs, named by its token: there is no order to keep.
	releaseOneSQL = `
DELETE FROM locks WHERE project = $1 AND ref = $2 AND coalesce(token, 'epoch') = $3 AND NOT (` + isIntent + `)
RETURNING 1, waiting`
)

// Release needs no keys for rows that are named by their tokens, for those are
// there: its first statement waits for whoever has locked a row, and looks at
// the row again.
func (d *Driver) Release(ctx context.Context, held []refdb.Held) ([]bool, error) {
	if len(held) == 0 {
		return nil, nil
	}
	if slices.ContainsFunc(held, func(h refdb.Held) bool { return h.Intent }) {
		return d.releaseIntents(ctx, held)
	}
	rows := sortHeld(held)
	var gone []bool
	var freed []freedLock
	read := func(answer pgx.Rows) (err error) {
		gone, freed, err = rows.released(answer)
		return err
	}
	var err error
	if len(held) == 1 && byToken(held[0]) {
		var done bool
		if done, err = d.releaseOne(ctx, held[0], read); done {
			return []bool{true}, nil
		}
	} else {
		err = d.do(ctx, rows.excluding("release locks").
			then(lockHeldSQL, nil, rows.args()...).
			then(releaseSQL, read, rows.args()...))
	}
	if err != nil {
		return nil, err
	}
	d.released(freed)
	return gone, nil
}

// releaseOne releases a single lock, alone or together with others. It reports
// whether a shared trip did, which wakes those who wait by itself.
func (d *Driver) releaseOne(ctx context.Context, h refdb.Held, read func(pgx.Rows) error) (done bool, err error) {
	alone := func() error {
		return d.do(ctx, trip{what: "release locks", writes: true}.
			then(releaseOneSQL, read, h.Project, h.Ref, h.Token.Time()))
	}
	c := releaseCall{held: h}
	switch shared, err := d.lane.pass(ctx, &c, alone); {
	case !shared:
		return false, err
	case c.gone:
		return true, nil
	default:
		return false, alone()
	}
}

// released reads which of the rows were deleted, and who waits for them.
func (a heldArray) released(answer pgx.Rows) (gone []bool, freed []freedLock, err error) {
	gone = make([]bool, len(a))
	for answer.Next() {
		var n int
		var waiting []string
		if err := answer.Scan(&n, &waiting); err != nil {
			return nil, nil, err
		}
		h := a[n-1]
		gone[h.index] = true
		if len(waiting) > 0 || h.Back {
			freed = append(freed, freedLock{h.Project, h.Ref, waiting, h.Next, h.Back})
		}
	}
	return gone, freed, answer.Err()
}
