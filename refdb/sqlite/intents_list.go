package sqlite

import (
	"context"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/operation"
)

const intentColumns = `project, ref, token, owner, agent, old_value, new_value, time, decision, decided_by, reason, decided_at, nonce`

// Intents implements driver.IntentStore.
func (d *Driver) Intents(ctx context.Context, q driver.IntentQuery) (driver.IntentPage, error) {
	intents, last, err := page(ctx, d, "list intents", intentColumns+" FROM intents", intentsWhere(q), "project, ref, token", q.Limit, intentOf)
	return driver.IntentPage{Intents: intents, Next: driver.IntentCursor{Project: last.Project, Ref: last.Ref, Token: last.Token}}, err
}

func intentsWhere(q driver.IntentQuery) (w where) {
	if q.Decided {
		w.add("decision IS NOT NULL")
	} else {
		w.add("decision IS NULL")
	}
	w.filter(q.Project, q.Ref, q.Owner)
	if q.After != (driver.IntentCursor{}) {
		w.add("(project, ref, token) > (?, ?, ?)", q.After.Project, q.After.Ref, int64(q.After.Token))
	}
	return w
}

// intentOf reads intentColumns.
func intentOf(now int64, r row) driver.Intent {
	asked := operation.Parse(r.text(12))
	i := driver.Intent{
		Project:   r.text(0),
		Ref:       r.text(1),
		Token:     driver.Token(r.int(2)),
		Owner:     r.text(3),
		Agent:     r.text(4),
		By:        asked.By,
		Op:        asked.ID,
		Old:       driver.Value(r.text(5)),
		New:       driver.Value(r.text(6)),
		Time:      timeOf(r.int(7)),
		Age:       durationOf(now - r.int(7)),
		Decision:  driver.Decision(r.text(8)),
		DecidedBy: r.text(9),
		Reason:    r.text(10),
	}
	if !r.null(11) {
		i.DecidedAt = timeOf(r.int(11))
	}
	return i
}
