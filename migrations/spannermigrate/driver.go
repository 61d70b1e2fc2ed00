// Package spannermigrate runs migrations on Cloud Spanner. golang-migrate's own
// driver doesn't keep two processes apart: here the dirty mark is set by
// compare-and-set, so that only one of them begins a step.
package spannermigrate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"cloud.google.com/go/spanner"
	admin "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	"github.com/golang-migrate/migrate/v4/database"
	"google.golang.org/api/iterator"
	"google.golang.org/grpc/codes"

	"github.com/globalrefdb/globalrefdb/migrations"
)

const (
	// Table is golang-migrate's own, with the columns Version and Dirty.
	Table = "SchemaMigrations"

	// rowTimeout ends a read or write of the version. Changes of the schema
	// may take any time, and go on without us.
	rowTimeout = 30 * time.Second

	// The emulator refuses to change the schema while any transaction runs.
	ddlTries = 10
	ddlPause = 100 * time.Millisecond
)

// New returns a Migrator for the database of that name
// (projects/P/instances/I/databases/D), and closes both clients.
func New(ddl *admin.DatabaseAdminClient, rows *spanner.Client, name string) (*migrations.Migrator, error) {
	return migrations.NewFor(migrations.Spanner, func(ctx context.Context) database.Driver {
		return &driver{ctx: ctx, ddl: ddl, rows: rows, name: name}
	}, (&driver{ddl: ddl, rows: rows}).Close)
}

type driver struct {
	ctx  context.Context // ends reads; what was begun to be written is finished
	ddl  *admin.DatabaseAdminClient
	rows *spanner.Client
	name string
	seen *state // what SetVersion expects to find, if anything
}

type state struct {
	version int64
	dirty   bool
}

var none = state{version: int64(database.NilVersion)}

// Lock only makes sure that there is a table: SetVersion is what excludes others.
func (d *driver) Lock() error {
	ctx, cancel := context.WithTimeout(d.ctx, rowTimeout)
	defer cancel()
	_, err := read(ctx, d.rows.Single())
	if spanner.ErrCode(err) != codes.NotFound {
		return err
	}
	return d.change([]string{`CREATE TABLE IF NOT EXISTS ` + Table + ` (Version INT64 NOT NULL, Dirty BOOL NOT NULL) PRIMARY KEY (Version)`})
}

func (d *driver) Unlock() error {
	d.seen = nil
	return nil
}

func (d *driver) Version() (version int, dirty bool, err error) {
	ctx, cancel := context.WithTimeout(d.ctx, rowTimeout)
	defer cancel()
	s, err := read(ctx, d.rows.Single())
	if spanner.ErrCode(err) == codes.NotFound {
		return database.NilVersion, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	d.seen = &s
	return int(s.version), s.dirty, nil
}

// SetVersion fails with database.ErrLocked if the mark isn't as Version or
// SetVersion left it.
func (d *driver) SetVersion(version int, dirty bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), rowTimeout)
	defer cancel()
	next := state{int64(version), dirty}
	_, err := d.rows.ReadWriteTransaction(ctx, func(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
		now, err := read(ctx, txn)
		if err != nil {
			return err
		}
		if d.seen != nil && now != *d.seen {
			return fmt.Errorf("another process is migrating: %w", database.ErrLocked)
		}
		writes := []*spanner.Mutation{spanner.Delete(Table, spanner.AllKeys())}
		if next != none {
			writes = append(writes, spanner.Insert(Table, []string{"Version", "Dirty"}, []any{next.version, next.dirty}))
		}
		return txn.BufferWrite(writes)
	})
	if err != nil {
		return err
	}
	if d.seen != nil {
		d.seen = &next
	}
	return nil
}

func (d *driver) Run(migration io.Reader) error {
	text, err := io.ReadAll(migration)
	if err != nil {
		return err
	}
	return d.change(statements(string(text)))
}

func (d *driver) change(statements []string) error {
	if len(statements) == 0 {
		return nil // which the server refuses
	}
	ctx := context.Background()
	for try := 1; ; try++ {
		op, err := d.ddl.UpdateDatabaseDdl(ctx, &databasepb.UpdateDatabaseDdlRequest{Database: d.name, Statements: statements})
		if err == nil {
			err = op.Wait(ctx)
		}
		if err == nil {
			return nil
		}
		if spanner.ErrCode(err) != codes.FailedPrecondition || try == ddlTries {
			return fmt.Errorf("change the schema: %w", err)
		}
		time.Sleep(ddlPause)
	}
}

// Of golang-migrate's interface, but nobody calls them.

func (d *driver) Open(string) (database.Driver, error) { return nil, errors.ErrUnsupported }
func (d *driver) Drop() error                          { return errors.ErrUnsupported }

func (d *driver) Close() error {
	d.rows.Close()
	return d.ddl.Close()
}

type reader interface {
	Read(ctx context.Context, table string, keys spanner.KeySet, columns []string) *spanner.RowIterator
}

// read fails with codes.NotFound if there is no table.
func read(ctx context.Context, r reader) (state, error) {
	rows := r.Read(ctx, Table, spanner.AllKeys(), []string{"Version", "Dirty"})
	defer rows.Stop()
	row, err := rows.Next()
	if errors.Is(err, iterator.Done) {
		return none, nil
	}
	var s state
	if err == nil {
		err = row.Columns(&s.version, &s.dirty)
	}
	return s, err
}

// statements cuts the text of a migration at its semicolons and drops comments,
// which the service doesn't accept. Our files hold neither in a literal.
func statements(text string) []string {
	var code strings.Builder
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "--")
		code.WriteString(strings.TrimRight(line, "\r\n") + "\n")
	}
	var all []string
	for s := range strings.SplitSeq(code.String(), ";") {
		if s = strings.TrimSpace(s); s != "" {
			all = append(all, s)
		}
	}
	return all
}
