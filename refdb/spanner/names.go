package spanner

import (
	"context"
	"slices"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

// belowSQL selects, for each key of a created ref, the rows below its name that decide about the
// name: the first ref that holds a value, and the first ref whose lock stands for an intent, except
// for the refs that the request moves. The transaction locks what it reads, and the gaps, so a
// creator of such a ref comes before or after it.
const belowSQL = `, ARRAY(
  SELECT AS STRUCT b.ref FROM refs AS b
  WHERE b.project = @project AND b.ref > k.after AND b.ref < k.before AND b.value NOT IN ('', '` + string(driver.Deleted) + `', '` + string(driver.Deleted256) + `')
    AND b.ref NOT IN UNNEST(k.moved)
  ORDER BY b.ref LIMIT 1), ARRAY(
  SELECT AS STRUCT b.ref, b.owner, IFNULL(UNIX_MICROS(b.token), 0) AS token FROM locks AS b
  WHERE b.project = @project AND b.ref > k.after AND b.ref < k.before AND IFNULL(b.stale_after, 0) >= @never_stale AND b.ref NOT IN UNNEST(k.moved)
  ORDER BY b.ref LIMIT 1), UNIX_MICROS(CURRENT_TIMESTAMP())`

// A nameQuestion describes which names decide about the names of created refs. The zero
// nameQuestion is for requests that create none.
type nameQuestion struct {
	created, above []string
	moved          []string // sorted
}

func askNames(updates []driver.Update) nameQuestion {
	created := rules.Created(updates)
	if len(created) == 0 {
		return nameQuestion{}
	}
	q := nameQuestion{created: created, moved: rules.RefsOf(updates)}
	q.above = slices.DeleteFunc(rules.Above(created), func(ref string) bool {
		_, moved := slices.BinarySearch(q.moved, ref)
		return moved
	})
	return q
}

// columns returns the columns that q adds to a query.
func (q nameQuestion) columns() string {
	if q.created == nil {
		return ""
	}
	return belowSQL
}

// ask adds q to a query of the rows of keys.
func (q nameQuestion) ask(s *spanner.Statement, keys []key) []key {
	if q.created == nil {
		return keys
	}
	s.Params["never_stale"] = driver.NeverStale.Microseconds()
	for i := range keys {
		if _, created := slices.BinarySearch(q.created, keys[i].Ref); created {
			after, before := rules.Below(keys[i].Ref)
			first, _ := slices.BinarySearch(q.moved, after)
			end, _ := slices.BinarySearch(q.moved, before)
			keys[i].After, keys[i].Before, keys[i].Moved = notNull(after), notNull(before), q.moved[first:end]
		}
	}
	for _, ref := range q.above {
		keys = append(keys, key{Ref: ref, Fence: notNull(ref), Value: notNull(ref)})
	}
	return keys
}

// nameColumns reads the columns of a nameQuestion.
type nameColumns struct {
	refs  []*struct{ Ref string }
	locks []*struct {
		Ref, Owner string
		Token      int64
	}
	now int64
}

// into returns the destinations of the columns, if q adds any.
func (c *nameColumns) into(q nameQuestion) []any {
	if q.created == nil {
		return nil
	}
	return []any{&c.refs, &c.locks, &c.now}
}

// below returns the rows in the columns.
func (c *nameColumns) below(project string) (rows []rules.Row) {
	for _, r := range c.refs {
		rows = append(rows, rules.Row{Name: r.Ref, Ref: &driver.Ref{Name: r.Ref, Value: driver.Value(r.Ref)}})
	}
	for _, l := range c.locks {
		lock := intentLock(driver.LockInfo{Project: project, Ref: l.Ref, Owner: l.Owner, Token: driver.Token(l.Token), StaleAfter: driver.NeverStale}, time.UnixMicro(c.now))
		rows = append(rows, rules.Row{Name: l.Ref, Lock: &lock})
	}
	return rows
}

// intentLock sets the heartbeat of a lock that stands for an intent, which is its token: such a
// lock is never renewed.
func intentLock(l driver.LockInfo, now time.Time) driver.LockInfo {
	l.Heartbeat = l.Token.Time()
	l.Age = now.Sub(l.Heartbeat)
	return l
}

// around returns the rows that decide about the names.
func (q nameQuestion) around(states []state) (around []rules.Row) {
	for _, s := range states {
		around = append(around, s.below...)
		if _, above := slices.BinarySearch(q.above, s.Name); !above {
			continue
		}
		row := rules.Row{Name: s.Name, Ref: s.Ref}
		if s.fence != nil {
			lock := intentLock(*s.fence, s.now)
			row.Lock = &lock
		}
		around = append(around, row)
	}
	return around
}

// movableStates is statesOf for a request that moves refs, with the names that q is about. It also
// reads whether the project is frozen.
func (q nameQuestion) movableStates(project string, keys []key) func(context.Context, *transaction) ([]state, error) {
	s := stateStatement(project)
	s.SQL = stateColumnsSQL + frozenColumnSQL + q.columns() + stateRowsSQL + frozenRowsSQL
	keys = q.ask(&s, askFreeze(project, keys))
	return func(ctx context.Context, t *transaction) (states []state, err error) {
		err = queryKeys(ctx, t, s, keys, key.bytes, collect(&states, func(r *spanner.Row) (state, error) { return q.readState(project, r) }))
		return states, err
	}
}

// readState is readState for a query with frozenColumnSQL and the columns of q.
func (q nameQuestion) readState(project string, r *spanner.Row, more ...any) (state, error) {
	var c nameColumns
	var stored spanner.NullString
	s, err := readState(project, r, slices.Concat([]any{&stored}, more, c.into(q))...)
	s.below, s.stored = c.below(project), stored.StringVal
	return s, err
}
