package spanner

import (
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/queue"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

// A state holds the rows that were read for a key. Rows that are missing, or that were not
// requested, are nil.
type state struct {
	rules.Row                  // its queue is that of the lock, or of the fence
	token     time.Time        // of the lock, to the nanosecond
	fence     *driver.LockInfo // the lock as far as a fence needs it: without heartbeat and age
	now       time.Time        // if there is a lock or a fence
	below     []rules.Row      // rows below the ref's name that decide about it
	stored    string           // the project's rules, if they may begin with a freeze
	barred    bool             // the owner's site is barred: it has to compare the database first
}

// value returns the ref's value.
func (s state) value() driver.Value {
	if s.Ref == nil {
		return driver.Unknown
	}
	return s.Ref.Value
}

// The keys drive the joins, as the hints require, so that only rows of these keys are read and
// locked, and the gaps where there is no row.
const (
	stateColumnsSQL = `
SELECT k.ref,
       f.owner, IFNULL(UNIX_MICROS(f.token), 0), IFNULL(f.stale_after, 0),
       l.nonce, ` + lockSQL + `,
       r.value, r.time, r.op,
       IFNULL(f.waiting, l.waiting), IF(f.owner IS NULL AND l.owner IS NULL, 0, UNIX_MICROS(CURRENT_TIMESTAMP()))`

	stateRowsSQL = `
FROM UNNEST(@keys) AS k
LEFT JOIN@{JOIN_METHOD=APPLY_JOIN} locks AS f ON f.project = @project AND f.ref = k.fence
LEFT JOIN@{JOIN_METHOD=APPLY_JOIN} locks AS l ON l.project = @project AND l.ref = k.lock
LEFT JOIN@{JOIN_METHOD=APPLY_JOIN} refs AS r ON r.project = @project AND r.ref = k.value`
)

// The rules of the project that the first key names, if they may begin with a freeze: the column,
// and the join that provides it.
const (
	frozenColumnSQL = `, IF(STARTS_WITH(p.rules, 'frozen'), p.rules, NULL)`
	frozenRowsSQL   = `
LEFT JOIN@{JOIN_METHOD=APPLY_JOIN} projects AS p ON p.project = k.project`
)

// barredColumnSQL is driver.Witness.Barred for the site that the first key names. Version 11 of the
// schema has no column word: word is then the key's, which is NULL. The transaction locks what it
// reads, and the gap, so a transaction that bars the site comes before or after it.
const barredColumnSQL = `, IFNULL((
  SELECT w.away OR w.without OR IFNULL(word > IFNULL(w.seen, TIMESTAMP_SECONDS(0)), FALSE) FROM witnesses AS w WHERE w.name = k.site), FALSE)`

// askBarred makes the first of keys, which belong to a request of owner, read the row of the
// owner's site.
func askBarred(owner string, keys []key) []key {
	site, _, _ := strings.Cut(owner, "/")
	keys[0].Site = notNull(site)
	return keys
}

// refuseBarred returns ErrNotAdmitted if the site that one of the keys of states names is barred.
func refuseBarred(states []state) error {
	if slices.ContainsFunc(states, func(s state) bool { return s.barred }) {
		return driver.ErrNotAdmitted
	}
	return nil
}

// askFreeze makes the first of keys, which name refs of a project, also read the project's row.
func askFreeze(project string, keys []key) []key {
	keys[0].Project = notNull(project)
	return keys
}

// rulesIn returns the project's rules, if they may begin with a freeze and one of the keys of
// states requested them.
func rulesIn(states []state) string {
	for _, s := range states {
		if s.stored != "" {
			return s.stored
		}
	}
	return ""
}

func stateStatement(project string) spanner.Statement {
	return spanner.Statement{SQL: stateColumnsSQL + stateRowsSQL, Params: map[string]any{"project": project}}
}

// statesOf returns a function that reads and locks the rows that keys name, in any order.
func statesOf(project string, keys []key) func(context.Context, *transaction) ([]state, error) {
	s := stateStatement(project)
	return func(ctx context.Context, t *transaction) (states []state, err error) {
		err = queryKeys(ctx, t, s, keys, key.bytes, collect(&states, func(r *spanner.Row) (state, error) { return readState(project, r) }))
		return states, err
	}
}

// readState converts a row of stateStatement, and reads the columns after it into more.
func readState(project string, r *spanner.Row, more ...any) (state, error) {
	var (
		s          state
		owner      spanner.NullString // of the fence, as are the next two; NULL only if there is no row
		token      int64
		staleAfter int64
		nonce      spanner.NullString
		held       lockRow
		value      refRow
		waiting    []string
		now        int64
	)
	into := slices.Concat([]any{&s.Name, &owner, &token, &staleAfter, &nonce}, held.columns(), value.columns(), []any{&waiting, &now}, more)
	if err := r.Columns(into...); err != nil {
		return s, err
	}
	if owner.Valid {
		s.fence = &driver.LockInfo{
			Project: project, Ref: s.Name, Owner: owner.StringVal, Token: driver.Token(token), StaleAfter: micros(staleAfter),
		}
	}
	if held.owner.Valid {
		s.Lock, s.Nonce, s.token = new(held.info(project, s.Name)), nonce.StringVal, held.exactToken()
	}
	if value.value.Valid {
		s.Ref = new(value.ref(s.Name))
	}
	s.Queue, s.now = queue.Read(waiting), time.UnixMicro(now)
	return s, nil
}

// lockSQL selects a lockRow from locks AS l. The age is by the server's clock at the start of the
// read: if the read then waits for a beat to commit, the lock seems younger than it is, which
// breaks no promise.
const (
	lockSQL = `l.owner, l.token, l.heartbeat, l.stale_after, ` + ageSQL
	ageSQL  = `TIMESTAMP_DIFF(CURRENT_TIMESTAMP(), IFNULL(l.heartbeat, TIMESTAMP_SECONDS(0)), MICROSECOND)`
)

type lockRow struct {
	owner            spanner.NullString // NULL only if there is no row
	token, heartbeat spanner.NullTime
	staleAfter       spanner.NullInt64 // microseconds
	age              int64             // microseconds
}

func (l *lockRow) columns() []any {
	return []any{&l.owner, &l.token, &l.heartbeat, &l.staleAfter, &l.age}
}

// exactToken returns the token that a marker is named after.
func (l *lockRow) exactToken() time.Time {
	if !l.token.Valid {
		return time.Unix(0, 0).UTC()
	}
	return l.token.Time
}

func (l *lockRow) info(project, ref string) driver.LockInfo {
	info := driver.LockInfo{
		Project: project, Ref: ref, Owner: l.owner.StringVal,
		Heartbeat: time.Unix(0, 0).UTC(), Age: micros(l.age), StaleAfter: driver.DefaultStaleAfter,
	}
	if l.token.Valid {
		info.Token = driver.TokenOf(l.token.Time)
	}
	if l.heartbeat.Valid {
		info.Heartbeat = l.heartbeat.Time.UTC()
	}
	if l.staleAfter.Valid {
		info.StaleAfter = micros(l.staleAfter.Int64)
	}
	return info
}

type refRow struct {
	value spanner.NullString // NULL only if there is no row
	time  spanner.NullTime
	op    spanner.NullString
}

func (r *refRow) columns() []any { return []any{&r.value, &r.time, &r.op} }

func (r *refRow) ref(name string) driver.Ref {
	ref := driver.Ref{Name: name, Value: driver.Value(r.value.StringVal), Op: r.op.StringVal}
	if r.time.Valid {
		ref.Time = r.time.Time.UTC()
	}
	return ref
}

// micros returns n microseconds, or as many as a Duration can hold.
func micros(n int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Microsecond)
	return time.Duration(min(max(n, -most), most)) * time.Microsecond
}
