package sqlite

import (
	"context"
	"encoding/json"
	"math"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/internal/queue"
)

// state is what the tables hold about one ref.
type state struct {
	row  *refdb.Ref      // nil if it is unknown
	lock *refdb.LockInfo // nil if there is none
	// nonce is that of the lock, queue those who wait for it.
	nonce string
	queue queue.Queue
}

// A list of names goes to SQLite as one JSON array: that is one statement
// whatever its length, and for more than a few names much faster than one each.
const (
	stateColumns = `r.value, r.time, r.op, l.owner, l.token, l.heartbeat, l.stale_after, l.nonce, l.waiting`

	lookRef = `
	SELECT 0, ` + stateColumns + `
	FROM (SELECT 1) AS one_row
	LEFT JOIN refs  AS r ON r.project = ?1 AND r.ref = ?2
	LEFT JOIN locks AS l ON l.project = ?1 AND l.ref = ?2`

	lookRefs = `
	SELECT name.key, ` + stateColumns + `
	FROM json_each(?2) AS name
	LEFT JOIN refs  AS r ON r.project = ?1 AND r.ref = name.value
	LEFT JOIN locks AS l ON l.project = ?1 AND l.ref = name.value`
)

// look returns the state of each of refs.
func (t *tx) look(project string, refs []string) ([]state, error) {
	return look(context.Background(), t.conn, t.now, project, refs)
}

// look returns the state of each of refs, with ages up to now.
func look(ctx context.Context, c *conn, now int64, project string, refs []string) ([]state, error) {
	states := make([]state, len(refs))
	statement, names := choose(lookRef, lookRefs, refs)
	err := c.query(ctx, func(r row) {
		i := r.int(0)
		if !r.null(1) {
			ref := refOf(refs[i], r.text(1), r.int(2), r.text(3))
			states[i].row = &ref
		}
		if !r.null(4) {
			lock := lockOf(now, project, refs[i], r[4:])
			states[i].lock, states[i].nonce, states[i].queue = &lock, r.text(8), queueOf(r.text(9))
		}
	}, statement, project, names)
	return states, err
}

// choose returns the statement for a single ref, with its name, or that for any
// number, with a list of them: the first takes two thirds of the time.
func choose(single, many string, refs []string) (statement, names string) {
	if len(refs) == 1 {
		return single, refs[0]
	}
	return many, asJSON(refs)
}

func refOf(name, value string, micros int64, op string) refdb.Ref {
	ref := refdb.Ref{Name: name, Value: refdb.Value(value), Op: op}
	if micros != 0 {
		ref.Time = timeOf(micros)
	}
	return ref
}

// lockOf reads owner, token, heartbeat and stale_after.
func lockOf(now int64, project, ref string, r row) refdb.LockInfo {
	l := refdb.LockInfo{
		Project:    project,
		Ref:        ref,
		Owner:      r.text(0),
		Token:      refdb.Token(r.int(1)),
		Heartbeat:  timeOf(r.int(2)),
		Age:        durationOf(now - r.int(2)),
		StaleAfter: refdb.DefaultStaleAfter,
	}
	if !r.null(3) {
		l.StaleAfter = durationOf(r.int(3))
	}
	return l
}

func timeOf(micros int64) time.Time { return time.UnixMicro(micros).UTC() }

// durationOf is as near as a time.Duration, which ends at 292 years, can be.
func durationOf(micros int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Microsecond)
	return time.Duration(max(-most, min(micros, most))) * time.Microsecond
}

// microsOf rounds up: a lock must not be stale for others before it is for its holder.
func microsOf(d time.Duration) int64 {
	return int64((d + time.Microsecond - 1) / time.Microsecond)
}

// asJSON takes slices and arrays of strings, which can't fail.
func asJSON(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}
