package postgres

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/operation"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

// prepareSQL takes the locks if the refs have their expected values, and records the intents. Rows
// with the request's nonce count as its own only if all rows have the nonce and all of their
// intents are still pending; otherwise some of the intents have been ended.
//
//	$1 to $5 as in acquireSQL  $6 olds, NULL if absent  $7 news  $8 agent  $9 operation
var prepareSQL = prepareWith(preparePart{}, preparePart{})

// prepareWithPacksSQL also marks packs as used. It locks their rows first, in the order of their
// IDs, and uses only rows that it has locked, so packs deleted while it waited are excluded.
// Nothing else in it needs to be newer than its snapshot, which is from after the keys were locked.
//
//	$10 packs
var prepareWithPacksSQL = prepareWith(packsPart, preparePart{})

// These statements also check the names of created refs: see around.
//
//	the last two: created refs, and the names above them
var (
	prepareCreationSQL          = prepareWith(preparePart{}, namesPart(10))
	prepareCreationWithPacksSQL = prepareWith(packsPart, namesPart(11))
)

// A preparePart is an addition to the statement of a preparation, for packs or for names.
type preparePart struct {
	read      string // common table expressions that read
	condition string // of the verdict
	write     string // a common table expression that writes
	column    string // of the answer
	rows      string // of the answer, without that column
}

var packsPart = preparePart{
	read: `usable AS MATERIALIZED (
  SELECT coalesce(array_agg(id), '{}') AS ids
  FROM (SELECT id FROM packs WHERE id = ANY ($10::text[]) AND project = $1 AND parts > 0 ORDER BY id FOR NO KEY UPDATE) AS locked
), unheld AS MATERIALIZED (
  SELECT string_to_array(coalesce(current_setting('` + unheldSetting + `', true), ''), E'\n') AS bases
), `,
	condition: ` AND (SELECT $10 <@ ids FROM usable) AND (SELECT bases = '{}' FROM unheld)`,
	write: `, marked AS (
  UPDATE packs SET position = pg_current_xact_id()::text::bigint FROM granted, usable WHERE id = ANY (ids) AND position IS NULL
)`,
	column: `, ARRAY(SELECT unnest($10) EXCEPT SELECT unnest(ids) FROM usable) || (SELECT bases FROM unheld)`,
}

// namesPart returns the part for the names of created refs, whose arguments are numbered from
// first. Its rows are those of the refs that exclude a created one; without it, the answer has no
// rows of refs that the request does not name.
func namesPart(first int) preparePart {
	return preparePart{
		read:      around(first, first+1) + `, `,
		condition: ` AND NOT EXISTS (SELECT FROM around)`,
		rows: `
UNION ALL
SELECT around.ref, free, adopted, NULL, now, holds, NULL, NULL, NULL, owner, around.token, heartbeat, stale_after, false, true, false, NULL, NULL, NULL, NULL`,
	}
}

const (
	// compareBasesSQL records, for the rest of the transaction, which bases the refs don't hold. It
	// runs before any statement assigns the transaction its ID, which becomes the packs' position,
	// so the packs come after the changes that they build on. The refs may move right afterwards:
	// it is enough that they held the bases.
	//
	//	$1 project  $2 refs  $3 values
	compareBasesSQL = `
SELECT set_config('` + unheldSetting + `', coalesce((
  SELECT string_agg('` + rules.BaseMoved + `' || asked.ref, E'\n')
  FROM unnest($2::text[], $3::text[]) AS asked (ref, base) LEFT JOIN LATERAL (` + refOfAsked + `) AS refs ON true
  WHERE value IS DISTINCT FROM base
), ''), true)`

	unheldSetting = "refdb.unheld"
)

// frozenOfProject is a common table expression: the line of the project's freeze, if it is frozen.
// Its readers are subselects that the server evaluates once, not for each ref. Its snapshot is from
// after the project's key was locked, and PutProject locks that key to freeze the project.
const frozenOfProject = `frozen AS MATERIALIZED (
  SELECT split_part(rules, E'\n', 1) AS line FROM projects WHERE project = $1 AND ` + isFrozen + `
)`

// isFrozen is true for a row of projects that is frozen: see driver.CutFreeze.
const isFrozen = `split_part(split_part(rules, E'\n', 1), ' ', 1) = 'frozen'`

// prepareWith returns the statement with the parts for packs and names.
func prepareWith(packs, names preparePart) string {
	return `
WITH ` + frozenOfProject + `, ` + packs.read + names.read + `found AS MATERIALIZED (
  SELECT ` + foundColumns + `, coalesce(nonce = $4 AND owner = $3 AND (
    SELECT decision IS NULL FROM intents WHERE project = $1 AND ref = asked.ref AND token = lock.token
  ), false) AS mine
  FROM unnest($2::text[], $6::text[], $7::text[]) AS asked (ref, old, new) ` + joinFound + `
), verdict AS MATERIALIZED (
  SELECT adopted, adopted OR fresh = 0 AND differing = 0 AND NOT EXISTS (SELECT FROM frozen) AND NOT ` + isRevoked + packs.condition + names.condition + ` AS free, latest
  FROM (
    SELECT count(*) FILTER (WHERE mine) = cardinality($2::text[]) AS adopted,
           count(*) FILTER (WHERE fresh) AS fresh,
           count(*) FILTER (WHERE ` + differs("false") + `) AS differing,
           max(token) AS latest
    FROM found
  ) AS counted
), queues AS (
  SELECT ref, now, CASE WHEN waiting IS NOT NULL THEN nullif(ARRAY(
    SELECT ` + passedOnce("p") + ` FROM unnest(waiting) WITH ORDINALITY AS places (p, n) WHERE ` + isPlace("p") + ` ORDER BY n
  ), '{}') END AS merged
  FROM found
), ` + grantSQL + `, recorded AS (
  INSERT INTO intents (project, ref, token, owner, agent, old_value, new_value, time, nonce)
  SELECT $1, ref, granted.token, $3, $8, coalesce(old, ''), new, now, $9 FROM granted, found
)` + packs.write + `
SELECT ` + answerColumns + `, owner, found.token, heartbeat, stale_after, adopted, fresh, ` + isReserved + `, NULL::bigint, NULL::int, NULL::int, NULL::text[]` + packs.column + `
FROM found CROSS JOIN verdict LEFT JOIN granted ON true` + frozenRow.rowsBeside(packs, "frozen") + names.rowsBeside(packs, "around")
}

// frozenRow is a row of the answer for no ref, with the line of the freeze as its value.
var frozenRow = preparePart{rows: `
UNION ALL
SELECT '', free, adopted, NULL, now, false, line, NULL, NULL, NULL, NULL, NULL, NULL, false, false, false, NULL, NULL, NULL, NULL`}

// rowsBeside returns the rows that part adds to the answer from a table, with an extra column if
// packs adds one.
func (part preparePart) rowsBeside(packs preparePart, table string) string {
	if part.rows == "" {
		return ""
	}
	column := ""
	if packs.column != "" {
		column = `, NULL`
	}
	return part.rows + column + `
FROM ` + table + `, verdict, (SELECT now FROM found LIMIT 1) AS clock WHERE NOT adopted`
}

// Prepare takes the locks and records the intents in one round trip. Its callers retry by
// themselves, so it enqueues no waiter. It keeps the queues of the locks that it takes over.
func (d *Driver) Prepare(ctx context.Context, r driver.PrepareRequest) (driver.Prepared, error) {
	refs, olds, news := columnsOf(r.Updates)
	request := driver.AcquireRequest{Project: r.Project, Refs: refs, Owner: r.Owner, Nonce: r.Nonce, StaleAfter: driver.NeverStale}
	const what = "record intents"
	var missing []string
	created := rules.Created(r.Updates)
	a := acquisition{project: r.Project, above: rules.Above(created)}
	sql, args := prepareSQL, []any{olds, news, r.Agent, operation.OfIntent(r)}
	if len(created) > 0 {
		sql = prepareCreationSQL
	}
	if len(r.Packs) > 0 {
		sql = prepareWithPacksSQL
		if len(created) > 0 {
			sql = prepareCreationWithPacksSQL
		}
		args = append(args, r.Packs)
		a.more = []any{&missing}
		if len(r.RequiredValues) > 0 {
			bases := make([]string, len(r.RequiredValues))
			for i, b := range r.RequiredValues {
				bases[i] = string(b.Value)
			}
			a.first = append(a.first, roundtrip.Exec(compareBasesSQL, r.Project, rules.RequiredRefs(r.RequiredValues), bases))
		}
		for _, p := range r.Parts {
			a.before = append(a.before, storing(p, nil)...)
		}
	}
	if len(created) > 0 {
		args = append(args, created, a.above)
	}
	err := d.grant(ctx, what, request, &a, sql, args...)
	if err == nil && !a.free && a.frozen != "" {
		return driver.Prepared{}, rules.RefuseFrozen(r.Project, a.frozen)
	}
	if err == nil && !a.free && !a.refused() {
		return driver.Prepared{}, a.mismatch(r.Updates, created, missing)
	}
	got, err := d.acquired(a, err)
	return driver.Prepared{Token: got.Token, Time: a.now, Reclaimed: got.Reclaimed}, err
}

// columnsOf returns updates as arrays. An old value is nil if absent.
func columnsOf(updates []driver.Update) (refs []string, olds []*string, news []string) {
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

// mismatch returns the error of a preparation that no lock refused. The error names the refs that
// don't hold the expected values; if all do, the created refs that other refs exclude; if there are
// none, the missing packs; and if there are none, it says that the preparation was revoked.
func (a *acquisition) mismatch(updates []driver.Update, created, missing []string) error {
	have := make(map[string]driver.Value, len(a.refs))
	for _, r := range a.refs {
		have[r.Name] = r.Value
	}
	e := &driver.MismatchError{Project: a.project}
	for _, u := range updates {
		if v := have[u.Ref]; !v.Equivalent(u.Old) {
			e.Mismatches = append(e.Mismatches, driver.Mismatch{Ref: u.Ref, Want: u.Old, Have: v})
		}
	}
	if len(e.Mismatches) > 0 {
		return e
	}
	for _, u := range updates {
		delete(have, u.Ref)
	}
	if len(have) > 0 {
		return conflicts(a.project, created, slices.Collect(maps.Keys(have)))
	}
	return cmp.Or(rules.MissingPacks(missing), driver.ErrReleased)
}

// revokeSQL undoes a preparation and leaves a record. The preparation reads the record, under the
// same keys, before it does anything.
//
//	$1 project  $2 refs  $3 owner  $4 nonce  $5 agent  $6 old and $7 new value of the first ref
var revokeSQL = `
WITH taken AS MATERIALIZED (
  SELECT project, asked.ref, owner, token, tid, waiting FROM unnest($2::text[]) AS asked (ref), LATERAL (` + lockOfAsked + `) AS lock
  WHERE nonce = $4 AND owner = $3
), ended AS (
  DELETE FROM intents WHERE ctid = ANY (ARRAY(SELECT intent.tid FROM taken AS asked, LATERAL (` + pendingOfAsked + `) AS intent))
), ends AS MATERIALIZED (
  SELECT tid, ` + placesOf("waiting", "''") + ` AS waiting, '' AS next FROM taken
), ` + handOver + `, recorded AS (
  INSERT INTO intents (project, ref, token, owner, agent, old_value, new_value, time, decision, decided_by, decided_at, nonce)
  SELECT $1, ($2::text[])[1], now, $3, $5, $6, $7, now, '` + string(driver.Revoked) + `', $3, now, $4
  FROM (SELECT clock_timestamp() AS now OFFSET 0) AS clock
)
SELECT ref, told FROM handed`

const isRevoked = `EXISTS (SELECT FROM intents WHERE project = $1 AND ref = ($2::text[])[1] AND nonce = $4 AND decision = '` + string(driver.Revoked) + `')`

// Revoke and the preparation take the same keys, so one comes before the other.
func (d *Driver) Revoke(ctx context.Context, r driver.PrepareRequest) error {
	refs, _, _ := columnsOf(r.Updates)
	first := r.Updates[0]
	o := outcome{project: r.Project}
	err := d.pools.Do(ctx, roundtrip.Write("revoke intents").
		Then(lockRefs(r.Project, refs), lockRows(r.Project, refs)).
		Query(revokeSQL, func(rows pgx.Rows) (err error) {
			o.toNotify, err = readToNotify(rows)
			return err
		}, r.Project, refs, r.Owner, r.Nonce, r.Agent, string(first.Old), string(first.New)))
	if err == nil {
		d.notifyAll(&o)
	}
	return err
}
