// Package schema checks that a PostgreSQL database has the tables of this program.
package schema

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

// Check checks the version of the schema, and that everything that keeps writes correct is present,
// in one round trip unless an earlier program created the schema. An error that is not a
// driver.ErrSchema comes from the server or the connection.
func Check(ctx context.Context, pools *roundtrip.Pools, what string) error {
	_, err := Version(ctx, pools, what)
	return err
}

// Version is Check, but also returns the version.
func Version(ctx context.Context, pools *roundtrip.Pools, what string) (uint, error) {
	recorded, err := recordIn(ctx, pools, what, migrations.Table, "coalesce(oldest, 0)")
	missing := migrations.Check(migrations.Postgres, migrations.Record{})
	if roundtrip.Code(err) == roundtrip.NoSuchTable {
		found, lookErr := catalogue(ctx, pools, what)
		if lookErr != nil {
			return 0, lookErr
		}
		missing = found.Missing()
		if table := found.VersionTable(); table != "" {
			recorded, err = recordIn(ctx, pools, what, table, "0")
		}
	}
	switch {
	case roundtrip.Code(err) == roundtrip.NoSuchTable:
		err = missing
	case err == nil:
		err = migrations.Check(migrations.Postgres, recorded)
	default:
		return 0, explained(ctx, pools, what, err)
	}
	if err != nil {
		return 0, fmt.Errorf("%w: %w", driver.ErrSchema, err)
	}
	return recorded.Version, nil
}

// recordIn reads a table of versions, as soon as no migration is running, and the guards in the
// same snapshot; oldest is an expression for the table's column oldest. If row-level security hides
// rows from this user, the error is an ErrSchema, because hidden rows look like missing ones.
func recordIn(ctx context.Context, pools *roundtrip.Pools, what, table, oldest string) (r migrations.Record, err error) {
	sql := `SELECT version, dirty, ` + oldest + `, hidden, coalesce(tab, ''), coalesce(part, ''), coalesce(name, ''), coalesce(detail, '')
FROM (` + hiddenSQL + `) AS security LEFT JOIN ` + table + ` ON true LEFT JOIN (` + migrations.GuardsSQL(migrations.Postgres) + `) AS guards (tab, part, name, detail) ON true`
	var hidden string
	err = pools.Do(ctx, roundtrip.Read(what).Query(sql, func(rows pgx.Rows) error {
		r = migrations.Record{Guards: migrations.NewCatalogue(migrations.Postgres)}
		var version, needs *int64
		var dirty *bool
		var tab, part, name, detail string
		_, err := pgx.ForEachRow(rows, []any{&version, &dirty, &needs, &hidden, &tab, &part, &name, &detail}, func() error {
			if version != nil {
				r.Version, r.Oldest, r.Dirty, r.Exists = uint(max(*version, 0)), uint(max(*needs, 0)), *dirty, true
			}
			r.Guards.Add(tab, part, name, detail)
			return nil
		})
		return err
	}))
	if err == nil && hidden != "" {
		err = errRowSecurity(hidden)
	}
	return r, err
}

// hiddenSQL returns the statements that disable row-level security where it applies to this user.
var hiddenSQL = `
SELECT coalesce(string_agg(format('ALTER TABLE %s DISABLE ROW LEVEL SECURITY', oid::regclass), '; ' ORDER BY relname), '') AS hidden FROM pg_class
WHERE relrowsecurity AND pg_table_is_visible(oid) AND relname IN ('` + strings.Join(migrations.TableNames(migrations.Postgres), "', '") + `') AND row_security_active(oid)`

// errRowSecurity returns the error of a database that hides rows, with the statements that disable
// row-level security.
func errRowSecurity(statements string) error {
	return fmt.Errorf("%w: row-level security hides rows from this user: as the owner of the tables: %s", driver.ErrSchema, statements)
}

// explained returns err, or the error of a database that hides even the schema's version.
func explained(ctx context.Context, pools *roundtrip.Pools, what string, err error) error {
	if roundtrip.Code(err) != roundtrip.NoPrivilege {
		return err
	}
	var hidden string
	lookErr := pools.Do(ctx, roundtrip.Read(what).Query(hiddenSQL, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&hidden}, func() error { return nil })
		return err
	}))
	if lookErr == nil && hidden != "" {
		return errRowSecurity(hidden)
	}
	return err
}

// catalogue reads what the database contains of our tables.
func catalogue(ctx context.Context, pools *roundtrip.Pools, what string) (*migrations.Catalogue, error) {
	found := migrations.NewCatalogue(migrations.Postgres)
	err := pools.Do(ctx, roundtrip.Read(what).Query(migrations.CatalogueSQL(migrations.Postgres), func(rows pgx.Rows) error {
		found = migrations.NewCatalogue(migrations.Postgres)
		return AddAll(found, rows)
	}))
	return found, err
}

// AddAll adds the rows of migrations.CatalogueSQL to found.
func AddAll(found *migrations.Catalogue, rows pgx.Rows) error {
	var table, part, name, detail string
	_, err := pgx.ForEachRow(rows, []any{&table, &part, &name, &detail}, func() error {
		found.Add(table, part, name, detail)
		return nil
	})
	return err
}
