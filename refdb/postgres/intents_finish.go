package postgres

import (
	"context"
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/internal/operation"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

// finishSQL is an update whose fence is the locks of intents, which end with them.
var finishSQL = fenceOfIntents + decideUpdate(foundByKey) + endIntents + endFence("''") + answerUpdate

const (
	fenceOfIntents = `
WITH fence AS MATERIALIZED (
  SELECT asked.ref, lock.tid AS lock, waiting, intent.tid AS intent
  FROM (SELECT $1 AS project, ref, $10 AS owner, $11::timestamptz AS token FROM unnest($9::text[]) AS fence (ref)) AS asked
  LEFT JOIN LATERAL (` + lockOfIntent + `) AS lock ON true
  LEFT JOIN LATERAL (` + pendingOfAsked + `) AS intent ON true
)`
	endIntents = `, ended AS (
  DELETE FROM intents USING verdict WHERE verdict = 'done' AND ctid = ANY (ARRAY(SELECT intent FROM fence))
)`
)

// Finish ends the intents in one round trip.
func (d *Driver) Finish(ctx context.Context, r refdb.FinishRequest) error {
	refs, olds, news := columnsOf(r.Done)
	all := slices.Concat(refs, r.Dropped)
	slices.Sort(all)
	o := outcome{project: r.Project}
	const adopt, ends, rowsLocked, advisory = false, true, true, false
	err := d.pools.Do(ctx, roundtrip.Write("finish intents").
		Then(lockRefs(r.Project, all), lockRows(r.Project, all)).
		Query(finishSQL, o.read, r.Project, refs, olds, news, operation.Text(r.Origin), adopt, []string{}, ends, all, r.Owner, r.Token.Time(), rowsLocked, advisory))
	if err == nil {
		err = o.err(r.Done)
	}
	if err != nil {
		return err
	}
	d.tellAll(&o)
	return nil
}
