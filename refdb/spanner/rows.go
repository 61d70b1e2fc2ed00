package spanner

import (
	"context"
	"iter"
	"math"
	"slices"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/internal/queue"
)

// keyBytes is how much of keys goes into one request: Spanner takes 10 MiB,
// and 100 only in a commit. Only thousands of very long names need two.
const keyBytes = 4 << 20

// A key says which rows of one ref a transaction reads. A NULL reads none, and
// locks none.
type key struct {
	Ref  string             `spanner:"ref"`
	Lock spanner.NullString `spanner:"lock"` // the lock on it
	// Fence is the lock again, without its heartbeat. Spanner locks columns, not
	// whole rows: so a fenced update does not wait for its holder's beats.
	Fence spanner.NullString `spanner:"fence"`
	Value spanner.NullString `spanner:"value"` // the ref
}

func (k key) bytes() int {
	return len(k.Ref) + len(k.Lock.StringVal) + len(k.Fence.StringVal) + len(k.Value.StringVal) + 32
}

// A state is what was found for a key. What was not there, or not asked for, is nil.
type state struct {
	ref   string
	lock  *lock
	fence *fence
	value *refdb.Ref
	queue queue.Queue // of the lock, or the fence
	now   time.Time   // if there is one
}

// A fence is a row of locks, as far as a fence needs it.
type fence struct {
	owner    string
	token    refdb.Token
	intended bool // it stands for an intent
}

// lock is a row of locks, with what [refdb.LockInfo] doesn't say.
type lock struct {
	refdb.LockInfo
	nonce string
	token time.Time // to the nanosecond
}

// The keys drive the joins (that is what the hints say), so that only rows of
// these keys are read and locked, and the gaps where there is none.
const stateSQL = `
SELECT k.ref,
       f.owner, IFNULL(UNIX_MICROS(f.token), 0), IFNULL(f.stale_after, 0),
       l.nonce, ` + lockSQL + `,
       r.value, r.time, r.op,
       IFNULL(f.waiting, l.waiting), IF(f.owner IS NULL AND l.owner IS NULL, 0, UNIX_MICROS(CURRENT_TIMESTAMP()))
FROM UNNEST(@keys) AS k
LEFT JOIN@{JOIN_METHOD=APPLY_JOIN} locks AS f ON f.project = @project AND f.ref = k.fence
LEFT JOIN@{JOIN_METHOD=APPLY_JOIN} locks AS l ON l.project = @project AND l.ref = k.lock
LEFT JOIN@{JOIN_METHOD=APPLY_JOIN} refs AS r ON r.project = @project AND r.ref = k.value`

func stateStatement(project string) spanner.Statement {
	return spanner.Statement{SQL: stateSQL, Params: map[string]any{"project": project}}
}

// statesOf has a transaction read and lock what keys name, in any order, with
// stateStatement or one that selects less.
func statesOf(s spanner.Statement, keys []key) func(context.Context, *transaction) ([]state, error) {
	return func(ctx context.Context, t *transaction) (states []state, err error) {
		err = queryKeys(ctx, t, s, keys, key.bytes, collect(&states, func(r *spanner.Row) (state, error) {
			return readState(s.Params["project"].(string), r)
		}))
		return states, err
	}
}

// lockKeys name the locks on refs.
func lockKeys(refs []string) []key {
	keys := make([]key, len(refs))
	for i, ref := range refs {
		keys[i] = key{Ref: ref, Lock: some(ref)}
	}
	return keys
}

// stateKeys name refs and the locks on them.
func stateKeys(refs []string) []key {
	keys := lockKeys(refs)
	for i, ref := range refs {
		keys[i].Value = some(ref)
	}
	return keys
}

func readState(project string, r *spanner.Row) (state, error) {
	var (
		s          state
		owner      spanner.NullString // of the fence, as is what follows; NULL only if there is no row
		token      int64
		staleAfter int64
		nonce      spanner.NullString
		held       lockRow
		value      refRow
		waiting    []string
		now        int64
	)
	into := slices.Concat([]any{&s.ref, &owner, &token, &staleAfter, &nonce}, held.columns(), value.columns(), []any{&waiting, &now})
	if err := r.Columns(into...); err != nil {
		return s, err
	}
	if owner.Valid {
		s.fence = &fence{owner.StringVal, refdb.Token(token), staleAfter >= refdb.NeverStale.Microseconds()}
	}
	if held.owner.Valid {
		s.lock = &lock{LockInfo: held.info(project, s.ref), nonce: nonce.StringVal, token: held.exactToken()}
	}
	if value.value.Valid {
		s.value = new(value.ref(s.ref))
	}
	s.queue, s.now = queue.Read(waiting), time.UnixMicro(now)
	return s, nil
}

// lockSQL selects a lockRow from locks AS l. The age is by the server's clock
// as it begins to read: if it then waits for a beat to be committed, the lock
// seems younger than it is, which breaks no promise.
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

// exactToken is what a marker is named after.
func (l *lockRow) exactToken() time.Time {
	if !l.token.Valid {
		return time.Unix(0, 0).UTC()
	}
	return l.token.Time
}

func (l *lockRow) info(project, ref string) refdb.LockInfo {
	info := refdb.LockInfo{
		Project: project, Ref: ref, Owner: l.owner.StringVal,
		Heartbeat: time.Unix(0, 0).UTC(), Age: micros(l.age), StaleAfter: refdb.DefaultStaleAfter,
	}
	if l.token.Valid {
		info.Token = refdb.TokenOf(l.token.Time)
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

func (r *refRow) ref(name string) refdb.Ref {
	ref := refdb.Ref{Name: name, Value: refdb.Value(r.value.StringVal), Op: r.op.StringVal}
	if r.time.Valid {
		ref.Time = r.time.Time.UTC()
	}
	return ref
}

// micros returns n microseconds, or as many as a Duration holds.
func micros(n int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Microsecond)
	return time.Duration(min(max(n, -most), most)) * time.Microsecond
}

// chunks cuts items into pieces that fit a request.
func chunks[T any](items []T, size func(T) int) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		for len(items) > 0 {
			n, bytes := 1, size(items[0])
			for n < len(items) && bytes+size(items[n]) <= keyBytes {
				bytes += size(items[n])
				n++
			}
			if !yield(items[:n]) {
				return
			}
			items = items[n:]
		}
	}
}

func some(s string) spanner.NullString { return spanner.NullString{StringVal: s, Valid: true} }
