package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// The verdict and all that follows from it. Nothing in here waits. Besides the
// row with the verdict it returns the details of an unfavourable one, or the
// queues of the locks it deleted.
//
//	$1 project   $2 refs    $3 olds, NULL if absent   $4 news   $5 operation   $6 whether to adopt
//	$7 refs whose locks are in the way   $8 whether those of the fence end
//	$9 fence     $10 its owner   $11 its token   $12 whether the locks that end are locked, so that no beat comes in between
//	$13 whether of the locks only those that stand for an intent are in the way  $14 who is next, or ''
var updateSQL = fenceOfUpdate + decideUpdate + endFence("$14::text") + answerUpdate

const (
	fenceOfUpdate = `
WITH fence AS MATERIALIZED (
  SELECT asked.ref, CASE WHEN owner = $10 AND coalesce(token, 'epoch') = $11::timestamptz AND NOT (` + isIntent + `) THEN lock.tid END AS lock, waiting
  FROM unnest($9::text[]) AS asked (ref) LEFT JOIN LATERAL (` + lockOfAsked + `) AS lock ON true
)`
	decideUpdate = `, lost AS MATERIALIZED (
  SELECT ref FROM fence WHERE lock IS NULL
), clock AS MATERIALIZED (
  SELECT clock_timestamp() AS now
), standing AS MATERIALIZED (
  SELECT lock.*, ` + isStale + ` AS stale FROM clock, unnest($7::text[]) AS asked (ref), LATERAL (` + lockOfAsked + `) AS lock
  WHERE NOT $13::boolean OR ` + isIntent + `
), found AS MATERIALIZED (
  SELECT asked.*, tid, value FROM unnest($2::text[], $3::text[], $4::text[]) AS asked (ref, old, new)
  LEFT JOIN LATERAL (` + refOfAsked + `) AS refs ON true
), differing AS MATERIALIZED (
  SELECT ref, value FROM found
  WHERE CASE
    WHEN tid IS NULL THEN old IS NOT NULL AND NOT $6::boolean
    WHEN value IN ` + absent + ` THEN old IS NOT NULL
    ELSE value IS DISTINCT FROM old
  END
), verdict AS MATERIALIZED (
  SELECT CASE
    WHEN EXISTS (SELECT FROM lost) THEN 'lost'
    WHEN EXISTS (SELECT FROM standing WHERE NOT stale) THEN 'locked'
    WHEN NOT $12::boolean AND EXISTS (SELECT FROM standing) THEN 'stale'
    WHEN EXISTS (SELECT FROM differing) THEN 'differs'
    ELSE 'done'
  END AS verdict
), created AS (
  INSERT INTO refs (project, ref, value, time, op)
  SELECT $1, ref, new, now, $5 FROM found, verdict, clock WHERE verdict = 'done' AND tid IS NULL
), changed AS (
  UPDATE refs SET value = new, time = now, op = $5 FROM found, verdict, clock WHERE verdict = 'done' AND refs.ctid = tid
), cleared AS (
  DELETE FROM locks USING verdict WHERE verdict = 'done' AND ctid = ANY (ARRAY(SELECT tid FROM standing))
  RETURNING ref, waiting[1:1] AS told
)`
	answerUpdate = `
SELECT verdict, NULL AS ref, NULL AS value, NULL AS owner, NULL::timestamptz AS token, NULL::timestamptz AS heartbeat,
       NULL::bigint AS stale_after, now, NULL::text[] AS told
FROM verdict, clock
UNION ALL
SELECT verdict, ref, NULL, NULL, NULL, NULL, NULL, now, NULL FROM lost, verdict, clock WHERE verdict = 'lost'
UNION ALL
SELECT verdict, ref, NULL, owner, token, heartbeat, stale_after, now, NULL FROM standing, verdict, clock WHERE verdict = 'locked'
UNION ALL
SELECT verdict, ref, value, NULL, NULL, NULL, NULL, now, NULL FROM differing, verdict, clock WHERE verdict = 'differs'
UNION ALL
SELECT verdict, ref, NULL, NULL, NULL, NULL, NULL, now, told FROM (SELECT ref, told FROM cleared UNION ALL SELECT ref, told FROM handed) AS ended, verdict, clock
WHERE told IS NOT NULL`
)

// endFence ends the locks of the fence, if they are to end.
func endFence(next string) string {
	return `, ends AS MATERIALIZED (
  SELECT lock AS tid, ` + placesOf("waiting", "''") + ` AS waiting, ` + next + ` AS next FROM fence, verdict WHERE verdict = 'done' AND $8::boolean
), ` + handOn
}

// Update decides and writes in one round trip, and in one more if stale locks are
// in the way. That of a single ref is made in a batch, unless its fence is on
// other refs or stays: such updates are rare.
func (d *Driver) Update(ctx context.Context, r refdb.UpdateRequest) error {
	c := newChange(r)
	o := outcome{project: r.Project}
	if len(c.keyed) == 1 && len(c.refs) == 1 && (r.Fence == nil || c.release) {
		u := updateCall{request: r, change: c}
		if err := d.batcher.do(ctx, &u); err != nil {
			return err
		}
		switch o = u.answer; o.verdict {
		case "done":
			return nil
		case "lost", "locked", "differs":
			return o.err(r.Updates)
		}
	}
	// The rows of the locks that end are locked only if there are any for sure.
	for careful := c.release || o.verdict == "stale"; o.verdict == "" || o.verdict == "stale"; careful = true {
		t := roundTrip{what: "update refs", writes: true}.lockRefs(r.Project, c.keyed)
		if careful && len(c.doomed) > 0 {
			t = t.lockRows(r.Project, c.doomed)
		}
		if len(c.fence) > 0 && !c.release {
			t = t.lockFence(r.Project, c.fence)
		}
		err := d.do(ctx, t.then(updateSQL, o.read,
			r.Project, c.refs, c.olds, c.news, r.ID, r.Adopt, c.inTheWay, c.release, c.fence, c.owner, c.token.Time(), careful, !c.heeds, c.next))
		if err != nil {
			return err
		}
	}
	d.tellAll(&o)
	return o.err(r.Updates)
}

// tellAll tells those who wait for the locks that ended with an update.
func (d *Driver) tellAll(o *outcome) {
	for ref, told := range o.told {
		d.tell(o.project, ref, told)
	}
}

// A change is an UpdateRequest as arrays.
type change struct {
	refs, news []string
	olds       []*string // nil if absent
	fence      []string
	owner      string
	token      refdb.Token
	release    bool
	next       string   // who is, as a place, or ""
	inTheWay   []string // refs whose locks are, unless they are stale
	heeds      bool     // those of other than intents, too
	doomed     []string // refs whose locks are deleted with the update
	keyed      []string // all refs that it touches
}

func newChange(r refdb.UpdateRequest) change {
	c := change{fence: []string{}, inTheWay: []string{}, doomed: []string{}, heeds: r.Locks == refdb.MandatoryLocks}
	c.refs, c.olds, c.news = columnsOf(r.Updates)
	if f := r.Fence; f != nil {
		c.fence, c.owner, c.token, c.release, c.next = f.Refs, f.Owner, f.Token, f.Release, nextText(f.Next, f.Owner)
	}
	c.keyed = slices.Clone(c.fence)
	for _, ref := range c.refs {
		if _, ours := slices.BinarySearch(c.fence, ref); !ours {
			c.keyed = append(c.keyed, ref)
			c.inTheWay = append(c.inTheWay, ref)
		}
	}
	if c.heeds {
		c.doomed = c.inTheWay
	}
	if c.release {
		c.doomed = slices.Concat(c.fence, c.doomed)
		slices.Sort(c.doomed)
	}
	return c
}

// outcome is what the last statement of an Update or a Finish says.
type outcome struct {
	project string
	verdict string // "" while there is none
	lost    []string
	holders []refdb.LockInfo
	have    map[string]refdb.Value
	told    map[string][]string // places to be told of locks that ended
}

func (o *outcome) read(rows pgx.Rows) error {
	*o = outcome{project: o.project}
	for rows.Next() {
		if raw := rows.RawValues(); string(raw[0]) == "done" && raw[len(raw)-1] == nil {
			o.verdict = "done" // and nobody waits: that is all, mostly
			continue
		}
		var (
			verdict    string
			ref, value *string
			lock       lockColumns
			now        time.Time
			told       []string
		)
		if err := rows.Scan(&verdict, &ref, &value, &lock.owner, &lock.token, &lock.heartbeat, &lock.staleAfter, &now, &told); err != nil {
			return err
		}
		o.verdict = verdict
		if ref != nil {
			o.add(*ref, value, lock, now, told)
		}
	}
	return rows.Err()
}

// add notes what is said about one ref.
func (o *outcome) add(ref string, value *string, lock lockColumns, now time.Time, told []string) {
	switch o.verdict {
	case "lost":
		o.lost = append(o.lost, ref)
	case "locked":
		o.holders = append(o.holders, lock.info(o.project, ref, now))
	case "differs":
		if o.have == nil {
			o.have = make(map[string]refdb.Value)
		}
		o.have[ref] = refdb.Unknown
		if value != nil {
			o.have[ref] = refdb.Value(*value)
		}
	default:
		if len(told) > 0 {
			if o.told == nil {
				o.told = make(map[string][]string)
			}
			o.told[ref] = told
		}
	}
}

// err is the error that says why the updates were refused; nil if they were not.
func (o *outcome) err(updates []refdb.Update) error {
	switch o.verdict {
	case "lost":
		slices.Sort(o.lost)
		return &refdb.LostError{Project: o.project, Refs: o.lost, Reason: "the database has it gone, or another's"}
	case "locked":
		byRef(o.holders)
		return &refdb.LockedError{Holders: o.holders}
	case "differs":
		e := &refdb.MismatchError{Project: o.project}
		for _, u := range updates {
			if have, ok := o.have[u.Ref]; ok {
				e.Mismatches = append(e.Mismatches, refdb.Mismatch{Ref: u.Ref, Want: u.Old, Have: have})
			}
		}
		return e
	}
	return nil
}
