package postgres

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

// A trigger checks in each statement that writes, no matter which program sends it, that the server
// is the admitted one. The code in this file runs only after a server was replaced, and once a
// minute. It decides in Go, in transactions of several round trips, each of which may be repeated
// whatever its outcome.

// requireAdmissionSQL fails whenever a statement that writes would fail. A halt that commits
// between this statement and the next one might as well have committed after both.
const requireAdmissionSQL = `SELECT refdb_require()`

// requireNamedSQL is requireAdmissionSQL, but returns a row only if the table admission names a
// server. While a dump is being restored, the tables exist, but their rows and triggers may not
// yet, and refdb_require then takes the server for admitted.
const requireNamedSQL = requireAdmissionSQL + ` FROM admission WHERE id = 1`

// changeAdmission runs do in a transaction that has locked the row of admission, and passes that
// row.
func (d *Driver) changeAdmission(ctx context.Context, what string, do func(pgx.Tx, admission) error) error {
	return d.inTransaction(ctx, what, func(tx pgx.Tx) error {
		var a admission
		// The statements after this one see what earlier holders of the row lock have committed.
		err := tx.QueryRow(ctx, lockAdmissionSQL).Scan(&a.admitted, &a.server, &a.testimonies)
		if err != nil {
			return err
		}
		return do(tx, a)
	})
}

// lockAdmissionSQL also reports whether the schema has the columns for testimonies and the policy,
// which version 11 lacks.
const lockAdmissionSQL = `
SELECT server, refdb_server(), EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'witnesses'::regclass AND attname = 'word' AND NOT attisdropped)
FROM admission WHERE id = 1 FOR UPDATE`

// An admission holds the admitted server and the connected one.
type admission struct {
	admitted, server string
	testimonies      bool // the schema has columns for them
}

func (d *Driver) inTransaction(ctx context.Context, what string, do func(pgx.Tx) error) error {
	conn, err := d.pools.Acquire(ctx)
	if err != nil {
		return roundtrip.Failure(ctx, what, roundtrip.Connecting, err)
	}
	defer conn.Release()
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if err := d.pools.Settings().Begin(ctx, tx.Conn()); err != nil {
			return err
		}
		return do(tx)
	})
	if err == nil {
		return nil
	}
	return roundtrip.Failure(ctx, what, roundtrip.Executing, err)
}

// admissionSQL returns a row for each witness, or a single row without a witness, all from one
// snapshot. Columns that version 11 of the schema lacks are NULL. A word counts only until its site
// has reported, because programs of version 11 don't clear it.
const admissionSQL = `
SELECT a.server, refdb_server(), (SELECT count(*) FROM lost WHERE fate = ''),
  to_jsonb(a) ->> 'policy', (to_jsonb(a) ->> 'policy_since')::timestamptz,
  w.name, w.server, w.seen, w.away, w.without, w.since, CASE WHEN w.seen >= spoken.word THEN NULL ELSE spoken.word END
FROM admission AS a LEFT JOIN witnesses AS w ON true, LATERAL (SELECT (to_jsonb(w) ->> 'word')::timestamptz AS word) AS spoken
WHERE a.id = 1 ORDER BY w.name`

// Admission takes one round trip, because sites call it before they rely on values of the database.
func (d *Driver) Admission(ctx context.Context) (a driver.Admission, err error) {
	err = d.pools.Do(ctx, roundtrip.Read("read which server is admitted").Query(admissionSQL, func(rows pgx.Rows) (err error) {
		a, err = readAdmission(rows)
		return err
	}))
	return a, err
}

// readAdmission reads the rows of admissionSQL.
func readAdmission(rows pgx.Rows) (a driver.Admission, err error) {
	var admitted string
	var policy, name, server *string
	var seen, since, policySince, word *time.Time
	var away, without *bool
	into := []any{&admitted, &a.Server, &a.Lost, &policy, &policySince, &name, &server, &seen, &away, &without, &since, &word}
	tag, err := pgx.ForEachRow(rows, into, func() error {
		a.Admitted, a.Halted = admitted == a.Server, a.Lost > 0
		a.Policy = driver.PolicyMark{Policy: driver.Wait, Since: timeOf(policySince)}
		if policy != nil {
			a.Policy.Policy = driver.Policy(*policy)
		}
		if name == nil {
			return nil
		}
		a.Witnesses = append(a.Witnesses, driver.Witness{
			Name: *name, Server: *server, Seen: timeOf(seen), Away: *away, Without: *without, Since: timeOf(since), Word: timeOf(word),
		})
		return nil
	})
	if err == nil && tag.RowsAffected() == 0 {
		err = pgx.ErrNoRows
	}
	return a, err
}

// timeOf returns zero for NULL.
func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// nullTime returns NULL for zero.
func nullTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// admissionNow reads the admission within tx.
func admissionNow(ctx context.Context, tx pgx.Tx) (driver.Admission, error) {
	rows, err := tx.Query(ctx, admissionSQL)
	if err != nil {
		return driver.Admission{}, err
	}
	return readAdmission(rows)
}

// lookSQL returns the indices, from 1, of the missing changes, and the server. Most known changes
// are recent, so each one is searched for from the end of its ref's history: a ref may have moved a
// million times.
//
//	$1 witness  $2 to $6 project, ref, operation, token and time of each
const lookSQL = `
WITH known AS (
  SELECT * FROM unnest($2::text[], $3::text[], $4::text[], $5::bigint[], $6::timestamptz[]) WITH ORDINALITY AS k (project, ref, op, token, at, i)
), pruned AS MATERIALIZED (
  SELECT least(pruned_time, CASE WHEN $1 = '' THEN 'infinity' ELSE coalesce((SELECT seen FROM witnesses WHERE name = $1), '-infinity') END) AS upto
  FROM history_state WHERE id = 1 AND pruned_time IS NOT NULL
)
SELECT refdb_server(), coalesce(array_agg(i ORDER BY i), '{}') FROM known AS k LEFT JOIN LATERAL (
    SELECT true AS made FROM history AS h WHERE h.project = k.project AND h.ref = k.ref
      AND (split_part(h.op, E'\t', 1) = k.op OR k.token <> 0 AND starts_with(h.op, k.op || '-'))
    ORDER BY h.position DESC LIMIT 1) AS change ON true
WHERE made IS NULL
  AND NOT (k.token <> 0 AND EXISTS (
    SELECT FROM intents AS n WHERE n.project = k.project AND n.ref = k.ref AND split_part(n.nonce, E'\t', 1) = k.op))
  AND NOT EXISTS (SELECT FROM lost AS l WHERE l.project = k.project AND l.ref = k.ref AND l.op = k.op AND l.fate <> '')
  AND NOT coalesce(k.at <= (SELECT upto FROM pruned), false)`

// Look takes one statement, and so reads one snapshot.
func (d *Driver) Look(ctx context.Context, witness string, known []driver.Known) (l driver.Looked, err error) {
	err = d.inTransaction(ctx, "compare with the server", func(tx pgx.Tx) error {
		l, err = look(ctx, tx, witness, known)
		return err
	})
	return l, err
}

func look(ctx context.Context, tx pgx.Tx, witness string, known []driver.Known) (l driver.Looked, err error) {
	projects, refs, ops := make([]string, len(known)), make([]string, len(known)), make([]string, len(known))
	tokens, times := make([]int64, len(known)), make([]time.Time, len(known))
	for i, k := range known {
		projects[i], refs[i], ops[i], tokens[i], times[i] = k.Project, k.Ref, k.Op, int64(k.Token), k.At
	}
	var missing []int64
	err = tx.QueryRow(ctx, lookSQL, witness, projects, refs, ops, tokens, times).Scan(&l.Server, &missing)
	for _, i := range missing {
		l.Missing = append(l.Missing, int(i)-1)
	}
	return l, err
}

const (
	// recordLostSQL contains rules.Tells in SQL: $1 the witness  $2 the fate of new rows  $3 to $12
	// columns of the changes.
	recordLostSQL = `
INSERT INTO lost (witness, fate, project, ref, op, old, new, owner, asked_by, token, move, at, reported)
SELECT $1, $2, k.*, clock_timestamp()
FROM unnest($3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::bigint[], $11::text[], $12::timestamptz[]) AS k
ON CONFLICT (project, ref, op) DO UPDATE SET move = excluded.move
WHERE lost.fate = '' AND excluded.move <> '' AND (lost.witness = excluded.witness OR split_part(lost.owner, '/', 1) = excluded.witness)`

	putWitnessSQL = `
INSERT INTO witnesses (name, server, seen, away, without, since, word) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (name) DO UPDATE SET (server, seen, away, without, since, word) =
  (excluded.server, excluded.seen, excluded.away, excluded.without, excluded.since, excluded.word)`

	// putWordlessSQL is putWitnessSQL for version 11 of the schema.
	putWordlessSQL = `
INSERT INTO witnesses (name, server, seen, away, without, since) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (name) DO UPDATE SET (server, seen, away, without, since) = (excluded.server, excluded.seen, excluded.away, excluded.without, excluded.since)`

	setPolicySQL = `UPDATE admission SET policy = $1, policy_since = $2 WHERE id = 1`

	admitSQL = `UPDATE admission SET server = $1, since = clock_timestamp() WHERE id = 1`
)

// Report excludes concurrent reports.
func (d *Driver) Report(ctx context.Context, r driver.Report) (a driver.Admission, err error) {
	const what = "report a comparison with the server"
	err = d.changeAdmission(ctx, what, func(tx pgx.Tx, row admission) error {
		if row.server != r.Server {
			return errReplaced
		}
		a, err = report(ctx, tx, row, r)
		if err != nil {
			return err
		}
		admitted := rules.DecideAdmission(row.admitted, a)
		a.Admitted = admitted == row.server
		if admitted == row.admitted {
			return nil
		}
		_, err := tx.Exec(ctx, admitSQL, admitted)
		return err
	})
	return a, err
}

// report records r, and returns the resulting state, in which the admitted server is not decided
// yet.
func report(ctx context.Context, tx pgx.Tx, row admission, r driver.Report) (a driver.Admission, err error) {
	if a, err = admissionNow(ctx, tx); err != nil {
		return a, err
	}
	var now time.Time
	if err := tx.QueryRow(ctx, nowSQL).Scan(&now); err != nil {
		return a, err
	}
	if !row.testimonies {
		r = rules.WithoutTestimonies(r)
	}
	reported := rules.Report(a, r, now.UTC())
	// The comparison depends on when the witness was last seen, so it precedes the update of its
	// row.
	if err := recordLost(ctx, tx, row, r, reported); err != nil {
		return a, err
	}
	for _, w := range reported.Witnesses {
		if err := putWitness(ctx, tx, row, w); err != nil {
			return a, err
		}
	}
	if p := reported.Policy; p.Policy != "" {
		if _, err := tx.Exec(ctx, setPolicySQL, string(p.Policy), p.Since); err != nil {
			return a, err
		}
	}
	return admissionNow(ctx, tx)
}

func putWitness(ctx context.Context, tx pgx.Tx, row admission, w driver.Witness) error {
	sql, args := putWordlessSQL, []any{w.Name, w.Server, nullTime(w.Seen), w.Away, w.Without, w.Since}
	if row.testimonies {
		sql, args = putWitnessSQL, append(args, nullTime(w.Word))
	}
	_, err := tx.Exec(ctx, sql, args...)
	return err
}

// SetPolicy requires the owner of the tables.
func (d *Driver) SetPolicy(ctx context.Context, p driver.Policy) (a driver.Admission, err error) {
	if err := d.CheckRights(ctx, "recover"); err != nil {
		return a, err
	}
	const what = "set the policy"
	var refused error
	err = d.changeAdmission(ctx, what, func(tx pgx.Tx, row admission) error {
		if !row.testimonies {
			refused = fmt.Errorf("%s: %w", what, rules.ErrNoTestimonies)
			return nil
		}
		var now time.Time
		if err := tx.QueryRow(ctx, nowSQL).Scan(&now); err != nil {
			return err
		}
		if a, err = admissionNow(ctx, tx); err != nil {
			return err
		}
		a.Policy = driver.PolicyMark{Policy: p, Since: rules.Later(a.Policy.Since, now.UTC())}
		_, err := tx.Exec(ctx, setPolicySQL, string(p), a.Policy.Since)
		return err
	})
	return a, cmp.Or(err, refused)
}

var errReplaced = fmt.Errorf("%w: the server was replaced meanwhile", driver.ErrUnavailable)

// recordLost records the changes in reported.Missing that are still missing.
func recordLost(ctx context.Context, tx pgx.Tx, row admission, r driver.Report, reported rules.Reported) error {
	looked, err := look(ctx, tx, r.Witness, reported.Missing)
	n := len(looked.Missing)
	if err != nil || n == 0 {
		return err
	}
	projects, refs, ops, olds, news := make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	owners, askedBy, moves := make([]string, n), make([]string, n), make([]string, n)
	tokens, times := make([]int64, n), make([]time.Time, n)
	for i, index := range looked.Missing {
		k := reported.Missing[index]
		projects[i], refs[i], ops[i], olds[i], news[i] = k.Project, k.Ref, k.Op, string(k.Old), string(k.New)
		owners[i], askedBy[i], moves[i], tokens[i], times[i] = k.Owner, k.By, string(k.Move), int64(k.Token), k.At
	}
	_, err = tx.Exec(ctx, recordLostSQL, cmp.Or(r.Witness, r.Owner), string(reported.Fate), projects, refs, ops, olds, news, owners, askedBy, tokens, moves, times)
	return err
}

// lostColumns are the columns that lostOf reads.
const lostColumns = `project, ref, op, old, new, owner, asked_by, token, move, at, witness, fate, reported`

func lostOf(row pgx.CollectableRow) (driver.LostChange, error) { return lostAnd(row) }

// lostAnd reads lostColumns, and the columns after them into more.
func lostAnd(row pgx.CollectableRow, more ...any) (l driver.LostChange, err error) {
	err = row.Scan(append([]any{
		&l.Project, &l.Ref, &l.Op, &l.Old, &l.New, &l.Owner, &l.By, &l.Token, &l.Move, &l.At, &l.Witness, &l.Fate, &l.Reported,
	}, more...)...)
	l.At, l.Reported = l.At.UTC(), l.Reported.UTC()
	return l, err
}

// LostChanges reads one page.
func (d *Driver) LostChanges(ctx context.Context, q driver.LostQuery) (page driver.LostPage, err error) {
	const sql = `
SELECT ` + lostColumns + ` FROM lost WHERE (project, ref, op) > ($1::text, $2::text, $3::text) AND ($4 OR fate = '')
ORDER BY project, ref, op LIMIT $5`
	err = d.pools.Do(ctx, roundtrip.Read("list lost changes").Query(sql, func(rows pgx.Rows) (err error) {
		page.Lost, err = pgx.CollectRows(rows, lostOf)
		return err
	}, q.After.Project, q.After.Ref, q.After.Op, q.Decided, q.Limit))
	if len(page.Lost) == q.Limit {
		last := page.Lost[q.Limit-1]
		page.Next = driver.LostCursor{Project: last.Project, Ref: last.Ref, Op: last.Op}
	}
	return page, err
}
