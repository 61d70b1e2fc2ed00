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

// Which server is admitted is compared by a trigger, in each statement that writes, whoever makes
// it. What is here runs only after a server was replaced, and once a minute: it decides in Go, in
// transactions that last several round trips. Each may be made again, whatever became of it.

// requireAdmissionSQL fails as a statement that writes does. A halt that commits between it and the
// next statement could as well have come after both.
const requireAdmissionSQL = `SELECT refdb_require()`

// requireNamedSQL is requireAdmissionSQL, with a row only if the admission names a server. A dump that is being restored has
// created the tables and not yet their rows and triggers: refdb_require takes that for admitted.
const requireNamedSQL = requireAdmissionSQL + ` FROM admission WHERE id = 1`

// changeAdmission runs do in a transaction under the lock on the row of admission, which has its
// server.
func (d *Driver) changeAdmission(ctx context.Context, what string, do func(pgx.Tx, admission) error) error {
	return d.inTransaction(ctx, what, func(tx pgx.Tx) error {
		var a admission
		// What others did before they gave the lock up is seen by the statements after this one.
		err := tx.QueryRow(ctx, `SELECT server, refdb_server() FROM admission WHERE id = 1 FOR UPDATE`).Scan(&a.admitted, &a.server)
		if err != nil {
			return err
		}
		return do(tx, a)
	})
}

// An admission is which server is admitted, and which one this is.
type admission struct{ admitted, server string }

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

// admissionSQL returns a row for each witness, and one without a witness if there is none: all from
// one snapshot.
const admissionSQL = `
SELECT a.server, refdb_server(), (SELECT count(*) FROM lost WHERE fate = ''), w.name, w.server, w.seen, w.away, w.without, w.since
FROM admission AS a LEFT JOIN witnesses AS w ON true WHERE a.id = 1 ORDER BY w.name`

// Admission takes one round trip: sites ask before they go by what the database says.
func (d *Driver) Admission(ctx context.Context) (a driver.Admission, err error) {
	err = d.pools.Do(ctx, roundtrip.Read("read which server is admitted").Query(admissionSQL, func(rows pgx.Rows) error {
		a = driver.Admission{}
		var admitted string
		var name, server *string
		var seen, since *time.Time
		var away, without *bool
		tag, err := pgx.ForEachRow(rows, []any{&admitted, &a.Server, &a.Lost, &name, &server, &seen, &away, &without, &since}, func() error {
			a.Admitted, a.Halted = admitted == a.Server, a.Lost > 0
			if name == nil {
				return nil
			}
			w := driver.Witness{Name: *name, Server: *server, Away: *away, Without: *without, Since: since.UTC()}
			if seen != nil {
				w.Seen = seen.UTC()
			}
			a.Witnesses = append(a.Witnesses, w)
			return nil
		})
		if err == nil && tag.RowsAffected() == 0 {
			err = pgx.ErrNoRows
		}
		return err
	}))
	return a, err
}

// admissionNow reads the rest of the state.
func admissionNow(ctx context.Context, tx pgx.Tx, row admission) (a driver.Admission, err error) {
	a.Server, a.Admitted = row.server, row.admitted == row.server
	if err := tx.QueryRow(ctx, `SELECT count(*) FROM lost WHERE fate = ''`).Scan(&a.Lost); err != nil {
		return a, err
	}
	a.Halted = a.Lost > 0
	rows, err := tx.Query(ctx, `SELECT name, server, seen, away, without, since FROM witnesses ORDER BY name`)
	if err != nil {
		return a, err
	}
	a.Witnesses, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (w driver.Witness, err error) {
		var seen *time.Time
		err = row.Scan(&w.Name, &w.Server, &seen, &w.Away, &w.Without, &w.Since)
		w.Since = w.Since.UTC()
		if seen != nil {
			w.Seen = seen.UTC()
		}
		return w, err
	})
	return a, err
}

// lookSQL returns the indices of what is missing, from 1, and the server. What is known is mostly
// new, so each change is looked for from the end of its ref's history: a ref may have moved a
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

// Look looks in one statement.
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
	// recordLostSQL: $1 the witness  $2 the fate of what is new  $3 and on: columns of the changes.
	recordLostSQL = `
INSERT INTO lost (witness, fate, project, ref, op, old, new, owner, asked_by, token, move, at, reported)
SELECT $1, $2, k.*, clock_timestamp()
FROM unnest($3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::bigint[], $11::text[], $12::timestamptz[]) AS k
ON CONFLICT (project, ref, op) DO UPDATE SET move = excluded.move WHERE lost.fate = '' AND lost.witness = excluded.witness`

	putWitnessSQL = `
INSERT INTO witnesses (name, server, seen, away, without, since) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (name) DO UPDATE SET (server, seen, away, without, since) = (excluded.server, excluded.seen, excluded.away, excluded.without, excluded.since)`

	admitSQL = `UPDATE admission SET server = $1, since = clock_timestamp() WHERE id = 1`
)

// Report excludes all other reports.
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

// report records a report, and returns the state before it is decided which server is admitted.
func report(ctx context.Context, tx pgx.Tx, row admission, r driver.Report) (a driver.Admission, err error) {
	if a, err = admissionNow(ctx, tx, row); err != nil {
		return a, err
	}
	var now time.Time
	if err := tx.QueryRow(ctx, nowSQL).Scan(&now); err != nil {
		return a, err
	}
	changed, fate := rules.ReportWitnesses(a.Witnesses, r, now)
	// This goes by when the witness was seen last, so it comes before the witness's new row.
	if err := recordLost(ctx, tx, fate, r); err != nil {
		return a, err
	}
	for _, w := range changed {
		if err := putWitness(ctx, tx, w); err != nil {
			return a, err
		}
	}
	return admissionNow(ctx, tx, row)
}

func putWitness(ctx context.Context, tx pgx.Tx, w driver.Witness) error {
	var seen *time.Time
	if !w.Seen.IsZero() {
		seen = &w.Seen
	}
	_, err := tx.Exec(ctx, putWitnessSQL, w.Name, w.Server, seen, w.Away, w.Without, w.Since)
	return err
}

var errReplaced = fmt.Errorf("%w: the server was replaced meanwhile", driver.ErrUnavailable)

// recordLost records those of r.Missing that are missing still.
func recordLost(ctx context.Context, tx pgx.Tx, fate driver.Fate, r driver.Report) error {
	looked, err := look(ctx, tx, r.Witness, r.Missing)
	n := len(looked.Missing)
	if err != nil || n == 0 {
		return err
	}
	projects, refs, ops, olds, news := make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	owners, askedBy, moves := make([]string, n), make([]string, n), make([]string, n)
	tokens, times := make([]int64, n), make([]time.Time, n)
	for i, index := range looked.Missing {
		k := r.Missing[index]
		projects[i], refs[i], ops[i], olds[i], news[i] = k.Project, k.Ref, k.Op, string(k.Old), string(k.New)
		owners[i], askedBy[i], moves[i], tokens[i], times[i] = k.Owner, k.By, string(k.Move), int64(k.Token), k.At
	}
	_, err = tx.Exec(ctx, recordLostSQL, cmp.Or(r.Witness, r.Owner), string(fate), projects, refs, ops, olds, news, owners, askedBy, tokens, moves, times)
	return err
}

// lostColumns are what lostOf reads.
const lostColumns = `project, ref, op, old, new, owner, asked_by, token, move, at, witness, fate, reported`

func lostOf(row pgx.CollectableRow) (driver.LostChange, error) { return lostAnd(row) }

// lostAnd reads lostColumns, and more columns behind them.
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
