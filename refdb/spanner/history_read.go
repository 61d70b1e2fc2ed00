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
	unprunedSQL = ` AND h.position >= (SELECT pruned FROM history_state)`

	// changesSQL gets the rows of keys.
	changesSQL = `SELECT FALSE AS last, ` + changeSQL + ` FROM (%) AS k
JOIN@{JOIN_METHOD=APPLY_JOIN} history AS c ON c.project = k.project AND c.ref = k.ref AND c.position = k.position`

	lastSQL = `
UNION ALL SELECT TRUE, ` + changeSQL + ` FROM history AS c WHERE c.project = @last_project AND c.ref = @last_ref AND c.position = @last`

	keysOfProjectSQL = `
SELECT h.project, h.ref, h.position FROM history@{FORCE_INDEX=history_project} AS h
WHERE h.project = @project AND STARTS_WITH(h.ref, @prefix) AND ` + afterSQL + unprunedSQL + ` ORDER BY h.position, h.ref LIMIT @limit`
)

// Changes implements refdb.HistoryStore. It asks for one change more than the page may have, to
// know whether there is one.
func (d *Driver) Changes(ctx context.Context, r refdb.ChangesRequest) (p refdb.ChangesPage, _ error) {
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
	p.Next = refdb.ChangeKey{Position: p.State.Upto + 1}
	slices.SortFunc(p.Changes, func(a, b refdb.Change) int { return a.Key().Compare(b.Key()) })
	if len(p.Changes) > r.Limit {
		p.Changes = p.Changes[:r.Limit]
		p.Next = p.Changes[r.Limit-1].Key()
	}
	return p, nil
}

// A found change is a row of changesSQL. It may be the one that the reader read last.
type found struct {
	refdb.Change
	last bool
}

func readFound(from columns) (f found, err error) {
	f.Change, err = readChange(from, &f.last)
	return f, err
}

// newestSQL gets the newest change of the last seconds. An index can be read in its own order only: what
// is that new is read to its end.
var newestSQL = strings.Replace(changesSQL, "%", `
SELECT k.project, k.ref, k.position
FROM UNNEST(GENERATE_ARRAY(0, `+fmt.Sprint(shards-1)+`)) AS s, UNNEST(ARRAY(
  SELECT AS STRUCT h.project, h.ref, h.position FROM history@{FORCE_INDEX=history_shard} AS h
  WHERE h.shard = s AND h.position > TIMESTAMP_SUB(CURRENT_TIMESTAMP(), INTERVAL @seconds SECOND)`+unprunedSQL+`
  ORDER BY h.position DESC, h.project DESC, h.ref DESC LIMIT 1)) AS k
ORDER BY k.position DESC, k.project DESC, k.ref DESC LIMIT 1`, 1)

// Newest implements refdb.HistoryStore. It asks again for a longer time while there is no change.
func (d *Driver) Newest(ctx context.Context) (refdb.Change, refdb.HistoryState, error) {
	for seconds := int64(60); ; seconds *= 60 {
		s := spanner.Statement{SQL: newestSQL, Params: map[string]any{"seconds": seconds}}
		rows, state, err := readHistory(ctx, d, request{tag: "refdb.newest", what: "find the newest change"}, 1+changeColumns, s, readFound)
		switch {
		case err != nil:
			return refdb.Change{}, refdb.HistoryState{}, err
		case len(rows) > 0:
			return rows[0].Change, state, nil
		case seconds >= newestLimit || instant(state.Upto).Add(-time.Duration(seconds)*time.Second).Before(instant(state.Pruned)):
			return refdb.Change{}, state, nil
		}
	}
}

// newestLimit is more than the 60 years and less than the 2,000 that a TIMESTAMP can go back.
const newestLimit = 60 * 60 * 60 * 60 * 60

// tipSQL has one row.
const tipSQL = `
SELECT ARRAY(SELECT h.position FROM history@{FORCE_INDEX=history_project} AS h WHERE h.project = @project ORDER BY h.position DESC LIMIT 1),
  EXISTS (SELECT 1 FROM intents AS i WHERE i.project = @project AND i.decision IS NULL),
  ARRAY(SELECT p.revision FROM projects AS p WHERE p.project = @project)`

// Tip implements refdb.HistoryStore.
func (d *Driver) Tip(ctx context.Context, project string) (refdb.Tip, error) {
	s := spanner.Statement{SQL: tipSQL, Params: map[string]any{"project": project}}
	rows, state, err := readHistory(ctx, d, request{tag: "refdb.tip", what: "find the tip of a project"}, 3, s, func(from columns) (t refdb.Tip, err error) {
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
		return refdb.Tip{}, err
	}
	if len(rows) != 1 {
		return refdb.Tip{}, failed("find the tip of a project", fmt.Errorf("%d rows instead of one", len(rows)))
	}
	t := rows[0]
	t.Server, t.State = d.name, state
	return t, nil
}

const beforeSQL = ` AND h.position <= @before AND (h.position < @before OR h.project < @before_project OR h.project = @before_project AND h.ref < @before_ref)`

// Log implements refdb.HistoryStore.
func (d *Driver) Log(ctx context.Context, r refdb.LogRequest) (p refdb.LogPage, _ error) {
	params := map[string]any{"project": r.Project, "limit": int64(r.Limit) + 1}
	keys := `SELECT h.project, h.ref, h.position FROM history@{FORCE_INDEX=history_project} AS h WHERE h.project = @project`
	if r.Ref != "" {
		keys = `SELECT h.project, h.ref, h.position FROM history AS h WHERE h.project = @project AND h.ref = @ref`
		params["ref"] = r.Ref
	}
	if b := r.Before; b != (refdb.ChangeKey{}) {
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
	slices.SortFunc(p.Changes, func(a, b refdb.Change) int { return b.Key().Compare(a.Key()) })
	if len(p.Changes) > r.Limit {
		p.Changes = p.Changes[:r.Limit]
		p.Next = p.Changes[r.Limit-1].Key()
	}
	return p, nil
}
