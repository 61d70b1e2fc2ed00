package spanner

import (
	"context"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/operation"
)

// Intents implements driver.IntentStore.
func (d *Driver) Intents(ctx context.Context, q driver.IntentQuery) (driver.IntentPage, error) {
	intents, last, err := page(ctx, d, request{tag: "refdb.intents", what: "list intents"}, intentsStatement(q), q.Limit, readIntent)
	return driver.IntentPage{Intents: intents, Next: driver.IntentCursor{Project: last.Project, Ref: last.Ref, Token: last.Token}}, err
}

const intentsSQL = `
SELECT i.project, i.ref, i.token, i.owner, i.agent, i.old_value, i.new_value, i.time,
       TIMESTAMP_DIFF(CURRENT_TIMESTAMP(), i.time, MICROSECOND),
       i.decision, i.decided_by, i.reason, i.decided_at, i.nonce
FROM intents AS i WHERE `

func intentsStatement(q driver.IntentQuery) spanner.Statement {
	s := spanner.Statement{SQL: intentsSQL, Params: make(map[string]any)}
	if q.Decided {
		s.SQL += `i.decision IS NOT NULL`
	} else {
		s.SQL += `i.decision IS NULL`
	}
	if q.After != (driver.IntentCursor{}) {
		// The second part implies the first, which bounds the range to read.
		and(&s, `i.project >= @after_project`, "after_project", q.After.Project)
		and(&s, `(i.project > @after_project OR i.ref > @after_ref OR i.ref = @after_ref AND i.token > @after_token)`, "after_ref", q.After.Ref)
		s.Params["after_token"] = q.After.Token.Time()
	}
	andFilter(&s, q.Project, q.Ref, q.Owner)
	s.SQL += ` ORDER BY i.project, i.ref, i.token`
	return s
}

func readIntent(r *spanner.Row) (driver.Intent, error) {
	var (
		i                    driver.Intent
		token                time.Time
		before, after        string
		age                  int64
		decision, by, reason spanner.NullString
		asked                spanner.NullString
		decidedAt            spanner.NullTime
	)
	err := r.Columns(&i.Project, &i.Ref, &token, &i.Owner, &i.Agent, &before, &after, &i.Time, &age,
		&decision, &by, &reason, &decidedAt, &asked)
	if err != nil {
		return i, err
	}
	i.Token, i.Time, i.Age = driver.TokenOf(token), i.Time.UTC(), micros(age)
	o := operation.Parse(asked.StringVal)
	i.By, i.Op = o.By, o.ID
	i.Old, i.New = driver.Value(before), driver.Value(after)
	i.Decision, i.DecidedBy, i.Reason = driver.Decision(decision.StringVal), by.StringVal, reason.StringVal
	if decidedAt.Valid {
		i.DecidedAt = decidedAt.Time.UTC()
	}
	return i, nil
}
