package spanner

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	// pastSQL selects refs that have a row, or changes, with their newest change up to a position and the
	// first after it.
	pastSQL = `
SELECT IFNULL(r.ref, h.ref), r.value, r.time, r.op, below.position, below.new_value, below.op, above.old_value
FROM (SELECT ref, value, time, op FROM refs WHERE %s ORDER BY ref LIMIT @limit) AS r
FULL JOIN (
  SELECT ref, MAX(IF(position <= @time, position, NULL)) AS below, MIN(IF(position > @time, position, NULL)) AS above
  FROM history WHERE %s GROUP BY ref ORDER BY ref LIMIT @limit) AS h ON h.ref = r.ref
LEFT JOIN@{JOIN_METHOD=APPLY_JOIN} history AS below ON below.project = @project AND below.ref = h.ref AND below.position = h.below
LEFT JOIN@{JOIN_METHOD=APPLY_JOIN} history AS above ON above.project = @project AND above.ref = h.ref AND above.position = h.above
ORDER BY 1 LIMIT @limit`

	pastRangeSQL = `project = @project AND ref > @after AND STARTS_WITH(ref, @prefix)`

	pastColumns = 8
)

// Past implements refdb.HistoryStore.
func (d *Driver) Past(ctx context.Context, r refdb.PastRequest) (p refdb.PastPage, _ error) {
	q := request{tag: "refdb.past", what: "read refs of the past"}
	s := spanner.Statement{SQL: fmt.Sprintf(pastSQL, pastRangeSQL, pastRangeSQL), Params: map[string]any{
		"project": r.Project, "after": r.After, "prefix": r.Prefix, "time": instant(r.At), "limit": int64(r.Limit),
	}}
	found, state, err := readHistory(ctx, d, q, pastColumns, s, readPast)
	if err != nil {
		return p, err
	}
	p.State = state
	if r.At < p.State.Pruned-1 || r.At > p.State.Upto {
		return p, nil // which the caller refuses
	}
	slices.SortFunc(found, func(a, b pastRef) int { return strings.Compare(a.name, b.name) })
	for _, f := range found {
		ref, ok := f.at(r.At)
		if !ok {
			return refdb.PastPage{}, failed(q.what, fmt.Errorf("%s %s at position %d: %w: ask for a later position, or for other refs",
				r.Project, f.name, r.At, refdb.ErrUnrecorded))
		}
		if ref.Value != refdb.Unknown && (r.Deleted || !ref.Value.IsDeleted()) {
			p.Refs = append(p.Refs, ref)
		}
	}
	if n := len(found); n == r.Limit {
		p.Next = found[n-1].name
	}
	return p, nil
}

// A pastRef is what the tables say about a ref: its row; the newest change up to a position; and what
// the ref held before the first change after it. The row and the last two may be missing.
type pastRef struct {
	name       string
	row, below refRow
	above      spanner.NullString
}

func readPast(from columns) (f pastRef, err error) {
	err = from(&f.name, &f.row.value, &f.row.time, &f.row.op, &f.below.time, &f.below.value, &f.below.op, &f.above)
	return f, err
}

// at returns the ref as it was at a position. ok is false if that can't be told: Gerrit's plugin, or a
// program of the schema before the history, changed the ref without a record. Such a
// change shows as a gap between two changes, or between the newest and the row.
func (f pastRef) at(p refdb.Position) (ref refdb.Ref, ok bool) {
	before, now := f.below.ref(f.name), f.row.ref(f.name)
	switch {
	case f.below.value.Valid && f.above.Valid:
		return before, same(before.Value, refdb.Value(f.above.StringVal))
	case f.above.Valid:
		return refdb.Ref{Name: f.name, Value: refdb.Value(f.above.StringVal)}, true
	case f.row.value.Valid: // if it is as old as that, nothing has changed it since
		return now, f.below.micros() <= f.row.micros() && f.row.micros() <= int64(p)
	default:
		return before, before.Value.IsAbsent()
	}
}

// same reports whether a ref that was left at one value can have another before its next change. A
// deleted ref loses its row when its tombstone is purged.
func same(left, found refdb.Value) bool { return left == found || left.IsAbsent() && found.IsAbsent() }

// micros is the row's time; a row without one is the oldest.
func (r *refRow) micros() int64 {
	if !r.time.Valid {
		return time.Time{}.UnixMicro()
	}
	return r.time.Time.UnixMicro()
}
