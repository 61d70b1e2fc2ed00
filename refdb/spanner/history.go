package spanner

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// The history has a row for each change of a ref. The transaction that makes the change inserts the
// row. A change's position is its commit timestamp, in microseconds. So all changes up to the
// timestamp of a strong read are complete: Spanner gives later commits larger timestamps.

const (
	// historyVersion is the version of the schema that introduced the history.
	historyVersion = 8

	// shards is the number of servers over which the newest entries of the index history_shard can
	// be spread. Readers search all shards.
	shards = 16

	maxPosition = driver.Position(math.MaxInt64)
)

// shardOf returns the shard of a project's changes.
func shardOf(project string) int64 {
	h := fnv.New32a()
	h.Write([]byte(project))
	return int64(h.Sum32() % shards)
}

// instant returns the time of a position, or the nearest time that a TIMESTAMP can represent.
func instant(p driver.Position) time.Time {
	first, last := time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	return time.UnixMicro(min(max(int64(p), first.UnixMicro()), last.UnixMicro())).UTC()
}

func positionOf(t time.Time) driver.Position { return driver.Position(t.UnixMicro()) }

// An epochRow is a row of the table epochs.
type epochRow struct {
	First  time.Time `spanner:"first"`
	ID     string    `spanner:"id"`
	Began  time.Time `spanner:"began"`
	By     string    `spanner:"asked_by"`
	Reason string    `spanner:"reason"`
}

const stateOfHistorySQL = `
SELECT s.begun, s.pruned, IFNULL((SELECT a.server FROM admission AS a WHERE a.id = 1), ''), ARRAY(SELECT AS STRUCT e.first, e.id, e.began, e.asked_by, e.reason FROM epochs AS e ORDER BY e.first)%s
FROM history_state AS s`

// A columns function reads the columns of a row, as [spanner.Row.Columns] does.
type columns func(...any) error

// readHistory reads the state of the history together with the rows of a query, all as of one time.
// The query selects n columns, which rowOf converts. If n is 0, there is no query.
func readHistory[T any](ctx context.Context, d *Driver, r request, n int, s spanner.Statement, rowOf func(columns) (T, error)) (rows []T, state driver.HistoryState, err error) {
	text := fmt.Sprintf(stateOfHistorySQL, strings.Repeat(", NULL", n))
	if n > 0 {
		text += "\nUNION ALL\nSELECT NULL, NULL, NULL, NULL, rest.* FROM (" + s.SQL + ") AS rest"
	}
	err = d.read(ctx, r, func(ctx context.Context, c *client) error {
		rows, state = nil, driver.HistoryState{}
		txn := c.Single()
		err := r.query(spanner.Statement{SQL: text, Params: s.Params})(ctx, txn).Do(func(row *spanner.Row) error {
			var begun, pruned spanner.NullTime
			var server spanner.NullString
			var epochs []*epochRow
			if err := row.Column(1, &pruned); err != nil {
				return err
			}
			if !pruned.Valid {
				one, err := rowOf(func(into ...any) error {
					return row.Columns(append([]any{&begun, &pruned, &server, &epochs}, into...)...)
				})
				rows = append(rows, one)
				return err
			}
			ignored := slices.Repeat([]any{nil}, n)
			err := row.Columns(append([]any{&begun, &pruned, &server, &epochs}, ignored...)...)
			state.Pruned, state.Admitted = positionOf(pruned.Time), d.isAdmitted(server.StringVal)
			if pruned.Time.After(begun.Time) {
				state.PrunedTime = instant(state.Pruned - 1)
			}
			for _, e := range epochs {
				state.Epochs = append(state.Epochs, driver.Epoch{ID: e.ID, First: positionOf(e.First), Began: e.Began.UTC(), By: e.By, Reason: e.Reason})
			}
			return err
		})
		if err != nil {
			return err
		}
		at, err := txn.Timestamp()
		state.Upto = positionOf(at)
		state.Ended, state.Begun = state.Upto, state.Upto
		return err
	})
	if err == nil && len(state.Epochs) == 0 {
		err = failed(r.what, fmt.Errorf("%w: the first rows of history_state and epochs are missing: run `refdbctl migrate force %d`, then `refdbctl migrate up`",
			driver.ErrSchema, historyVersion-1))
	}
	if err != nil {
		return nil, driver.HistoryState{}, err
	}
	return rows, state, nil
}

// HistoryState implements driver.HistoryStore.
func (d *Driver) HistoryState(ctx context.Context) (driver.HistoryState, error) {
	_, state, err := readHistory[struct{}](ctx, d, request{tag: "refdb.history", what: "read the history"}, 0, spanner.Statement{}, nil)
	return state, err
}

// changeSQL selects a changeRow from history AS c.
const changeSQL = `c.project, c.ref, c.position, c.old_value, c.new_value, IFNULL(c.op, '') AS op, IFNULL(c.owner, '') AS owner, IFNULL(c.asked_by, '') AS asked_by`

const changeColumns = 8

// readChange reads the columns of changeSQL, and the columns before them into before.
func readChange(from columns, before ...any) (c driver.Change, err error) {
	err = from(append(before, &c.Project, &c.Ref, &c.Time, (*string)(&c.Old), (*string)(&c.New), &c.Op, &c.Owner, &c.By)...)
	c.Time = c.Time.UTC()
	c.Position = positionOf(c.Time)
	return c, err
}

// keysOf selects the first keys of changes, in all shards. where is a condition on history AS h and
// the shard s. The order is that of the index.
func keysOf(where string) string {
	return `
SELECT k.project, k.ref, k.position
FROM UNNEST(GENERATE_ARRAY(0, ` + fmt.Sprint(shards-1) + `)) AS s, UNNEST(ARRAY(
  SELECT AS STRUCT h.project, h.ref, h.position FROM history@{FORCE_INDEX=history_shard} AS h
  WHERE h.shard = s AND ` + where + ` ORDER BY h.position, h.project, h.ref LIMIT @limit)) AS k
ORDER BY k.position, k.project, k.ref LIMIT @limit`
}

// afterSQL selects what comes after a key. The second part implies the first, which bounds the
// range to read.
const afterSQL = `h.position >= @after AND (h.position > @after OR h.project > @after_project OR h.project = @after_project AND h.ref > @after_ref)`

func afterParams(k driver.ChangeKey, limit int) map[string]any {
	return map[string]any{"after": instant(k.Position), "after_project": k.Project, "after_ref": k.Ref, "limit": int64(limit)}
}

// PositionAt implements driver.HistoryStore. A change's time is its position.
func (d *Driver) PositionAt(ctx context.Context, t time.Time) (driver.Position, driver.HistoryState, error) {
	s := spanner.Statement{
		SQL:    `SELECT k.position FROM (` + keysOf(`h.position > @time`) + `) AS k`,
		Params: map[string]any{"time": instant(positionOf(t)), "limit": int64(1)},
	}
	later, state, err := readHistory(ctx, d, request{tag: "refdb.position", what: "find a position"}, 1, s, func(from columns) (at time.Time, err error) {
		err = from(&at)
		return at, err
	})
	if err != nil || len(later) == 0 {
		return state.Upto, state, err
	}
	return positionOf(later[0]) - 1, state, nil
}
