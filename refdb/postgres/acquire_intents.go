package postgres

import (
	"context"
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// acquireIntentsSQL takes the locks if the refs hold what is expected, and
// records the intents. Rows with our nonce are ours only if all are, and all of
// their intents are pending still; else somebody has ended some of them.
//
//	$1 to $7 as in acquireSQL, the queues being empty
//	$8 olds, NULL if absent  $9 news  $10 agent
const acquireIntentsSQL = `
WITH clock AS MATERIALIZED (
  SELECT clock_timestamp() AS now
), holders AS MATERIALIZED (
  SELECT token, ` + isStale + ` AS stale, coalesce(nonce = $4 AND owner = $3 AND (
    SELECT decision IS NULL FROM intents WHERE project = $1 AND ref = lock.ref AND token = lock.token
  ), false) AS mine
  FROM clock, unnest($2::text[]) AS asked (ref), LATERAL (` + lockOfAsked + `) AS lock
), differing AS MATERIALIZED (
  SELECT FROM unnest($2::text[], $8::text[]) AS asked (ref, old)
  LEFT JOIN LATERAL (` + refOfAsked + `) AS refs ON true
  WHERE CASE WHEN refs.ref IS NULL OR value IN ` + absent + ` THEN old IS NOT NULL ELSE value IS DISTINCT FROM old END
), verdict AS MATERIALIZED (
  SELECT adopted, adopted OR fresh = 0 AND NOT EXISTS (SELECT FROM differing) AND NOT ` + isRevoked + ` AS free, latest
  FROM (
    SELECT count(*) FILTER (WHERE mine) = cardinality($2::text[]) AS adopted,
           count(*) FILTER (WHERE NOT stale) AS fresh,
           max(token) AS latest
    FROM holders
  ) AS found
), ` + grantSQL + `, recorded AS (
  INSERT INTO intents (project, ref, token, owner, agent, old_value, new_value, time)
  SELECT $1, asked.ref, granted.token, $3, $10, coalesce(old, ''), new, now
  FROM granted, clock, unnest($2::text[], $8::text[], $9::text[]) AS asked (ref, old, new)
)
SELECT asked.ref, CASE WHEN free THEN true ELSE set_config('synchronous_commit', 'off', true) IS NULL END, adopted, granted.token, now,
       refs.ref IS NOT NULL, refs.value, refs.time, refs.op,
       owner, lock.token, heartbeat, stale_after, adopted
FROM unnest($2::text[]) AS asked (ref) CROSS JOIN clock CROSS JOIN verdict LEFT JOIN granted ON true
LEFT JOIN LATERAL (` + refOfAsked + `) AS refs ON true
LEFT JOIN LATERAL (` + lockOfAsked + `) AS lock ON true`

// acquireIntents takes the locks for intents in one round trip. It is for those
// who try again by themselves: it queues nobody, and leaves the queues that came
// with notifications to those who wait.
func (d *Driver) acquireIntents(ctx context.Context, r refdb.AcquireRequest) (refdb.Acquired, error) {
	olds, news := make([]*string, len(r.Refs)), make([]string, len(r.Refs))
	for i := range r.Intents {
		u := &r.Intents[i]
		news[i] = string(u.New)
		if !u.Old.IsAbsent() {
			olds[i] = (*string)(&u.Old)
		}
	}
	a := acquisition{project: r.Project}
	err := d.grant(ctx, "record intents", r, &a, acquireIntentsSQL, make([]string, len(r.Refs)), d.channel, olds, news, r.Agent)
	inTheWay := slices.ContainsFunc(a.holders, func(l refdb.LockInfo) bool { return !l.Stale() })
	if err == nil && !a.free && !inTheWay {
		return refdb.Acquired{}, a.mismatch(r.Intents)
	}
	return d.acquired(a, err)
}

// mismatch says which refs do not hold what was expected, or that this is not why.
func (a *acquisition) mismatch(intents []refdb.Update) error {
	have := make(map[string]refdb.Value, len(a.refs))
	for _, r := range a.refs {
		have[r.Name] = r.Value
	}
	e := &refdb.MismatchError{Project: a.project}
	for _, u := range intents {
		if v := have[u.Ref]; v != u.Old && !(v.IsAbsent() && u.Old.IsAbsent()) {
			e.Mismatches = append(e.Mismatches, refdb.Mismatch{Ref: u.Ref, Want: u.Old, Have: v})
		}
	}
	if len(e.Mismatches) == 0 {
		return refdb.ErrReleased // it was revoked
	}
	return e
}
