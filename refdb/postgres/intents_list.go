package postgres

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/operation"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

const (
	// askedIntents is the table of the arrays $1 to $4; n counts from 1.
	askedIntents = `unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[]) WITH ORDINALITY AS asked (project, ref, owner, token, n)`

	// intentOfAsked selects the record of the intent asked, and its location.
	intentOfAsked = `SELECT *, ctid AS tid FROM intents
WHERE project = asked.project AND ref = asked.ref AND owner = asked.owner AND token = asked.token`

	pendingOfAsked = intentOfAsked + ` AND decision IS NULL LIMIT 1`
	decidedOfAsked = intentOfAsked + ` AND decision IS NOT NULL LIMIT 1`

	// lockOfIntent selects the lock that was taken with the intent asked.
	lockOfIntent = `SELECT ctid AS tid, waiting FROM locks
WHERE project = asked.project AND ref = asked.ref AND owner IS NOT DISTINCT FROM asked.owner AND token = asked.token AND ` + isIntent + ` LIMIT 1`
)

// intentArray is a list of distinct intents in the order of their keys. The index of an intent is
// its first position in the caller's list.
type intentArray []indexedIntent

type indexedIntent struct {
	driver.LockID
	index int
}

func (i indexedIntent) compare(other indexedIntent) int {
	return cmp.Or(strings.Compare(i.Project, other.Project), strings.Compare(i.Ref, other.Ref),
		cmp.Compare(i.Token, other.Token), strings.Compare(i.Owner, other.Owner))
}

func sortIntents(intents []driver.LockID) intentArray {
	all := make(intentArray, len(intents))
	for n, i := range intents {
		all[n] = indexedIntent{i, n}
	}
	slices.SortStableFunc(all, indexedIntent.compare)
	return slices.CompactFunc(all, func(a, b indexedIntent) bool { return a.compare(b) == 0 })
}

// args returns the arrays $1 to $4.
func (a intentArray) args() []any {
	projects, refs, owners, tokens := make([]string, len(a)), make([]string, len(a)), make([]string, len(a)), make([]time.Time, len(a))
	for n, i := range a {
		projects[n], refs[n], owners[n], tokens[n] = i.Project, i.Ref, i.Owner, i.Token.Time()
	}
	return []any{projects, refs, owners, tokens}
}

// Intents reads one page. It starts at the index entry after the last row of the page before.
func (d *Driver) Intents(ctx context.Context, q driver.IntentQuery) (page driver.IntentPage, err error) {
	sql, args := intentsQuery(q)
	err = d.pools.Do(ctx, roundtrip.Read("list intents").Query(sql, func(rows pgx.Rows) (err error) {
		page.Intents, err = pgx.CollectRows(rows, readIntent)
		return err
	}, args...))
	if n := len(page.Intents); err == nil && n > 0 && n == q.Limit {
		last := page.Intents[n-1]
		page.Next = driver.IntentCursor{Project: last.Project, Ref: last.Ref, Token: last.Token}
	}
	return page, err
}

func readIntent(row pgx.CollectableRow) (driver.Intent, error) {
	var (
		i                 driver.Intent
		token, now        time.Time
		decision          *driver.Decision
		decidedBy, reason *string
		asked             *string
		decidedAt         *time.Time
	)
	if err := row.Scan(&i.Project, &i.Ref, &token, &i.Owner, &i.Agent, &i.Old, &i.New, &i.Time, &now,
		&decision, &decidedBy, &reason, &decidedAt, &asked); err != nil {
		return i, err
	}
	i.Token, i.Time, i.Age = driver.TokenOf(token), i.Time.UTC(), now.Sub(i.Time)
	if decision != nil {
		i.Decision = *decision
	}
	if decidedBy != nil {
		i.DecidedBy = *decidedBy
	}
	if asked != nil {
		o := operation.Parse(*asked)
		i.By, i.Op = o.By, o.ID
	}
	if reason != nil {
		i.Reason = *reason
	}
	if decidedAt != nil {
		i.DecidedAt = decidedAt.UTC()
	}
	return i, nil
}

func intentsQuery(q driver.IntentQuery) (string, []any) {
	var f filter
	if q.Decided {
		f.and(`decision IS NOT NULL`)
	} else {
		f.and(`decision IS NULL`)
	}
	if q.Project != "" {
		f.and(`project = $%d`, q.Project)
	}
	if q.After != (driver.IntentCursor{}) {
		f.and(`(project, ref, token) > ($%d, $%d, $%d)`, q.After.Project, q.After.Ref, q.After.Token.Time())
	}
	if q.Ref != "" {
		f.and(`ref = $%d`, q.Ref)
	}
	if q.Owner != "" {
		f.and(`(owner = $%d OR starts_with(owner, $%d))`, q.Owner, q.Owner+"/")
	}
	return f.page(`
SELECT project, ref, token, owner, agent, old_value, new_value, time, now, decision, decided_by, reason, decided_at, nonce
FROM intents CROSS JOIN (SELECT clock_timestamp() AS now OFFSET 0) AS clock`, `project, ref, token`, q.Limit)
}
