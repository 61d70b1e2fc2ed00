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
	// askedIntents are the arrays $1 to $4, n counting from 1.
	askedIntents = `unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[]) WITH ORDINALITY AS asked (project, ref, owner, token, n)`

	// intentOfAsked is the record that asked names, and where it is stored.
	intentOfAsked = `SELECT *, ctid AS tid FROM intents
WHERE project = asked.project AND ref = asked.ref AND owner = asked.owner AND token = asked.token`

	pendingOfAsked = intentOfAsked + ` AND decision IS NULL LIMIT 1`
	decidedOfAsked = intentOfAsked + ` AND decision IS NOT NULL LIMIT 1`

	// lockOfIntent is the lock that the intent was recorded with.
	lockOfIntent = `SELECT ctid AS tid, waiting FROM locks
WHERE project = asked.project AND ref = asked.ref AND owner IS NOT DISTINCT FROM asked.owner AND token = asked.token AND ` + isIntent + ` LIMIT 1`
)

// intentArray names intents, each once, in the order of their keys, each with its
// first place in the caller's list.
type intentArray []indexedIntent

type indexedIntent struct {
	refdb.LockID
	index int
}

func (i indexedIntent) compare(other indexedIntent) int {
	return cmp.Or(strings.Compare(i.Project, other.Project), strings.Compare(i.Ref, other.Ref),
		cmp.Compare(i.Token, other.Token), strings.Compare(i.Owner, other.Owner))
}

func sortIntents(intents []refdb.LockID) intentArray {
	all := make(intentArray, len(intents))
	for n, i := range intents {
		all[n] = indexedIntent{i, n}
	}
	slices.SortStableFunc(all, indexedIntent.compare)
	return slices.CompactFunc(all, func(a, b indexedIntent) bool { return a.compare(b) == 0 })
}

// args are the arrays $1 to $4.
func (a intentArray) args() []any {
	projects, refs, owners, tokens := make([]string, len(a)), make([]string, len(a)), make([]string, len(a)), make([]time.Time, len(a))
	for n, i := range a {
		projects[n], refs[n], owners[n], tokens[n] = i.Project, i.Ref, i.Owner, i.Token.Time()
	}
	return []any{projects, refs, owners, tokens}
}

// Intents reads one page, from the index's entry after the last row of the page before.
func (d *Driver) Intents(ctx context.Context, q refdb.IntentQuery) (page refdb.IntentPage, err error) {
	sql, args := intentsQuery(q)
	err = d.do(ctx, roundTrip{what: "list intents"}.then(sql, func(rows pgx.Rows) (err error) {
		page.Intents, err = pgx.CollectRows(rows, readIntent)
		return err
	}, args...))
	if n := len(page.Intents); err == nil && n > 0 && n == q.Limit {
		last := page.Intents[n-1]
		page.Next = refdb.IntentCursor{Project: last.Project, Ref: last.Ref, Token: last.Token}
	}
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
	if q.After != (refdb.IntentCursor{}) {
		and(`(project, ref, token) > ($%d, $%d, $%d)`, q.After.Project, q.After.Ref, q.After.Token.Time())
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
  SELECT intent.tid FROM ` + askedIntents + `, LATERAL (` + decidedOfAsked + `) AS intent
))`

// Forget needs no keys: nobody changes an intent that was decided.
func (d *Driver) Forget(ctx context.Context, intents []refdb.LockID) error {
	if len(intents) == 0 {
		return nil
	}
	return d.do(ctx, roundTrip{what: "forget intents", writes: true}.guard().then(forgetSQL, nil, sortIntents(intents).args()...))
}
