package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

const (
	// lockAge is the age of a row of locks, at the time in the column now.
	lockAge = `now - coalesce(heartbeat, 'epoch')`

	// isStale is the stale rule: whether a row of locks may be taken over at the time in the column
	// now.
	isStale = lockAge + ` > coalesce(stale_after, ` + defaultStaleAfter + `) * interval '1 microsecond'`

	// isIntent is true for the rows of locks that stand for an intent.
	isIntent = `coalesce(stale_after, 0) = ` + neverStale

	// These are driver.DefaultStaleAfter and driver.NeverStale as the rows store them, in µs.
	defaultStaleAfter = `30000000`
	neverStale        = `3153600000000000`
)

// inTheWay is true for a row of locks that keeps other owners from moving its ref: a lock that is
// not stale or, where locks are advisory, a lock that stands for an intent.
func inTheWay(advisory string) string {
	return `CASE WHEN ` + advisory + ` THEN ` + isIntent + ` ELSE NOT (` + isStale + `) END`
}

// A separate statement locks the rows of locks before the statement that decides, so that no beat
// or release changes them in between. The rows of a fence only have to stay: their tokens change
// only under their keys, and FOR KEY SHARE permits the holder's beats.
//
// Here and elsewhere, LATERAL … LIMIT 1 looks up the rows one by one by their whole keys, whatever
// the planner assumes about the table. With "ref = ANY (…)", a plan made while the table was small
// reads all rows of the project, and is kept after the table has grown.
const (
	lockRowsSQL  = `SELECT 1 FROM unnest($2::text[]) AS asked (ref), LATERAL (` + lockOfAsked + ` FOR UPDATE) AS lock`
	lockFenceSQL = `SELECT 1 FROM unnest($2::text[]) AS asked (ref), LATERAL (` + lockOfAsked + ` FOR KEY SHARE) AS lock`

	// lockOfAsked selects the lock on asked.ref of project $1, and its location.
	lockOfAsked = `SELECT *, ctid AS tid FROM locks WHERE project = $1 AND ref = asked.ref LIMIT 1`
)

// lockRows locks the rows of the locks on refs, which are sorted.
func lockRows(project string, refs []string) roundtrip.Statement {
	return roundtrip.Exec(lockRowsSQL, project, refs)
}

// lockFence keeps the rows of the locks on refs, which are sorted, from being deleted.
func lockFence(project string, refs []string) roundtrip.Statement {
	return roundtrip.Exec(lockFenceSQL, project, refs)
}

// lockColumns are the columns of locks without the key. A row always has an owner.
type lockColumns struct {
	owner            pgtype.Text
	token, heartbeat pgtype.Timestamptz
	staleAfter       pgtype.Int8 // µs
}

func (c lockColumns) info(project, ref string, now time.Time) driver.LockInfo {
	l := driver.LockInfo{
		Project: project, Ref: ref, Owner: c.owner.String,
		Heartbeat:  time.Unix(0, 0).UTC(),
		StaleAfter: driver.DefaultStaleAfter,
	}
	if c.token.Valid {
		l.Token = driver.TokenOf(c.token.Time)
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
func byRef(locks []driver.LockInfo) {
	slices.SortFunc(locks, func(a, b driver.LockInfo) int { return strings.Compare(a.Ref, b.Ref) })
}

// Locks reads one page. It starts at the index entry after the last row of the page before. The
// query contains only the conditions that q requires: a generic plan for all filters could not use
// the index.
func (d *Driver) Locks(ctx context.Context, q driver.LockQuery) (page driver.LockPage, err error) {
	sql, args := locksQuery(q)
	err = d.pools.Do(ctx, roundtrip.Read("list locks").Query(sql, func(rows pgx.Rows) error {
		page = driver.LockPage{}
		for rows.Next() {
			var project, ref string
			var now time.Time
			var c lockColumns
			var waiters int
			if err := rows.Scan(&project, &ref, &c.owner, &c.token, &c.heartbeat, &c.staleAfter, &waiters, &now); err != nil {
				return err
			}
			l := c.info(project, ref, now)
			l.Waiters = waiters
			page.Locks = append(page.Locks, l)
		}
		return rows.Err()
	}, args...))
	if n := len(page.Locks); err == nil && n > 0 && n == q.Limit {
		page.Next = driver.LockCursor{Project: page.Locks[n-1].Project, Ref: page.Locks[n-1].Ref}
	}
	return page, err
}

func locksQuery(q driver.LockQuery) (string, []any) {
	var f filter
	end, _ := prefixEnd(driver.ReclaimPrefix)
	if q.Markers {
		f.and(`project >= $%d AND project < $%d`, driver.ReclaimPrefix, end)
	} else {
		f.and(`(project < $%d OR project >= $%d)`, driver.ReclaimPrefix, end)
	}
	if q.Project != "" {
		f.and(`project = $%d`, q.Project)
	}
	if q.After != (driver.LockCursor{}) {
		f.and(`(project, ref) > ($%d, $%d)`, q.After.Project, q.After.Ref)
	}
	if q.Ref != "" {
		f.and(`ref = $%d`, q.Ref)
	}
	if q.Prefix != "" {
		f.and(`ref >= $%d`, q.Prefix)
		if end, ok := prefixEnd(q.Prefix); ok {
			f.and(`ref < $%d`, end)
		}
	}
	if q.Owner != "" {
		f.and(`(owner = $%d OR starts_with(owner, $%d))`, q.Owner, q.Owner+"/")
	}
	if q.Stale {
		f.and(isStale)
	}
	if q.OlderThan != 0 {
		f.and(lockAge+` > $%d::bigint * interval '1 microsecond'`, q.OlderThan.Microseconds())
	}
	return f.page(`
SELECT project, ref, owner, token, heartbeat, stale_after, coalesce(cardinality(waiting), 0), now
FROM locks CROSS JOIN (SELECT clock_timestamp() AS now OFFSET 0) AS clock`, `project, ref`, q.Limit)
}

// A filter holds the conditions of a page's query, and their arguments.
type filter struct {
	conditions []string
	args       []any
}

// and adds a condition, which has a %d for the number of each of its values.
func (f *filter) and(condition string, values ...any) {
	var numbers []any
	for _, v := range values {
		f.args = append(f.args, v)
		numbers = append(numbers, len(f.args))
	}
	f.conditions = append(f.conditions, fmt.Sprintf(condition, numbers...))
}

// page returns the query and its arguments.
func (f *filter) page(query, order string, limit int) (sql string, args []any) {
	args = append(f.args, limit)
	return fmt.Sprintf("%s\nWHERE %s\nORDER BY %s LIMIT $%d", query, strings.Join(f.conditions, " AND "), order, len(args)), args
}
