package sqlite

import (
	"context"
	"encoding/json"
	"math"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/operation"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

// A list of names is passed to SQLite as one JSON array. So one statement serves any number of
// names, and is much faster than a statement for each name unless there are only a few.
const (
	stateColumns = `r.value, r.time, r.op, l.owner, l.token, l.heartbeat, l.stale_after, l.nonce, l.waiting`

	// frozenOf selects the rules of the project if they may begin with a freeze, and otherwise
	// NULL. SQLite evaluates it once per statement.
	frozenOf = `, (SELECT rules FROM projects WHERE project = ?1 AND substr(rules, 1, 6) = 'frozen')`

	rowOfRef = `
	SELECT 0, ` + stateColumns + frozenOf + `
	FROM (SELECT 1) AS one_row
	LEFT JOIN refs  AS r ON r.project = ?1 AND r.ref = ?2
	LEFT JOIN locks AS l ON l.project = ?1 AND l.ref = ?2`

	rowsOfRefs = `
	SELECT name.key, ` + stateColumns + frozenOf + `
	FROM json_each(?2) AS name
	LEFT JOIN refs  AS r ON r.project = ?1 AND r.ref = name.value
	LEFT JOIN locks AS l ON l.project = ?1 AND l.ref = name.value`
)

// rows returns the rows of the tables for refs.
func (t *tx) rows(project string, refs []string) ([]rules.Row, error) {
	rows, _, err := t.ruledRows(project, refs)
	return rows, err
}

// ruledRows also returns the project's rules, if they may begin with a freeze.
func (t *tx) ruledRows(project string, refs []string) (rows []rules.Row, stored string, err error) {
	return readRows(context.Background(), t.conn, t.now, project, refs)
}

// readRows returns the rows of the tables for refs, with ages relative to now, and the project's
// rules, if they may begin with a freeze.
func readRows(ctx context.Context, c *conn, now int64, project string, refs []string) (rows []rules.Row, stored string, err error) {
	rows = make([]rules.Row, len(refs))
	for i, ref := range refs {
		rows[i].Name = ref
	}
	statement, names := oneOrMany(rowOfRef, rowsOfRefs, refs)
	err = c.query(ctx, func(r row) {
		readRow(&rows[r.int(0)], now, project, r[1:])
		if stored == "" {
			stored = r.text(len(r) - 1)
		}
	}, statement, project, names)
	return rows, stored, err
}

// readRow reads the stateColumns of a ref of a project.
func readRow(found *rules.Row, now int64, project string, r row) {
	if !r.null(0) {
		ref := refOf(found.Name, r.text(0), r.int(1), r.text(2))
		found.Ref = &ref
	}
	if !r.null(3) {
		lock := lockOf(now, project, found.Name, r[3:])
		found.Lock, found.Nonce, found.Queue = &lock, r.text(7), queueOf(r.text(8))
	}
}

// oneOrMany returns the statement for a single ref and its name, or the statement for any number of
// refs and a list of names. The first takes two thirds of the time.
func oneOrMany(single, many string, refs []string) (statement, names string) {
	if len(refs) == 1 {
		return single, refs[0]
	}
	return many, asJSON(refs)
}

func refOf(name, value string, micros int64, op string) driver.Ref {
	ref := driver.Ref{Name: name, Value: driver.Value(value), Op: operation.ID(op)}
	if micros != 0 {
		ref.Time = timeOf(micros)
	}
	return ref
}

// lockOf reads owner, token, heartbeat and stale_after. The last three may be NULL.
func lockOf(now int64, project, ref string, r row) driver.LockInfo {
	l := driver.LockInfo{
		Project:    project,
		Ref:        ref,
		Owner:      r.text(0),
		Token:      driver.Token(r.int(1)),
		Heartbeat:  timeOf(r.int(2)),
		Age:        durationOf(now - r.int(2)),
		StaleAfter: driver.DefaultStaleAfter,
	}
	if !r.null(3) {
		l.StaleAfter = durationOf(r.int(3))
	}
	return l
}

func timeOf(micros int64) time.Time { return time.UnixMicro(micros).UTC() }

// durationOf returns the nearest time.Duration, whose range is 292 years.
func durationOf(micros int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Microsecond)
	return time.Duration(max(-most, min(micros, most))) * time.Microsecond
}

// microsOf rounds up: a lock must not become stale for others before it does for its holder.
func microsOf(d time.Duration) int64 {
	return int64((d + time.Microsecond - 1) / time.Microsecond)
}

// opOf returns by as the column op of refs stores it.
func opOf(by driver.Origin) any {
	if by.ID == "" {
		return nil
	}
	return operation.Text(by)
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// asJSON encodes slices and arrays of strings and numbers, which never fails.
func asJSON(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}
