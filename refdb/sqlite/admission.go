package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
	"github.com/globalrefdb/globalrefdb/refdb/sqlite/internal/filesystem"
)

// The server is the file: a backup that is put back is another one. Each write transaction compares
// it with the one that is admitted, which costs a prepared statement.

// newServer is what the row of admission says after the migration: the next that writes is
// admitted.
const newServer = "new"

const (
	admittedServer = `SELECT server FROM admission WHERE id = 1`

	admit = `UPDATE admission SET server = ?, since = ? WHERE id = 1`

	barredWitness = `SELECT 1 FROM witnesses WHERE name = ? AND (away OR without)`

	countLost = `SELECT count(*) FROM lost WHERE fate = ''`

	allWitnesses = `SELECT name, server, seen, away, without, since FROM witnesses ORDER BY name`
)

// serverOf returns the identity of the file at path.
func serverOf(path string, file fs.FileInfo) string {
	device, inode, ok := filesystem.Identity(file)
	if !ok {
		return "file"
	}
	return fmt.Sprintf("%d/%d/%d", device, inode, filesystem.Birth(path))
}

// admittedServer returns the server that is admitted.
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

// isAdmitted is that of the driver. Where no server was admitted yet it admits this one.
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

// refuseBarred returns driver.ErrNotAdmitted if the owner's site is a witness that is away or was
// left out of a recovery: it has to compare the file first.
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

// admitFirst admits the file if no server was admitted yet.
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
		return admissionNow(ctx, c, d.server, admitted)
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

func admissionNow(ctx context.Context, c *conn, server string, admitted bool) (driver.Admission, error) {
	a := driver.Admission{Server: server, Admitted: admitted}
	err := c.query(ctx, func(r row) { a.Lost = int(r.int(0)) }, countLost)
	if err != nil {
		return a, err
	}
	a.Halted = a.Lost > 0
	err = c.query(ctx, func(r row) {
		w := driver.Witness{Name: r.text(0), Server: r.text(1), Away: r.int(3) != 0, Without: r.int(4) != 0, Since: timeOf(r.int(5))}
		if !r.null(2) {
			w.Seen = timeOf(r.int(2))
		}
		a.Witnesses = append(a.Witnesses, w)
	}, allWitnesses)
	return a, err
}

func (t *tx) admissionNow(server string, admitted bool) (driver.Admission, error) {
	return admissionNow(context.Background(), t.conn, server, admitted)
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
