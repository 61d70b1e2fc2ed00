package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/operation"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

// A trigger on the table of refs writes the history. The position of a change is the server's
// 64-bit ID of its transaction, plus a shift, which is raised only while no transaction that
// writes the history is open. No part of a position may change while transactions run: a
// transaction gets its ID at its first write, and may commit long after others with larger IDs.
//
// All transactions below the smallest ID in the snapshot of the reading statement have ended,
// whatever their kind, in every database of the server. Not all of these IDs are on the disk: after
// a crash PostgreSQL reuses the IDs of transactions that no client waited for.
const ended = `pg_snapshot_xmin(pg_current_snapshot())::text::bigint - 1 + shift`

// begun is at or above the positions of all visible transactions.
const begun = `pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1 + shift`

// upto is the last complete position: that of the newest visible change up to ended. A visible
// change is on the disk, with all IDs before it. The bounds keep the search from walking through
// index entries that are not committed, or were pruned.
const upto = `greatest(pruned - 1, (SELECT position FROM history WHERE position >= pruned AND position <= ` + ended + ` ORDER BY position DESC LIMIT 1))`

const state = `state AS MATERIALIZED (
  SELECT ` + upto + ` AS upto, ` + ended + ` AS ended, ` + begun + ` AS begun, pruned, pruned_time,
    coalesce((SELECT server FROM admission WHERE id = 1) = refdb_server(), false) AS admitted FROM history_state WHERE id = 1
)`

// stateColumns are the columns that stateRow reads.
const stateColumns = `upto, ended, begun, pruned, pruned_time, admitted, epochs.*`

// fromState has the one row that stateColumns select from. One sort serves all of its arrays.
const fromState = `state, (
  SELECT array_agg(first) AS first, array_agg(id) AS id, array_agg(began) AS began, array_agg(asked_by) AS asked_by, array_agg(reason) AS reason
  FROM (SELECT first, id, began, asked_by, reason FROM epochs ORDER BY first) AS in_order
) AS epochs`

// noState has a NULL for each of stateColumns.
const noState = `NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::timestamptz, NULL::boolean, NULL::bigint[], NULL::text[], NULL::timestamptz[], NULL::text[], NULL::text[]`

// A stateRow holds stateColumns, which are NULL except in the first row of an answer.
type stateRow struct {
	upto, ended, begun, pruned *int64
	prunedTime                 *time.Time
	admitted                   *bool
	first                      []int64
	id, askedBy, reason        []string
	began                      []time.Time
}

// into returns the destinations of a row's columns.
func (s *stateRow) into() []any {
	return []any{&s.upto, &s.ended, &s.begun, &s.pruned, &s.prunedTime, &s.admitted, &s.first, &s.id, &s.began, &s.askedBy, &s.reason}
}

// read reports whether the row has a state, and if so copies it to state.
func (s *stateRow) read(state *driver.HistoryState) bool {
	if s.upto == nil {
		return false
	}
	*state = driver.HistoryState{
		Upto: driver.Position(*s.upto), Ended: driver.Position(*s.ended), Begun: driver.Position(*s.begun),
		Pruned: driver.Position(*s.pruned), Admitted: *s.admitted,
	}
	if s.prunedTime != nil {
		state.PrunedTime = s.prunedTime.UTC()
	}
	for i := range s.first {
		state.Epochs = append(state.Epochs, driver.Epoch{
			ID: s.id[i], First: driver.Position(s.first[i]), Began: s.began[i].UTC(), By: s.askedBy[i], Reason: s.reason[i],
		})
	}
	return true
}

// HistoryState takes one statement.
func (d *Driver) HistoryState(ctx context.Context) (s driver.HistoryState, err error) {
	err = d.pools.Do(ctx, roundtrip.Read("read the history").Query(`WITH `+state+` SELECT `+stateColumns+` FROM `+fromState, func(rows pgx.Rows) error {
		var row stateRow
		_, err := pgx.ForEachRow(rows, row.into(), func() error {
			row.read(&s)
			return nil
		})
		return err
	}))
	return s, err
}

const (
	changeColumns = `project, ref, position, old, new, time, op`
	noChange      = `NULL, NULL, NULL::bigint, NULL, NULL, NULL::timestamptz, NULL`
)

// A changeRow holds changeColumns, which are NULL in the first row of an answer.
type changeRow struct {
	project, ref, old, new, op *string
	position                   *int64
	time                       *time.Time
}

func (c *changeRow) into() []any {
	return []any{&c.project, &c.ref, &c.position, &c.old, &c.new, &c.time, &c.op}
}

func (c *changeRow) change() driver.Change {
	change := driver.Change{
		Project: *c.project, Ref: *c.ref, Old: driver.Value(*c.old), New: driver.Value(*c.new), Position: driver.Position(*c.position), Time: c.time.UTC(),
	}
	if c.op != nil {
		by := operation.Parse(*c.op)
		change.Op, change.Owner, change.By = by.ID, by.Owner, by.By
	}
	return change
}
