package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	// askedIntents are the arrays $1 to $3, n counting from 1.
	askedIntents = `unnest($1::text[], $2::text[], $3::timestamptz[]) WITH ORDINALITY AS asked (project, ref, token, n)`

	// pendingOfAsked is the intent that asked names, if it is pending, and where it is stored.
	pendingOfAsked = `SELECT *, ctid AS tid FROM intents
WHERE project = asked.project AND ref = asked.ref AND token = asked.token AND decision IS NULL LIMIT 1`

	// endIntents ends those of the fence of an update, once that is done.
	endIntents = `, ended AS (
  DELETE FROM intents USING verdict WHERE verdict = 'done' AND ctid = ANY (ARRAY(
    SELECT tid FROM (SELECT $1 AS project, ref, $10 AS token FROM unnest($9::text[]) AS fence (ref)) AS asked, LATERAL (` + pendingOfAsked + `) AS intent
  ))
)`
)

// intentArray is a list of intents, each once, in the order of their keys, each
// with its first place in the caller's list.
type intentArray []indexedIntent

type indexedIntent struct {
	refdb.Intent
	index int
}

func (i indexedIntent) compare(other indexedIntent) int {
	return cmp.Or(strings.Compare(i.Project, other.Project), strings.Compare(i.Ref, other.Ref), cmp.Compare(i.Token, other.Token))
}

func sortIntents(intents []refdb.Intent) intentArray {
	all := make(intentArray, len(intents))
	for n, i := range intents {
		all[n] = indexedIntent{i, n}
	}
	slices.SortStableFunc(all, indexedIntent.compare)
	return slices.CompactFunc(all, func(a, b indexedIntent) bool { return a.compare(b) == 0 })
}

// args are the arrays $1 to $3.
func (a intentArray) args() []any {
	projects, refs, tokens := make([]string, len(a)), make([]string, len(a)), make([]time.Time, len(a))
	for n, i := range a {
		projects[n], refs[n], tokens[n] = i.Project, i.Ref, i.Token.Time()
	}
	return []any{projects, refs, tokens}
}

// Intents reads one page, from the index's entry after the last row of the page before.
func (d *Driver) Intents(ctx context.Context, q refdb.IntentQuery) ([]refdb.Intent, error) {
	sql, args := intentsQuery(q)
	var page []refdb.Intent
	err := d.do(ctx, trip{what: "list intents"}.then(sql, func(rows pgx.Rows) (err error) {
		page, err = pgx.CollectRows(rows, readIntent)
		return err
	}, args...))
	return page, err
}

func readIntent(row pgx.CollectableRow) (refdb.Intent, error) {
	var (
		i                 refdb.Intent
		token, now        time.Time
		decision          *refdb.Decision
		decidedBy, reason *string
		decidedAt         *time.Time
	)
	if err := row.Scan(&i.Project, &i.Ref, &token, &i.Owner, &i.Agent, &i.Old, &i.New, &i.Time, &now,
		&decision, &decidedBy, &reason, &decidedAt); err != nil {
		return i, err
	}
	i.Token, i.Time, i.Age = refdb.TokenOf(token), i.Time.UTC(), now.Sub(i.Time)
	if decision != nil {
		i.Decision = *decision
	}
	if decidedBy != nil {
		i.DecidedBy = *decidedBy
	}
	if reason != nil {
		i.Reason = *reason
	}
	if decidedAt != nil {
		i.DecidedAt = decidedAt.UTC()
	}
	return i, nil
}

func intentsQuery(q refdb.IntentQuery) (string, []any) {
	where := []string{`decision IS NULL`}
	if q.Decided {
		where[0] = `decision IS NOT NULL`
	}
	var args []any
	and := func(condition string, values ...any) {
		var numbers []any
		for _, v := range values {
			args = append(args, v)
			numbers = append(numbers, len(args))
		}
		where = append(where, fmt.Sprintf(condition, numbers...))
	}
	if q.Project != "" {
		and(`project = $%d`, q.Project)
	}
	if q.AfterProject != "" || q.AfterRef != "" {
		and(`(project, ref, token) > ($%d, $%d, $%d)`, q.AfterProject, q.AfterRef, q.AfterToken.Time())
	}
	if q.Ref != "" {
		and(`ref = $%d`, q.Ref)
	}
	if q.Owner != "" {
		and(`(owner = $%d OR starts_with(owner, $%d))`, q.Owner, q.Owner+"/")
	}
	args = append(args, q.Limit)
	return fmt.Sprintf(`
SELECT project, ref, token, owner, agent, old_value, new_value, time, now, decision, decided_by, reason, decided_at
FROM intents CROSS JOIN (SELECT clock_timestamp() AS now OFFSET 0) AS clock
WHERE %s
ORDER BY project, ref, token LIMIT $%d`, strings.Join(where, " AND "), len(args)), args
}

const forgetSQL = `
DELETE FROM intents WHERE ctid = ANY (ARRAY(
  SELECT intent.tid FROM ` + askedIntents + `, LATERAL (
    SELECT ctid AS tid FROM intents
    WHERE project = asked.project AND ref = asked.ref AND token = asked.token AND decision IS NOT NULL LIMIT 1
  ) AS intent
))`

// Forget needs no keys: nobody changes an intent that was decided.
func (d *Driver) Forget(ctx context.Context, intents []refdb.Intent) error {
	if len(intents) == 0 {
		return nil
	}
	return d.do(ctx, trip{what: "forget intents", writes: true}.then(forgetSQL, nil, sortIntents(intents).args()...))
}
