package spanner

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

const (
	unprunedSQL = ` AND h.position >= (SELECT pruned FROM history_state)`

	// changesSQL selects the rows of keys.
	changesSQL = `SELECT FALSE AS last, ` + changeSQL + ` FROM (%) AS k
JOIN@{JOIN_METHOD=APPLY_JOIN} history AS c ON c.project = k.project AND c.ref = k.ref AND c.position = k.position`

	lastSQL = `
UNION ALL SELECT TRUE, ` + changeSQL + ` FROM history AS c WHERE c.project = @last_project AND c.ref = @last_ref AND c.position = @last`

	keysOfProjectSQL = `
SELECT h.project, h.ref, h.position FROM history@{FORCE_INDEX=history_project} AS h
WHERE h.project = @project AND STARTS_WITH(h.ref, @prefix) AND ` + afterSQL + unprunedSQL + ` ORDER BY h.position, h.ref LIMIT @limit`
)

// Changes implements driver.HistoryStore. It requests one change more than the page may have, to
// find out whether there are more.
func (d *Driver) Changes(ctx context.Context, r driver.ChangesRequest) (p driver.ChangesPage, _ error) {
	keys, params := keysOf(afterSQL+unprunedSQL), afterParams(r.After, r.Limit+1)
	if r.Project != "" {
		keys = keysOfProjectSQL
		params["project"], params["prefix"] = r.Project, r.Prefix
	}
	s := spanner.Statement{SQL: strings.Replace(changesSQL, "%", keys, 1), Params: params}
	if l := r.Last; l.Ref != "" {
		s.SQL += lastSQL
		params["last_project"], params["last_ref"], params["last"] = l.Project, l.Ref, instant(l.Position)
	}
	rows, state, err := readHistory(ctx, d, request{tag: "refdb.changes", what: "read changes"}, 1+changeColumns, s, readFound)
	if err != nil {
		return p, err
	}
	p.State = state
	for _, f := range rows {
		if f.last {
			p.LastOp, p.LastFound = f.Op, true
		} else {
			p.Changes = append(p.Changes, f.Change)
		}
	}
	p.Next = driver.ChangeKey{Position: p.State.Upto + 1}
	slices.SortFunc(p.Changes, func(a, b driver.Change) int { return a.Key().Compare(b.Key()) })
	if len(p.Changes) > r.Limit {
		p.Changes = p.Changes[:r.Limit]
		p.Next = p.Changes[r.Limit-1].Key()
	}
	return p, nil
}

// A found change is a row of changesSQL. It may be the change that the reader read last.
type found struct {
	driver.Change
	last bool
}

func readFound(from columns) (f found, err error) {
	f.Change, err = readChange(from, &f.last)
	return f, err
}

// newestSQL selects the newest change of the last seconds. An index can only be read in its own
// order, so all changes of that time are read.
var newestSQL = strings.Replace(changesSQL, "%", `
SELECT k.project, k.ref, k.position
FROM UNNEST(GENERATE_ARRAY(0, `+fmt.Sprint(shards-1)+`)) AS s, UNNEST(ARRAY(
  SELECT AS STRUCT h.project, h.ref, h.position FROM history@{FORCE_INDEX=history_shard} AS h
  WHERE h.shard = s AND h.position > TIMESTAMP_SUB(CURRENT_TIMESTAMP(), INTERVAL @seconds SECOND)`+unprunedSQL+`
  ORDER BY h.position DESC, h.project DESC, h.ref DESC LIMIT 1)) AS k
ORDER BY k.position DESC, k.project DESC, k.ref DESC LIMIT 1`, 1)

// Newest implements driver.HistoryStore. It repeats the query for a longer time until there is a
// change.
func (d *Driver) Newest(ctx context.Context) (driver.Change, driver.HistoryState, error) {
	for seconds := int64(60); ; seconds *= 60 {
		s := spanner.Statement{SQL: newestSQL, Params: map[string]any{"seconds": seconds}}
		rows, state, err := readHistory(ctx, d, request{tag: "refdb.newest", what: "find the newest change"}, 1+changeColumns, s, readFound)
		switch {
		case err != nil:
			return driver.Change{}, driver.HistoryState{}, err
		case len(rows) > 0:
			return rows[0].Change, state, nil
		case seconds >= newestLimit || instant(state.Upto).Add(-time.Duration(seconds)*time.Second).Before(instant(state.Pruned)):
			return driver.Change{}, state, nil
		}
	}
}

// newestLimit is the longest time that Newest searches, in seconds: about 25 years, of the 2,000 that
// a TIMESTAMP can go back.
const newestLimit = 60 * 60 * 60 * 60 * 60

// tipSQL returns one row.
const tipSQL = `
SELECT ARRAY(SELECT h.position FROM history@{FORCE_INDEX=history_project} AS h WHERE h.project = @project ORDER BY h.position DESC LIMIT 1),
  EXISTS (SELECT 1 FROM intents AS i WHERE i.project = @project AND i.decision IS NULL),
  ARRAY(SELECT p.revision FROM projects AS p WHERE p.project = @project)`

// Tip implements driver.HistoryStore.
func (d *Driver) Tip(ctx context.Context, project string) (driver.Tip, error) {
	s := spanner.Statement{SQL: tipSQL, Params: map[string]any{"project": project}}
	rows, state, err := readHistory(ctx, d, request{tag: "refdb.tip", what: "find the tip of a project"}, 3, s, func(from columns) (t driver.Tip, err error) {
		var newest []time.Time
		var revision []int64
		err = from(&newest, &t.Pending, &revision)
		for _, at := range newest {
			t.Newest = positionOf(at)
		}
		for _, n := range revision {
			t.Revision = n
		}
		return t, err
	})
	if err != nil {
		return driver.Tip{}, err
	}
	if len(rows) != 1 {
		return driver.Tip{}, failed("find the tip of a project", fmt.Errorf("%d rows instead of one", len(rows)))
	}
	t := rows[0]
	t.Server, t.State = d.name, state
	return t, nil
}

const beforeSQL = ` AND h.position <= @before AND (h.position < @before OR h.project < @before_project OR h.project = @before_project AND h.ref < @before_ref)`

// Log implements driver.HistoryStore.
func (d *Driver) Log(ctx context.Context, r driver.LogRequest) (p driver.LogPage, _ error) {
	params := map[string]any{"project": r.Project, "limit": int64(r.Limit) + 1}
	keys := `SELECT h.project, h.ref, h.position FROM history@{FORCE_INDEX=history_project} AS h WHERE h.project = @project`
	if r.Ref != "" {
		keys = `SELECT h.project, h.ref, h.position FROM history AS h WHERE h.project = @project AND h.ref = @ref`
		params["ref"] = r.Ref
	}
	if b := r.Before; b != (driver.ChangeKey{}) {
		keys += beforeSQL
		params["before"], params["before_project"], params["before_ref"] = instant(b.Position), b.Project, b.Ref
	}
	keys += ` ORDER BY h.position DESC, h.ref DESC LIMIT @limit`
	s := spanner.Statement{SQL: strings.Replace(changesSQL, "%", keys, 1), Params: params}
	rows, state, err := readHistory(ctx, d, request{tag: "refdb.log", what: "read a log"}, 1+changeColumns, s, readFound)
	if err != nil {
		return p, err
	}
	p.State = state
	for _, f := range rows {
		p.Changes = append(p.Changes, f.Change)
	}
	slices.SortFunc(p.Changes, func(a, b driver.Change) int { return b.Key().Compare(a.Key()) })
	if len(p.Changes) > r.Limit {
		p.Changes = p.Changes[:r.Limit]
		p.Next = p.Changes[r.Limit-1].Key()
	}
	return p, nil
}

const (
	// pastSQL selects refs that have a row or changes, with their newest change up to a position
	// and the first change after it.
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

// Past implements driver.HistoryStore.
func (d *Driver) Past(ctx context.Context, r driver.PastRequest) (p driver.PastPage, _ error) {
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
		return p, nil // the caller refuses such a position
	}
	slices.SortFunc(found, func(a, b pastRef) int { return strings.Compare(a.name, b.name) })
	for _, f := range found {
		ref, ok := f.at(r.At)
		if !ok {
			return driver.PastPage{}, failed(q.what, fmt.Errorf("%s %s at position %d: %w: ask for a later position, or for other refs",
				r.Project, f.name, r.At, driver.ErrUnrecorded))
		}
		if ref.Value != driver.Unknown && (r.Deleted || !ref.Value.IsDeleted()) {
			p.Refs = append(p.Refs, ref)
		}
	}
	if n := len(found); n == r.Limit {
		p.Next = found[n-1].name
	}
	return p, nil
}

// A pastRef is what the tables contain about a ref: its row; the newest change up to a position;
// and the ref's value before the first later change. The row and the last two may be missing.
type pastRef struct {
	name       string
	row, below refRow
	above      spanner.NullString
}

func readPast(from columns) (f pastRef, err error) {
	err = from(&f.name, &f.row.value, &f.row.time, &f.row.op, &f.below.time, &f.below.value, &f.below.op, &f.above)
	return f, err
}

// at returns the ref as it was at a position. ok is false if this can't be determined: Gerrit's
// plugin, or a program of a schema without a history, changed the ref without a record. Such a
// change shows as a gap between two changes, or between the newest change and the row.
func (f pastRef) at(p driver.Position) (ref driver.Ref, ok bool) {
	before, now := f.below.ref(f.name), f.row.ref(f.name)
	switch {
	case f.below.value.Valid && f.above.Valid:
		// A deleted ref loses its row when its tombstone is purged: the next change then finds the
		// ref unknown.
		return before, before.Value.Equivalent(driver.Value(f.above.StringVal))
	case f.above.Valid:
		return driver.Ref{Name: f.name, Value: driver.Value(f.above.StringVal)}, true
	case f.row.value.Valid: // if the row is that old, the ref has not changed since
		return now, f.below.micros() <= f.row.micros() && f.row.micros() <= int64(p)
	default:
		return before, before.Value.IsAbsent()
	}
}

// micros returns the row's time; a row without a time is the oldest.
func (r *refRow) micros() int64 {
	if !r.time.Valid {
		return time.Time{}.UnixMicro()
	}
	return r.time.Time.UnixMicro()
}
