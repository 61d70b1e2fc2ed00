package spanner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// The server is the database, by its full name: a backup is always put back into a new one. To
// compare it in each transaction would cost a round trip. So the driver reads which one is admitted
// when it is opened and whenever it checks the schema, and in between goes by what it read last.

const (
	// admissionVersion is the version of the schema that brought the admission.
	admissionVersion = 9

	// newServer is what the row says after the migration: the next that opens the database is
	// admitted.
	newServer = "new"

	admittedSQL = `SELECT server, since, CURRENT_TIMESTAMP(), ARRAY(SELECT name FROM witnesses WHERE away OR without) FROM admission WHERE id = 1`

	witnessesSQL = `SELECT name, server, seen, away, without, since FROM witnesses ORDER BY name`

	countLostSQL = `SELECT COUNT(*) FROM lost WHERE fate = ''`
)

var (
	admissionColumns = []string{"id", "server", "since"}
	witnessColumns   = []string{"name", "server", "seen", "away", "without", "since"}
)

// checkAdmission reads which server is admitted. Where none was yet it admits this one.
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
			return nil // who may only read leaves it to others
		}
		return err
	}
	d.barred.Store(&rows[0].barred)
	d.refused.Store(rows[0].server != d.name)
	return nil
}

// requireAdmission returns ErrNotAdmitted if the database was not admitted when the driver last
// looked.
func (d *Driver) requireAdmission(r request) error {
	if d.refused.Load() {
		return failed(r.what, driver.ErrNotAdmitted)
	}
	return nil
}

// refuseBarred returns ErrNotAdmitted if the owner's site was a witness that is away or was left
// out of a recovery when the driver last looked: it has to compare the database first.
func (d *Driver) refuseBarred(what, owner string) error {
	site, _, _ := strings.Cut(owner, "/")
	if barred := d.barred.Load(); barred != nil && slices.Contains(*barred, site) {
		return failed(what, driver.ErrNotAdmitted)
	}
	return nil
}

// An admissionRow is which server is admitted.
type admissionRow struct {
	server string
	since  time.Time
	now    time.Time // when it was read, by the database's clock
	barred []string  // sites that have to compare the database first
}

func (d *Driver) isAdmitted(server string) bool { return server == d.name || server == newServer }

// A queryFunc makes a query of a transaction.
type queryFunc func(ctx context.Context, s spanner.Statement, each func(*spanner.Row) error) error

func readAdmission(ctx context.Context, query queryFunc) (a admissionRow, err error) {
	err = query(ctx, spanner.NewStatement(admittedSQL), func(row *spanner.Row) (err error) {
		a, err = readAdmissionRow(row)
		return err
	})
	return a, err
}

func readAdmissionRow(row *spanner.Row) (a admissionRow, err error) {
	err = row.Columns(&a.server, &a.since, &a.now, &a.barred)
	a.now = a.now.UTC().Truncate(time.Microsecond)
	return a, err
}

// admissionNow reads the state within a transaction.
func (d *Driver) admissionNow(ctx context.Context, row admissionRow, query queryFunc) (driver.Admission, error) {
	a := driver.Admission{Server: d.name, Admitted: d.isAdmitted(row.server)}
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
		var seen spanner.NullTime
		err := row.Columns(&w.Name, &w.Server, &seen, &w.Away, &w.Without, &w.Since)
		w.Since = w.Since.UTC()
		if seen.Valid {
			w.Seen = seen.Time.UTC()
		}
		a.Witnesses = append(a.Witnesses, w)
		return err
	})
	return a, err
}

// snapshot runs do on what the database has at one time.
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
// others that change it. Afterwards the driver knows which server is admitted.
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

// admit admits a server, or none. What a transaction says last is written.
func (b *batch) admit(server string) {
	b.admitted = &server
	b.add(len(admissionColumns), spanner.Update("admission", admissionColumns, []any{1, server, spanner.CommitTimestamp}))
}

var errReplaced = fmt.Errorf("%w: it is another database", driver.ErrUnavailable)
