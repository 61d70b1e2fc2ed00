// Package spannermigrate runs migrations on Cloud Spanner. golang-migrate's own driver doesn't
// exclude a second process: here the dirty mark is set by compare-and-set, so that only one process
// begins a step.
package spannermigrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/spanner"
	admin "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	"github.com/golang-migrate/migrate/v4/database"
	"google.golang.org/api/iterator"
	"google.golang.org/grpc/codes"

	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	// rowTimeout limits a read or write of the version. Changes of the schema may take any time,
	// and continue without us.
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

	table   string   // of versions, once that is known
	adopted []string // tables and indexes that were there before ours, and stay
	found   bool     // by Found

	version uint // whose locks the next SetVersion looks at
	policy  migrations.LockPolicy
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
	c, err := d.look(ctx)
	if err != nil || d.table != "" {
		return err
	}
	if _, err := c.Adoptable(false); err != nil {
		return err
	}
	d.table = migrations.Table
	return d.change([]string{`CREATE TABLE IF NOT EXISTS ` + migrations.Table + ` (
		Version INT64 NOT NULL, Dirty BOOL NOT NULL, Oldest INT64, Adopted ARRAY<STRING(MAX)>) PRIMARY KEY (Version)`})
}

// look reads the catalogue, and finds the table of versions in it.
func (d *driver) look(ctx context.Context) (*migrations.Catalogue, error) {
	c, err := Catalogue(ctx, d.rows.Single)
	if err != nil {
		return nil, fmt.Errorf("inspect the tables: %w", err)
	}
	d.table = c.VersionTable()
	return c, nil
}

// ErrDialect means that the database has Spanner's PostgreSQL dialect, which does not parse the
// driver's statements.
var ErrDialect = errors.New("the database has Spanner's PostgreSQL dialect: create one of the dialect GOOGLE_STANDARD_SQL, which is the default")

// Catalogue reads what there is of our tables, with transactions that single returns.
func Catalogue(ctx context.Context, single func() *spanner.ReadOnlyTransaction) (*migrations.Catalogue, error) {
	c := migrations.NewCatalogue(migrations.Spanner)
	err := single().QueryWithOptions(ctx, spanner.NewStatement(migrations.CatalogueSQL(migrations.Spanner)),
		spanner.QueryOptions{RequestTag: "refdb.schema"}).Do(func(r *spanner.Row) error {
		var table, part, name, detail string
		err := r.Columns(&table, &part, &name, &detail)
		c.Add(table, part, name, detail)
		return err
	})
	if spanner.ErrCode(err) == codes.InvalidArgument {
		err = cmp.Or(checkDialect(ctx, single()), err)
	}
	return c, err
}

// checkDialect returns ErrDialect for a database of the PostgreSQL dialect. Its query is valid in
// both dialects.
func checkDialect(ctx context.Context, txn *spanner.ReadOnlyTransaction) error {
	var dialect string
	err := txn.Query(ctx, spanner.NewStatement(`SELECT option_value FROM information_schema.database_options WHERE option_name = 'database_dialect'`)).Do(
		func(r *spanner.Row) error { return r.Columns(&dialect) })
	if err == nil && dialect == "POSTGRESQL" {
		return ErrDialect
	}
	return nil
}

// CheckFirst adopts the tables of Gerrit's plugin: it records them with the first mark, and Run
// does not drop them.
func (d *driver) CheckFirst() error {
	ctx, cancel := context.WithTimeout(d.ctx, rowTimeout)
	defer cancel()
	c, err := d.look(ctx)
	if err != nil {
		return err
	}
	d.adopted, err = c.Adoptable(true)
	d.found = err == nil
	return err
}

// CheckNewTables refuses to continue if the name of a new table is already in use.
func (d *driver) CheckNewTables(version uint) error {
	ctx, cancel := context.WithTimeout(d.ctx, rowTimeout)
	defer cancel()
	c, err := d.look(ctx)
	if err != nil {
		return err
	}
	return c.CheckNewTables(version)
}

func (d *driver) Unlock() error {
	d.seen = nil
	return nil
}

func (d *driver) Version() (version int, dirty bool, err error) {
	ctx, cancel := context.WithTimeout(d.ctx, rowTimeout)
	defer cancel()
	if d.table == "" {
		if _, err := d.look(ctx); err != nil {
			return 0, false, err
		}
	}
	if d.table == "" {
		return database.NilVersion, false, nil
	}
	s, adopted, err := d.read(ctx, d.rows.Single())
	if err != nil {
		return 0, false, err
	}
	d.seen, d.adopted = &s, adopted
	return int(s.version), s.dirty, nil
}

// SetVersion fails with database.ErrLocked if the mark isn't as Version or
// SetVersion left it.
func (d *driver) SetVersion(version int, dirty bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), rowTimeout)
	defer cancel()
	next := state{int64(version), dirty}
	_, err := d.rows.ReadWriteTransaction(ctx, func(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
		now, adopted, err := d.read(ctx, txn)
		if err != nil {
			return err
		}
		if d.found {
			adopted = d.adopted
		}
		if err := d.refuseHeld(ctx, txn); err != nil {
			return err
		}
		if d.seen != nil && now != *d.seen {
			return fmt.Errorf("another process is migrating: %w", database.ErrLocked)
		}
		writes := []*spanner.Mutation{spanner.Delete(d.table, spanner.AllKeys())}
		if next != none {
			row := map[string]any{"Version": next.version, "Dirty": next.dirty}
			if d.table == migrations.Table {
				row["Oldest"], row["Adopted"] = migrations.OldestProgram(int(next.version)), adopted
			}
			writes = append(writes, spanner.InsertMap(d.table, row))
		}
		return txn.BufferWrite(writes)
	})
	if err != nil {
		return err
	}
	d.policy = migrations.NoLocks
	if d.seen != nil {
		d.seen = &next
	}
	return nil
}

// CheckLocks makes the next SetVersion check the locks, in its transaction.
func (d *driver) CheckLocks(version uint, p migrations.LockPolicy) error {
	d.version, d.policy = version, p
	return nil
}

func (d *driver) refuseHeld(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
	if d.policy == migrations.NoLocks {
		return nil
	}
	locks, err := held(txn.Query(ctx, heldStatement(d.version)))
	if err != nil {
		return fmt.Errorf("inspect the locks: %w", err)
	}
	return d.policy.Refuse(locks)
}

func (d *driver) Held(version uint) ([]refdb.LockInfo, error) {
	return held(d.rows.Single().Query(d.ctx, heldStatement(version)))
}

func heldStatement(version uint) spanner.Statement {
	return spanner.NewStatement(migrations.HeldSQL(migrations.Spanner, version))
}

func held(rows *spanner.RowIterator) (locks []refdb.LockInfo, err error) {
	err = rows.Do(func(r *spanner.Row) error {
		l, err := migrations.ScanHeld(r.Columns)
		locks = append(locks, l)
		return err
	})
	return locks, err
}

func (d *driver) Counts() (c migrations.Counts, err error) {
	err = d.rows.Single().Query(d.ctx, spanner.NewStatement(migrations.CountsSQL)).Do(func(r *spanner.Row) error {
		return r.Columns(&c.Refs, &c.Projects, &c.Locks, &c.Holders)
	})
	return c, err
}

func (d *driver) Run(migration io.Reader) error {
	text, err := io.ReadAll(migration)
	if err != nil {
		return err
	}
	all := slices.DeleteFunc(statements(string(text)), d.drops)
	ddl := slices.DeleteFunc(slices.Clone(all), inserts)
	if err := d.change(ddl); err != nil {
		return err
	}
	return d.insert(slices.DeleteFunc(all, func(s string) bool { return !inserts(s) }))
}

// inserts reports whether a statement inserts rows. Such statements run after all changes of the
// schema.
func inserts(statement string) bool { return strings.HasPrefix(statement, "INSERT ") }

// insert inserts the first rows of new tables in one transaction. The statements ignore existing
// rows, so that the step may be repeated.
func (d *driver) insert(all []string) error {
	if len(all) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), rowTimeout)
	defer cancel()
	_, err := d.rows.ReadWriteTransaction(ctx, func(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
		for _, s := range all {
			if _, err := txn.Update(ctx, spanner.NewStatement(s)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("insert the first rows: %w", err)
	}
	return nil
}

// drops reports whether a statement drops something that existed before our tables.
func (d *driver) drops(statement string) bool {
	words := strings.Fields(statement)
	return words[0] == "DROP" && slices.Contains(d.adopted, words[len(words)-1])
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

// Methods of golang-migrate's interface that are never called.

func (d *driver) Open(string) (database.Driver, error) { return nil, errors.ErrUnsupported }
func (d *driver) Drop() error                          { return errors.ErrUnsupported }

func (d *driver) Close() error {
	d.rows.Close()
	return d.ddl.Close()
}

type reader interface {
	Read(ctx context.Context, table string, keys spanner.KeySet, columns []string) *spanner.RowIterator
}

// read reads the table of versions. Earlier programs did not record what they adopted: it may be
// everything that Gerrit's plugin creates.
func (d *driver) read(ctx context.Context, r reader) (s state, adopted []string, err error) {
	columns := []string{"Version", "Dirty", "Adopted"}
	into := []any{&s.version, &s.dirty, &adopted}
	if d.table != migrations.Table {
		columns, into = columns[:2], into[:2]
		adopted = []string{"refs", "project_time", "locks"}
	}
	rows := r.Read(ctx, d.table, spanner.AllKeys(), columns)
	defer rows.Stop()
	row, err := rows.Next()
	if errors.Is(err, iterator.Done) {
		return none, adopted, nil
	}
	if err == nil {
		err = row.Columns(into...)
	}
	return s, adopted, err
}

// statements splits the text of a migration at its semicolons and removes comments, which the
// service doesn't accept. Our files have neither in a literal.
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
