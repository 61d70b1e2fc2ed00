package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
	"github.com/globalrefdb/globalrefdb/refdb/sqlite/internal/filesystem"
)

// The server is the file: a restored backup is another file. Each write transaction compares the
// file with the admitted one, which costs a prepared statement.

// newServer is the server in the row of admission after the migration: the next process that writes
// admits the file.
const newServer = "new"

const (
	admittedServer = `SELECT server FROM admission WHERE id = 1`

	admit = `UPDATE admission SET server = ?, since = ? WHERE id = 1`

	// absentColumns provides the columns that version 11 of the schema lacks. A subquery of a query
	// that selects from absentColumns takes such a column from its own table, if the table has it,
	// and otherwise from here.
	absentColumns = `(SELECT NULL AS word, NULL AS policy, NULL AS policy_since) AS absent`

	barredWitness = `
		SELECT 1 FROM ` + absentColumns + ` WHERE EXISTS (
			SELECT 1 FROM witnesses WHERE name = ? AND (away OR without OR word IS NOT NULL AND (seen IS NULL OR seen < word)))`

	// stateOfAdmission also returns whether the schema has the columns for testimonies and the
	// policy.
	stateOfAdmission = `
		SELECT (SELECT count(*) FROM lost WHERE fate = ''), (SELECT policy FROM admission), (SELECT policy_since FROM admission),
			EXISTS (SELECT 1 FROM pragma_table_info('witnesses') WHERE name = 'word')
		FROM ` + absentColumns

	// A word counts only until its site has reported, because programs of version 11 don't clear
	// it.
	allWitnesses = `
		SELECT name, server, seen, away, without, since, CASE WHEN seen >= spoken THEN NULL ELSE spoken END
		FROM (
			SELECT w.*, (SELECT word FROM witnesses AS same WHERE same.name = w.name) AS spoken
			FROM witnesses AS w, ` + absentColumns + `
		) ORDER BY name`

	setPolicy = `UPDATE admission SET policy = ?, policy_since = ? WHERE id = 1`
)

// serverOf returns the identity of the file at path.
func serverOf(path string, file fs.FileInfo) string {
	device, inode, ok := filesystem.Identity(file)
	if !ok {
		return "file"
	}
	return fmt.Sprintf("%d/%d/%d", device, inode, filesystem.Birth(path))
}

// admittedServer returns the admitted server.
func (c *conn) admittedServer(ctx context.Context) (server string, err error) {
	there := false
	err = c.query(ctx, func(r row) { server, there = r.text(0), true }, admittedServer)
	if err == nil && !there {
		err = errors.New("the table admission has lost its row: restore the file from a backup")
	}
	return server, err
}

// isAdmitted reports whether the file is admitted.
func (d *Driver) isAdmitted(ctx context.Context, c *conn) (bool, error) {
	server, err := c.admittedServer(ctx)
	return server == d.server || server == newServer, err
}

// isAdmitted reports whether server is admitted. If no server has been admitted yet, it admits this
// one.
func (t *tx) isAdmitted(server string) (bool, error) {
	if t.admitted == nil {
		admitted, err := t.conn.admittedServer(context.Background())
		if err != nil {
			return false, err
		}
		if admitted == newServer {
			return true, t.admit(server)
		}
		t.admitted = &admitted
	}
	return *t.admitted == server, nil
}

// refuseBarred returns driver.ErrNotAdmitted if the owner's site is barred, and so has to compare
// the file first.
func (t *tx) refuseBarred(owner string) (refused, err error) {
	site, _, _ := strings.Cut(owner, "/")
	err = t.query(func(row) { refused = driver.ErrNotAdmitted }, barredWitness, site)
	return refused, err
}

// admit admits a server, or none.
func (t *tx) admit(server string) error {
	t.admitted = &server
	_, err := t.exec(admit, server, t.now)
	return err
}

// admitFirst admits the file if no server has been admitted yet.
func (d *Driver) admitFirst(ctx context.Context) error {
	const doing = "read which file is admitted"
	first := false
	err := d.read(ctx, doing, func(c *conn) error {
		server, err := c.admittedServer(ctx)
		first = server == newServer
		return err
	})
	if err != nil || !first {
		return err
	}
	return d.writeAnyway(ctx, doing, 1, func(t *tx) error {
		_, err := t.isAdmitted(d.server)
		return err
	})
}

// Admission implements driver.AdmissionStore.
func (d *Driver) Admission(ctx context.Context) (driver.Admission, error) {
	return snapshot(ctx, d, "read which server is admitted", func(c *conn) (driver.Admission, error) {
		admitted, err := d.isAdmitted(ctx, c)
		if err != nil {
			return driver.Admission{}, err
		}
		a, _, err := admissionNow(ctx, c, d.server, admitted)
		return a, err
	})
}

// changeAdmission runs do in a write transaction.
func changeAdmission[T any](ctx context.Context, d *Driver, doing string, rows int, do func(t *tx, admitted bool) (T, error)) (T, error) {
	run := func(do func(*tx) error) error { return d.writeAnyway(ctx, doing, rows, do) }
	return answered(func(t *tx) (none T, err error) {
		admitted, err := t.isAdmitted(d.server)
		if err != nil {
			return none, err
		}
		return do(t, admitted)
	}, run)
}

// admissionNow also reports whether the schema has columns for testimonies.
func admissionNow(ctx context.Context, c *conn, server string, admitted bool) (a driver.Admission, testimonies bool, err error) {
	a = driver.Admission{Server: server, Admitted: admitted}
	err = c.query(ctx, func(r row) {
		a.Lost, testimonies = int(r.int(0)), r.int(3) != 0
		a.Halted = a.Lost > 0
		a.Policy = driver.PolicyMark{Policy: driver.Policy(cmp.Or(r.text(1), string(driver.Wait))), Since: r.time(2)}
	}, stateOfAdmission)
	if err != nil {
		return a, testimonies, err
	}
	err = c.query(ctx, func(r row) {
		a.Witnesses = append(a.Witnesses, driver.Witness{
			Name: r.text(0), Server: r.text(1), Seen: r.time(2), Away: r.int(3) != 0, Without: r.int(4) != 0, Since: timeOf(r.int(5)), Word: r.time(6),
		})
	}, allWitnesses)
	return a, testimonies, err
}

func (t *tx) admissionNow(server string, admitted bool) (a driver.Admission, err error) {
	a, t.testimonies, err = admissionNow(context.Background(), t.conn, server, admitted)
	return a, err
}

var errReplaced = fmt.Errorf("%w: the file was replaced meanwhile", driver.ErrUnavailable)

// Report implements driver.AdmissionStore.
func (d *Driver) Report(ctx context.Context, r driver.Report) (driver.Admission, error) {
	const doing = "report a comparison with the file"
	if r.Server != d.server {
		return driver.Admission{}, explain(d.path, doing, errReplaced)
	}
	return changeAdmission(ctx, d, doing, len(r.Missing)+len(r.Marks)+1, func(t *tx, admitted bool) (driver.Admission, error) {
		a, err := t.admissionNow(d.server, admitted)
		if err == nil {
			err = t.report(r, a)
		}
		if err == nil {
			a, err = t.admissionNow(d.server, admitted)
		}
		if err != nil {
			return a, err
		}
		next := rules.DecideAdmission(*t.admitted, a)
		if a.Admitted = next == d.server; next != *t.admitted {
			err = t.admit(next)
		}
		return a, err
	})
}

// SetPolicy implements driver.AdmissionStore.
func (d *Driver) SetPolicy(ctx context.Context, p driver.Policy) (driver.Admission, error) {
	return changeAdmission(ctx, d, "set the policy", 1, func(t *tx, admitted bool) (driver.Admission, error) {
		a, err := t.admissionNow(d.server, admitted)
		if err == nil && !t.testimonies {
			err = rules.ErrNoTestimonies
		}
		if err != nil {
			return a, err
		}
		a.Policy = driver.PolicyMark{Policy: p, Since: rules.Later(a.Policy.Since, timeOf(t.now))}
		return a, t.setPolicy(a.Policy)
	})
}

func (t *tx) setPolicy(p driver.PolicyMark) error {
	_, err := t.exec(setPolicy, string(p.Policy), p.Since.UnixMicro())
	return err
}
