package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// isStale judges a row of locks by the column now.
const isStale = `now - coalesce(heartbeat, 'epoch') > coalesce(stale_after, 30000000) * interval '1 microsecond'`

const (
	// neverStale is refdb.NeverStale as it is recorded.
	neverStale = `3153600000000000`

	// isIntent tells the rows of locks that stand for an intent.
	isIntent = `coalesce(stale_after, 0) = ` + neverStale
)

// Rows of locks are locked by a statement of their own before the one that
// decides, so that no beat and no release changes them in between. Of a fence
// it is enough that the rows stay: their tokens change under their keys alone,
// and FOR KEY SHARE lets the holder's beats through.
//
// Here and elsewhere LATERAL … LIMIT 1 looks up one row after the other by its
// whole key, whatever the planner believes about the table. With "ref = ANY (…)"
// a plan that was made while the table was small reads all rows of the project,
// and is kept when there are many.
const (
	lockRowsSQL  = `SELECT 1 FROM unnest($2::text[]) AS asked (ref), LATERAL (` + lockOfAsked + ` FOR UPDATE) AS lock`
	lockFenceSQL = `SELECT 1 FROM unnest($2::text[]) AS asked (ref), LATERAL (` + lockOfAsked + ` FOR KEY SHARE) AS lock`

	// lockOfAsked is the lock on asked.ref of project $1, and where it is stored.
	lockOfAsked = `SELECT *, ctid AS tid FROM locks WHERE project = $1 AND ref = asked.ref LIMIT 1`
)

// lockRows adds the statement that locks the rows of the locks on refs, which are sorted.
func (t roundTrip) lockRows(project string, refs []string) roundTrip {
	return t.then(lockRowsSQL, nil, project, refs)
}

// lockFence adds the statement that keeps the rows of the locks on refs, which
// are sorted, from being deleted.
func (t roundTrip) lockFence(project string, refs []string) roundTrip {
	return t.then(lockFenceSQL, nil, project, refs)
}

// lockColumns are the columns of locks beside the key. A row always has an owner.
type lockColumns struct {
	owner            pgtype.Text
	token, heartbeat pgtype.Timestamptz
	staleAfter       pgtype.Int8 // µs
}

func (c lockColumns) info(project, ref string, now time.Time) refdb.LockInfo {
	l := refdb.LockInfo{
		Project: project, Ref: ref, Owner: c.owner.String,
		Heartbeat:  time.Unix(0, 0).UTC(),
		StaleAfter: refdb.DefaultStaleAfter,
	}
	if c.token.Valid {
		l.Token = refdb.TokenOf(c.token.Time)
	}
	if c.heartbeat.Valid {
		l.Heartbeat = c.heartbeat.Time.UTC()
	}
	if c.staleAfter.Valid {
		l.StaleAfter = time.Duration(c.staleAfter.Int64) * time.Microsecond
	}
	l.Age = now.Sub(l.Heartbeat)
	return l
}

// byRef sorts the locks of one project.
func byRef(locks []refdb.LockInfo) {
	slices.SortFunc(locks, func(a, b refdb.LockInfo) int { return strings.Compare(a.Ref, b.Ref) })
}

// Locks reads one page. It starts at the index's entry after the last row of
// the page before. Each condition is added only if it's asked for: a plan that is
// kept for all filters could not use the index.
func (d *Driver) Locks(ctx context.Context, q refdb.LockQuery) (page refdb.LockPage, err error) {
	sql, args := locksQuery(q)
	err = d.do(ctx, roundTrip{what: "list locks"}.then(sql, func(rows pgx.Rows) error {
		page = refdb.LockPage{}
		for rows.Next() {
			var project, ref string
			var now time.Time
			var c lockColumns
			if err := rows.Scan(&project, &ref, &c.owner, &c.token, &c.heartbeat, &c.staleAfter, &now); err != nil {
				return err
			}
			page.Locks = append(page.Locks, c.info(project, ref, now))
		}
		return rows.Err()
	}, args...))
	if n := len(page.Locks); err == nil && n > 0 && n == q.Limit {
		page.Next = refdb.LockCursor{Project: page.Locks[n-1].Project, Ref: page.Locks[n-1].Ref}
	}
	return page, err
}

func locksQuery(q refdb.LockQuery) (string, []any) {
	var where strings.Builder
	var args []any
	and := func(condition string, values ...any) {
		var numbers []any
		for _, v := range values {
			args = append(args, v)
			numbers = append(numbers, len(args))
		}
		if where.Len() > 0 {
			where.WriteString(" AND ")
		}
		fmt.Fprintf(&where, condition, numbers...)
	}

	end, _ := prefixEnd(refdb.ReclaimPrefix)
	if q.Markers {
		and(`project >= $%d AND project < $%d`, refdb.ReclaimPrefix, end)
	} else {
		and(`(project < $%d OR project >= $%d)`, refdb.ReclaimPrefix, end)
	}
	if q.Project != "" {
		and(`project = $%d`, q.Project)
	}
	if q.After != (refdb.LockCursor{}) {
		and(`(project, ref) > ($%d, $%d)`, q.After.Project, q.After.Ref)
	}
	if q.Ref != "" {
		and(`ref = $%d`, q.Ref)
	}
	if q.Prefix != "" {
		and(`ref >= $%d`, q.Prefix)
		if end, ok := prefixEnd(q.Prefix); ok {
			and(`ref < $%d`, end)
		}
	}
	if q.Owner != "" {
		and(`(owner = $%d OR starts_with(owner, $%d))`, q.Owner, q.Owner+"/")
	}
	if q.Stale {
		and(isStale)
	}
	if q.OlderThan != 0 {
		and(`now - coalesce(heartbeat, 'epoch') > $%d::bigint * interval '1 microsecond'`, q.OlderThan.Microseconds())
	}
	args = append(args, q.Limit)
	return fmt.Sprintf(`
SELECT project, ref, owner, token, heartbeat, stale_after, now
FROM locks CROSS JOIN (SELECT clock_timestamp() AS now OFFSET 0) AS clock
WHERE %s
ORDER BY project, ref LIMIT $%d`, where.String(), len(args)), args
}
