// Package schema checks that a PostgreSQL database has the tables of this program.
package schema

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

// Check checks the version of the schema, and that nothing is missing that keeps writes right, with one statement unless an
// earlier program made the schema. Any error but a refdb.ErrSchema is the server's, or the connection's.
func Check(ctx context.Context, conn *pgx.Conn) error {
	_, err := Version(ctx, conn)
	return err
}

// Version is Check that returns the version.
func Version(ctx context.Context, conn *pgx.Conn) (uint, error) {
	recorded, err := recordIn(ctx, conn, migrations.Table, "coalesce(oldest, 0)")
	missing := migrations.Check(migrations.Postgres, migrations.Record{})
	if roundtrip.Code(err) == roundtrip.NoSuchTable {
		found, lookErr := catalogue(ctx, conn)
		if lookErr != nil {
			return 0, lookErr
		}
		missing = found.Missing()
		if table := found.VersionTable(); table != "" {
			recorded, err = recordIn(ctx, conn, table, "0")
		}
	}
	switch {
	case roundtrip.Code(err) == roundtrip.NoSuchTable:
		err = missing
	case err == nil:
		err = migrations.Check(migrations.Postgres, recorded)
	default:
		return 0, err
	}
	if err != nil {
		return 0, fmt.Errorf("%w: %w", refdb.ErrSchema, err)
	}
	return recorded.Version, nil
}

// recordIn reads a table of versions, and the guards in the same snapshot; oldest is what the table has of that.
func recordIn(ctx context.Context, conn *pgx.Conn, table, oldest string) (migrations.Record, error) {
	sql := `SELECT version, dirty, ` + oldest + `, coalesce(tab, ''), coalesce(part, ''), coalesce(name, ''), coalesce(detail, '')
FROM ` + table + ` LEFT JOIN (` + migrations.GuardsSQL(migrations.Postgres) + `) AS guards (tab, part, name, detail) ON true`
	for {
		r := migrations.Record{Guards: migrations.NewCatalogue(migrations.Postgres)}
		var version, needs int64
		var tab, part, name, detail string
		rows, err := conn.Query(ctx, sql, pgx.QueryExecModeExec)
		if err == nil {
			_, err = pgx.ForEachRow(rows, []any{&version, &r.Dirty, &needs, &tab, &part, &name, &detail}, func() error {
				r.Version, r.Oldest, r.Exists = uint(max(version, 0)), uint(max(needs, 0)), true
				r.Guards.Add(tab, part, name, detail)
				return nil
			})
		}
		if roundtrip.Code(err) != roundtrip.LockNotAvailable || ctx.Err() != nil {
			return r, err
		}
		// It is being migrated.
	}
}

// catalogue reads what the database has of our tables.
func catalogue(ctx context.Context, conn *pgx.Conn) (*migrations.Catalogue, error) {
	found := migrations.NewCatalogue(migrations.Postgres)
	rows, err := conn.Query(ctx, migrations.CatalogueSQL(migrations.Postgres), pgx.QueryExecModeExec)
	if err != nil {
		return nil, err
	}
	return found, AddAll(found, rows)
}

// AddAll adds the rows of migrations.CatalogueSQL.
func AddAll(found *migrations.Catalogue, rows pgx.Rows) error {
	var table, part, name, detail string
	_, err := pgx.ForEachRow(rows, []any{&table, &part, &name, &detail}, func() error {
		found.Add(table, part, name, detail)
		return nil
	})
	return err
}
