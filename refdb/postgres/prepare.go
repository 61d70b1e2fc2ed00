package postgres

import (
	"context"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// prepareSQL takes the locks if the refs hold what is expected, and records the
// intents. Rows with our nonce are ours only if all are, and all of their intents
// are pending still; else somebody has ended some of them.
//
//	$1 to $5 as in acquireSQL  $6 olds, NULL if absent  $7 news  $8 agent
var prepareSQL = `
WITH found AS MATERIALIZED (
  SELECT ` + foundColumns + `, coalesce(nonce = $4 AND owner = $3 AND (
    SELECT decision IS NULL FROM intents WHERE project = $1 AND ref = asked.ref AND token = lock.token
  ), false) AS mine
  FROM unnest($2::text[], $6::text[], $7::text[]) AS asked (ref, old, new) ` + joinFound + `
), verdict AS MATERIALIZED (
  SELECT adopted, adopted OR fresh = 0 AND differing = 0 AND NOT ` + isRevoked + ` AS free, latest
  FROM (
    SELECT count(*) FILTER (WHERE mine) = cardinality($2::text[]) AS adopted,
           count(*) FILTER (WHERE fresh) AS fresh,
           count(*) FILTER (WHERE CASE WHEN value IS NULL OR value IN ` + absent + ` THEN old IS NOT NULL ELSE value IS DISTINCT FROM old END) AS differing,
           max(token) AS latest
    FROM found
  ) AS counted
), queues AS (
  SELECT ref, now, CASE WHEN waiting IS NOT NULL THEN nullif(ARRAY(
    SELECT ` + passedOnce("p") + ` FROM unnest(waiting) WITH ORDINALITY AS places (p, n) WHERE ` + isPlace("p") + ` ORDER BY n
  ), '{}') END AS merged
  FROM found
), ` + grantSQL + `, recorded AS (
  INSERT INTO intents (project, ref, token, owner, agent, old_value, new_value, time)
  SELECT $1, ref, granted.token, $3, $8, coalesce(old, ''), new, now FROM granted, found
)
SELECT ` + answerColumns + `, owner, found.token, heartbeat, stale_after, adopted, fresh, ` + isReserved + `, NULL::bigint, NULL::int, NULL::int, NULL::text[], NULL::text[]
FROM found CROSS JOIN verdict LEFT JOIN granted ON true`

// Prepare takes the locks and records the intents in one round trip. It is for
// callers that try again by themselves: it queues nobody, and leaves the queues
// of the locks that it takes over to those who wait.
func (d *Driver) Prepare(ctx context.Context, r refdb.PrepareRequest) (refdb.Prepared, error) {
	refs, olds, news := columnsOf(r.Updates)
	request := refdb.AcquireRequest{Project: r.Project, Refs: refs, Owner: r.Owner, Nonce: r.Nonce, StaleAfter: refdb.NeverStale}
	a := acquisition{project: r.Project}
	err := d.grant(ctx, "record intents", request, &a, prepareSQL, olds, news, r.Agent)
	if err == nil && !a.free && !a.refused() {
		return refdb.Prepared{}, a.mismatch(r.Updates)
	}
	got, err := d.acquired(a, err)
	return refdb.Prepared{Token: got.Token, Reclaimed: got.Reclaimed}, err
}

// columnsOf returns updates as arrays.
func columnsOf(updates []refdb.Update) (refs []string, olds []*string, news []string) { // old is nil if absent
	refs, olds, news = make([]string, len(updates)), make([]*string, len(updates)), make([]string, len(updates))
	for i := range updates {
		u := &updates[i]
		refs[i], news[i] = u.Ref, string(u.New)
		if !u.Old.IsAbsent() {
			olds[i] = (*string)(&u.Old)
		}
	}
	return refs, olds, news
}

// mismatch says which refs do not hold what was expected, or that this is not why.
func (a *acquisition) mismatch(updates []refdb.Update) error {
	have := make(map[string]refdb.Value, len(a.refs))
	for _, r := range a.refs {
		have[r.Name] = r.Value
	}
	e := &refdb.MismatchError{Project: a.project}
	for _, u := range updates {
		if v := have[u.Ref]; v != u.Old && !(v.IsAbsent() && u.Old.IsAbsent()) {
			e.Mismatches = append(e.Mismatches, refdb.Mismatch{Ref: u.Ref, Want: u.Old, Have: v})
		}
	}
	if len(e.Mismatches) == 0 {
		return refdb.ErrReleased // it was revoked
	}
	return e
}
