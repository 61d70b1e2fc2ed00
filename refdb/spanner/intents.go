package spanner

import (
	"context"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Intents reads a page of intents.
func (d *Driver) Intents(ctx context.Context, q refdb.IntentQuery) ([]refdb.Intent, error) {
	var page []refdb.Intent
	err := d.query(ctx, request{tag: "refdb.intents", what: "list intents"}, intentsStatement(q), func(r *spanner.Row) error {
		i, err := readIntent(r)
		page = append(page, i)
		return err
	})
	if err != nil {
		return nil, err
	}
	return page, nil
}

const intentsSQL = `
SELECT i.project, i.ref, i.token, i.owner, i.agent, i.old_value, i.new_value, i.time,
       TIMESTAMP_DIFF(CURRENT_TIMESTAMP(), i.time, MICROSECOND),
       i.decision, i.decided_by, i.reason, i.decided_at
FROM intents AS i WHERE `

func intentsStatement(q refdb.IntentQuery) spanner.Statement {
	s := spanner.Statement{SQL: intentsSQL, Params: map[string]any{"limit": int64(q.Limit)}}
	if q.Decided {
		s.SQL += `i.decision IS NOT NULL`
	} else {
		s.SQL += `i.decision IS NULL`
	}
	and := func(condition, name string, value any) {
		s.SQL += ` AND ` + condition
		s.Params[name] = value
	}
	if q.AfterProject != "" || q.AfterRef != "" {
		// The first part is implied by the second, and bounds the range to read.
		and(`i.project >= @after_project`, "after_project", q.AfterProject)
		and(`(i.project > @after_project OR i.ref > @after_ref OR i.ref = @after_ref AND i.token > @after_token)`, "after_ref", q.AfterRef)
		s.Params["after_token"] = q.AfterToken.Time()
	}
	if q.Project != "" {
		and(`i.project = @project`, "project", q.Project)
	}
	if q.Ref != "" {
		and(`i.ref = @ref`, "ref", q.Ref)
	}
	if q.Owner != "" {
		and(`(i.owner = @owner OR STARTS_WITH(i.owner, CONCAT(@owner, '/')))`, "owner", q.Owner)
	}
	s.SQL += ` ORDER BY i.project, i.ref, i.token LIMIT @limit`
	return s
}

func readIntent(r *spanner.Row) (refdb.Intent, error) {
	var (
		i                    refdb.Intent
		token                time.Time
		before, after        string
		age                  int64
		decision, by, reason spanner.NullString
		decidedAt            spanner.NullTime
	)
	err := r.Columns(&i.Project, &i.Ref, &token, &i.Owner, &i.Agent, &before, &after, &i.Time, &age,
		&decision, &by, &reason, &decidedAt)
	if err != nil {
		return i, err
	}
	i.Token, i.Time, i.Age = refdb.TokenOf(token), i.Time.UTC(), micros(age)
	i.Old, i.New = refdb.Value(before), refdb.Value(after)
	i.Decision, i.DecidedBy, i.Reason = refdb.Decision(decision.StringVal), by.StringVal, reason.StringVal
	if decidedAt.Valid {
		i.DecidedAt = decidedAt.Time.UTC()
	}
	return i, nil
}
