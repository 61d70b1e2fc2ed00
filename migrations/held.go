package migrations

import (
	"fmt"
	"strconv"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// A LockPolicy says which locks stop a migration down.
type LockPolicy int

const (
	NoLocks     LockPolicy = iota
	IntentLocks            // those that stand for an intent; they are never forced
	FreshLocks             // those, and all that are not stale
)

// A HeldError says which locks keep a migration from going down. Nothing was changed.
type HeldError struct{ Locks []refdb.LockInfo }

func (e *HeldError) Error() string {
	l := e.Locks[0]
	return fmt.Sprintf("nothing was done: %d locks are held: %s %s by %s", len(e.Locks), l.Project, l.Ref, l.Owner)
}

// Refuse returns a *HeldError if p stops for any of the locks.
func (p LockPolicy) Refuse(standing []refdb.LockInfo) error {
	var held []refdb.LockInfo
	for _, l := range standing {
		if p != NoLocks && l.Intended() || p == FreshLocks && !l.Stale() {
			held = append(held, l)
		}
	}
	if len(held) == 0 {
		return nil
	}
	return &HeldError{held}
}

// HeldSQL is the query for all locks of a schema of that version, without the
// markers of a reclaim. [ScanHeld] reads its rows.
func HeldSQL(d Dialect, version uint) string {
	token, age := `coalesce(token, 0)`, `CAST(unixepoch('subsec') * 1000000 AS INTEGER) - coalesce(heartbeat, 0)`
	switch d {
	case Postgres:
		const micros = `(extract(epoch FROM %s) * 1000000)::bigint`
		token, age = fmt.Sprintf(micros, `coalesce(token, 'epoch')`), fmt.Sprintf(micros, `clock_timestamp() - coalesce(heartbeat, 'epoch')`)
	case Spanner:
		token, age = `IFNULL(UNIX_MICROS(token), 0)`, `UNIX_MICROS(CURRENT_TIMESTAMP()) - IFNULL(UNIX_MICROS(heartbeat), 0)`
	}
	staleAfter := strconv.FormatInt(refdb.DefaultStaleAfter.Microseconds(), 10)
	if version >= 2 {
		staleAfter = `coalesce(stale_after, ` + staleAfter + `)`
	}
	return `SELECT project, ref, owner, ` + token + `, ` + age + `, ` + staleAfter + `
FROM locks WHERE substr(project, 1, 8) <> 'RECLAIM_' ORDER BY project, ref`
}

// ScanHeld reads a row of [HeldSQL].
func ScanHeld(scan func(into ...any) error) (l refdb.LockInfo, err error) {
	var token, age, staleAfter int64 // µs
	err = scan(&l.Project, &l.Ref, &l.Owner, &token, &age, &staleAfter)
	l.Token, l.Age, l.StaleAfter = refdb.Token(token), time.Duration(age)*time.Microsecond, time.Duration(staleAfter)*time.Microsecond
	return l, err
}

// Counts are how much the tables hold: refs, deleted ones included, and locks.
type Counts struct{ Refs, Projects, Locks, Holders int64 }

// CountsSQL is the query for the [Counts] of a schema of any version. Its one row has the
// fields in their order.
const CountsSQL = `
SELECT * FROM
  (SELECT coalesce(sum(n), 0), count(*) FROM (SELECT count(*) AS n FROM refs GROUP BY project) AS project) AS refs,
  (SELECT coalesce(sum(n), 0), count(*) FROM (SELECT count(*) AS n FROM locks GROUP BY owner) AS holder) AS locks`
