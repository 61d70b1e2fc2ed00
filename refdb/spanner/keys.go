package spanner

import (
	"context"
	"iter"
	"slices"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

// keyBytes is the maximum size of the keys in one request. Spanner accepts 10 MiB, and 100 MiB only
// in a commit. Only thousands of very long names need two requests.
const keyBytes = 4 << 20

// A key names the rows of one ref that a transaction reads. A NULL reads and locks no row.
type key struct {
	Ref  string             `spanner:"ref"`
	Lock spanner.NullString `spanner:"lock"` // the lock on it
	// Fence is the lock again, without its heartbeat. Spanner locks columns, not whole rows, so a
	// fenced update does not wait for its holder's beats.
	Fence spanner.NullString `spanner:"fence"`
	Value spanner.NullString `spanner:"value"` // the ref
	// After and Before are the bounds of the names below, for a nameQuestion. Names in Moved don't
	// count.
	After  spanner.NullString `spanner:"after"`
	Before spanner.NullString `spanner:"before"`
	Moved  []string           `spanner:"moved"`
	// Project is the project of the refs, in the first of a request's keys, if a freeze of the
	// project matters: its row is read once, however many refs there are.
	Project spanner.NullString `spanner:"project"`
	// Site is the owner's site, in the first of a request's keys, if it matters whether
	// that site is barred.
	Site spanner.NullString `spanner:"site"`
	// Word is always NULL: see barredColumnSQL.
	Word spanner.NullTime `spanner:"word"`
}

func (k key) bytes() (n int) {
	for _, ref := range k.Moved {
		n += len(ref) + 8
	}
	return n + len(k.Ref) + len(k.Lock.StringVal) + len(k.Fence.StringVal) + len(k.Value.StringVal) + len(k.After.StringVal) + len(k.Before.StringVal) + len(k.Project.StringVal) + len(k.Site.StringVal) + 48
}

// lockKeys returns keys for the locks on refs.
func lockKeys(refs []string) []key {
	keys := make([]key, len(refs))
	for i, ref := range refs {
		keys[i] = key{Ref: ref, Lock: notNull(ref)}
	}
	return keys
}

// stateKeys returns keys for refs and the locks on them.
func stateKeys(refs []string) []key {
	keys := lockKeys(refs)
	for i, ref := range refs {
		keys[i].Value = notNull(ref)
	}
	return keys
}

// updateKeys returns keys for the rows that decide about updates under a fence on the refs in
// fenced.
func updateKeys(updates []driver.Update, fenced []string) []key {
	refs := rules.RefsOf(updates)
	keys := stateKeys(refs)
	for _, ref := range fenced {
		if i, updated := slices.BinarySearch(refs, ref); updated {
			keys[i].Lock, keys[i].Fence = spanner.NullString{}, notNull(ref)
		} else {
			keys = append(keys, key{Ref: ref, Fence: notNull(ref)})
		}
	}
	return keys
}

// A lockKey names a version of a row of locks. N is its index in the list. Times are in
// microseconds: a row that Gerrit wrote may have a finer time.
type lockKey struct {
	N         int64             `spanner:"n"`
	Project   string            `spanner:"project"`
	Ref       string            `spanner:"ref"`
	Owner     string            `spanner:"owner"`
	Token     int64             `spanner:"token"`
	Heartbeat spanner.NullInt64 `spanner:"heartbeat"` // NULL for any
}

func keyOf(n int, l driver.LockID) lockKey {
	return lockKey{N: int64(n), Project: l.Project, Ref: l.Ref, Owner: l.Owner, Token: int64(l.Token)}
}

func (k lockKey) bytes() int { return len(k.Project) + len(k.Ref) + len(k.Owner) + 48 }

const (
	matchSQL  = `SELECT k.n` + matchesSQL
	endingSQL = `SELECT k.n, l.waiting, UNIX_MICROS(CURRENT_TIMESTAMP())` + matchesSQL

	// matchesSQL is rules.Stands for leases. It reads no heartbeat: a beat writes that column
	// without having locked it before.
	matchesSQL = `
FROM UNNEST(@keys) AS k
JOIN@{JOIN_METHOD=APPLY_JOIN} locks AS l ON l.project = k.project AND l.ref = k.ref
WHERE l.owner = k.owner AND IFNULL(UNIX_MICROS(l.token), 0) = k.token AND IFNULL(l.stale_after, 0) < @never_stale`
	sameHeartbeatSQL = ` AND (k.heartbeat IS NULL OR k.heartbeat = IFNULL(UNIX_MICROS(l.heartbeat), 0))`
)

func matchStatement(sql string) spanner.Statement {
	return spanner.Statement{SQL: sql, Params: map[string]any{"never_stale": driver.NeverStale.Microseconds()}}
}

// matching returns a function that reads and locks the rows of keys, and reports which of them
// match.
func matching(keys []lockKey) func(context.Context, *transaction) ([]bool, error) {
	return func(ctx context.Context, t *transaction) ([]bool, error) {
		match := make([]bool, len(keys))
		return match, queryKeys(ctx, t, matchStatement(matchSQL), keys, lockKey.bytes, func(r *spanner.Row) error {
			var n int64
			err := r.Columns(&n)
			match[n] = true
			return err
		})
	}
}

// chunks splits items into pieces that fit into a request.
func chunks[T any](items []T, size func(T) int) iter.Seq[[]T] { return chunksOf(keyBytes, items, size) }

// chunksOf splits items into pieces of at most most bytes, or of one item.
func chunksOf[T any](most int, items []T, size func(T) int) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		for len(items) > 0 {
			n, bytes := 1, size(items[0])
			for n < len(items) && bytes+size(items[n]) <= most {
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

func notNull(s string) spanner.NullString { return spanner.NullString{StringVal: s, Valid: true} }
