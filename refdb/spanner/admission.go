package spanner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

// The server is the database, identified by its full name: a backup is always restored into a new
// database. A comparison in each transaction would cost a round trip. So the driver reads the
// admitted server when it is opened and whenever it checks the schema, and in between relies on
// what it read last.

const (
	// admissionVersion is the version of the schema that introduced the admission.
	admissionVersion = 9

	// newServer is the server in the row after the migration: the next process that opens the
	// database admits the database.
	newServer = "new"

	// testimoniesVersion is the version that introduced testimonies and the policy.
	testimoniesVersion = 12

	// absentSQL provides the columns that version 11 of the schema lacks. A subquery of a query
	// that selects from absentSQL takes such a column from its own table, if the table has it, and
	// otherwise from here.
	absentSQL = `(SELECT CAST(NULL AS TIMESTAMP) AS word, CAST(NULL AS STRING) AS policy, CAST(NULL AS TIMESTAMP) AS policy_since) AS absent`

	admittedSQL = `
SELECT a.server, a.since, CURRENT_TIMESTAMP(), (SELECT policy FROM admission WHERE id = 1), (SELECT policy_since FROM admission WHERE id = 1)
FROM ` + absentSQL + ` CROSS JOIN admission AS a WHERE a.id = 1`

	// A word counts only until its site has reported, because programs of version 11 don't clear
	// it.
	witnessesSQL = `
SELECT w.name, w.server, w.seen, w.away, w.without, w.since,
  (SELECT IF(same.seen >= word, NULL, word) FROM witnesses AS same WHERE same.name = w.name)
FROM ` + absentSQL + ` CROSS JOIN witnesses AS w ORDER BY w.name`

	countLostSQL = `SELECT COUNT(*) FROM lost WHERE fate = ''`
)

var (
	admissionColumns = []string{"id", "server", "since"}
	policyColumns    = []string{"id", "policy", "policy_since"}
	witnessColumns   = []string{"name", "server", "seen", "away", "without", "since", "word"}
)

// checkAdmission reads the admitted server. If no server has been admitted yet, it admits this one.
func (d *Driver) checkAdmission(ctx context.Context) error {
	r := request{tag: "refdb.admission", what: "read which server is admitted", timeout: openTimeout}
	rows, err := readRows(ctx, d, r, readAdmissionRow, r.query(spanner.NewStatement(admittedSQL)))
	if err != nil {
		return err
	}
	if len(rows) != 1 {
		return failed(r.what, fmt.Errorf("%w: the row of admission is missing: run `refdbctl migrate force %d`, then `refdbctl migrate up`",
			driver.ErrSchema, admissionVersion-1))
	}
	if rows[0].server == newServer {
		_, err := changeAdmission(ctx, d, r, func(context.Context, *transaction, *batch, admissionRow) (struct{}, error) { return struct{}{}, nil })
		if errors.Is(err, errDenied) {
			return nil // a process that may only read leaves it to others
		}
		return err
	}
	d.refused.Store(rows[0].server != d.name)
	return nil
}

// requireAdmission returns ErrNotAdmitted if the database was not admitted when the driver last
// read the admission.
func (d *Driver) requireAdmission(r request) error {
	if d.refused.Load() {
		return failed(r.what, driver.ErrNotAdmitted)
	}
	return nil
}

// An admissionRow is the row with the admitted server.
type admissionRow struct {
	server string
	since  time.Time
	now    time.Time // the time of the read, by the database's clock
	policy driver.PolicyMark
}

func (d *Driver) isAdmitted(server string) bool { return server == d.name || server == newServer }

// A queryFunc makes a query in a transaction.
type queryFunc func(ctx context.Context, s spanner.Statement, each func(*spanner.Row) error) error

func readAdmission(ctx context.Context, query queryFunc) (a admissionRow, err error) {
	err = query(ctx, spanner.NewStatement(admittedSQL), func(row *spanner.Row) (err error) {
		a, err = readAdmissionRow(row)
		return err
	})
	return a, err
}

func readAdmissionRow(row *spanner.Row) (a admissionRow, err error) {
	var policy spanner.NullString
	var since spanner.NullTime
	err = row.Columns(&a.server, &a.since, &a.now, &policy, &since)
	a.policy = driver.PolicyMark{Policy: driver.Policy(cmp.Or(policy.StringVal, string(driver.Wait))), Since: timeOf(since)}
	a.now = a.now.UTC().Truncate(time.Microsecond)
	return a, err
}

// admissionNow reads the admission within a transaction.
func (d *Driver) admissionNow(ctx context.Context, row admissionRow, query queryFunc) (driver.Admission, error) {
	a := driver.Admission{Server: d.name, Admitted: d.isAdmitted(row.server), Policy: row.policy}
	err := query(ctx, spanner.NewStatement(countLostSQL), func(row *spanner.Row) error {
		var n int64
		err := row.Columns(&n)
		a.Lost, a.Halted = int(n), n > 0
		return err
	})
	if err != nil {
		return a, err
	}
	err = query(ctx, spanner.NewStatement(witnessesSQL), func(row *spanner.Row) error {
		var w driver.Witness
		var seen, word spanner.NullTime
		err := row.Columns(&w.Name, &w.Server, &seen, &w.Away, &w.Without, &w.Since, &word)
		w.Seen, w.Since, w.Word = timeOf(seen), w.Since.UTC(), timeOf(word)
		a.Witnesses = append(a.Witnesses, w)
		return err
	})
	return a, err
}

// timeOf returns zero for NULL.
func timeOf(t spanner.NullTime) time.Time {
	if !t.Valid {
		return time.Time{}
	}
	return t.Time.UTC()
}

// nullTime returns NULL for zero.
func nullTime(t time.Time) spanner.NullTime { return spanner.NullTime{Time: t, Valid: !t.IsZero()} }

// hasTestimonies reports whether the schema supported testimonies and the policy at its last check.
func (d *Driver) hasTestimonies() bool { return d.version.Load() >= testimoniesVersion }

// snapshot runs do on a snapshot of the database.
func snapshot[T any](ctx context.Context, d *Driver, r request, do func(context.Context, queryFunc) (T, error)) (answer T, err error) {
	err = d.read(ctx, r, func(ctx context.Context, c *client) error {
		if err := d.emulatorMutex.lock(ctx); err != nil {
			return err
		}
		defer d.emulatorMutex.unlock()
		txn := c.ReadOnlyTransaction()
		defer txn.Close()
		answer, err = do(ctx, func(ctx context.Context, s spanner.Statement, each func(*spanner.Row) error) error {
			return r.query(s)(ctx, txn).Do(each)
		})
		return err
	})
	if err != nil {
		return *new(T), err
	}
	return answer, nil
}

// Admission implements driver.AdmissionStore.
func (d *Driver) Admission(ctx context.Context) (driver.Admission, error) {
	r := request{tag: "refdb.admission", what: "read which server is admitted"}
	return snapshot(ctx, d, r, func(ctx context.Context, query queryFunc) (driver.Admission, error) {
		row, err := readAdmission(ctx, query)
		if err != nil {
			return driver.Admission{}, err
		}
		return d.admissionNow(ctx, row, query)
	})
}

// changeAdmission runs do in a transaction that has read the row of admission, and so excludes all
// other changes of the row. Afterwards, the driver knows the admitted server.
func changeAdmission[T any](ctx context.Context, d *Driver, r request, do func(context.Context, *transaction, *batch, admissionRow) (T, error)) (answer T, err error) {
	var admitted string
	_, err = d.transact(ctx, r, func(ctx context.Context, t *transaction) error {
		row, err := readAdmission(ctx, t.query)
		if err != nil {
			return err
		}
		var b batch
		if row.server == newServer {
			row.server = d.name
			b.admit(d.name)
		}
		if answer, err = do(ctx, t, &b, row); err != nil {
			return err
		}
		if admitted = row.server; b.admitted != nil {
			admitted = *b.admitted
		}
		return t.write(&b)
	})
	if err != nil {
		return *new(T), err
	}
	d.refused.Store(admitted != d.name)
	return answer, nil
}

// admit admits a server, or none. The last call in a transaction counts.
func (b *batch) admit(server string) {
	b.admitted = &server
	b.add(len(admissionColumns), spanner.Update("admission", admissionColumns, []any{1, server, spanner.CommitTimestamp}))
}

// SetPolicy implements driver.AdmissionStore.
func (d *Driver) SetPolicy(ctx context.Context, p driver.Policy) (driver.Admission, error) {
	r := request{tag: "refdb.policy", what: "set the policy"}
	if !d.hasTestimonies() {
		return driver.Admission{}, failed(r.what, rules.ErrNoTestimonies)
	}
	return changeAdmission(ctx, d, r, func(ctx context.Context, t *transaction, b *batch, row admissionRow) (driver.Admission, error) {
		a, err := d.admissionNow(ctx, row, t.query)
		a.Policy = driver.PolicyMark{Policy: p, Since: rules.Later(a.Policy.Since, row.now)}
		b.setPolicy(a.Policy)
		return a, err
	})
}

func (b *batch) setPolicy(p driver.PolicyMark) {
	b.add(len(policyColumns), spanner.Update("admission", policyColumns, []any{1, string(p.Policy), p.Since}))
}

var errReplaced = fmt.Errorf("%w: it is another database", driver.ErrUnavailable)
