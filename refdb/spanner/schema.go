package spanner

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"

	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/migrations/spannermigrate"
	"github.com/globalrefdb/globalrefdb/refdb"
)

// checkSchema compares the schema's version with the one that this driver needs.
func (d *Driver) checkSchema(ctx context.Context) error {
	var version int64
	var dirty, exists bool
	r := request{tag: "refdb.open", what: "read the schema's version", within: openTime}
	err := d.read(ctx, r, func(ctx context.Context, c *client) error {
		exists = false
		rows := c.Single().ReadWithOptions(ctx, spannermigrate.Table, spanner.AllKeys(), []string{"Version", "Dirty"},
			&spanner.ReadOptions{Limit: 1, RequestTag: r.tag})
		err := rows.Do(func(r *spanner.Row) error {
			exists = true
			return r.Columns(&version, &dirty)
		})
		if spanner.ErrCode(err) == codes.NotFound {
			// Either the table or all of the database: its catalogue is always there.
			_, err = c.missingColumns(ctx)
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := migrations.Check(migrations.Spanner, uint(max(version, 0)), dirty, exists); err != nil {
		return fmt.Errorf("%w: %w", refdb.ErrSchema, err)
	}
	return nil
}

// fault explains why the server may not have found something: it returns
// ErrSchema if a table or column that we need is missing, ErrUnavailable if the
// session is, and another error if the database is. It is nil if none is, or
// that can't be told.
func (c *client) fault(ctx context.Context) error {
	missing, err := c.missingColumns(ctx)
	switch {
	case sessionLost(err):
		return fmt.Errorf("%w: %w", refdb.ErrUnavailable, oneLine{err})
	case spanner.ErrCode(err) == codes.NotFound:
		return fmt.Errorf("%w: %w", errNoDatabase, oneLine{err})
	case err != nil || len(missing) == 0:
		return nil
	}
	return fmt.Errorf("%w: there is no %s: %s", refdb.ErrSchema, strings.Join(missing, " and no "), repair)
}

// repair says what brings back what is missing: each step up leaves alone what is there.
const repair = "run `refdbctl migrate force 0`, then `refdbctl migrate up`"

// missingColumns names those of our tables and columns that the database lacks.
func (c *client) missingColumns(ctx context.Context) ([]string, error) {
	found := make(map[string]bool)
	err := c.catalogue(ctx, `
		SELECT TABLE_NAME, CONCAT(TABLE_NAME, '.', COLUMN_NAME) FROM INFORMATION_SCHEMA.COLUMNS
		WHERE TABLE_SCHEMA = '' AND TABLE_NAME IN ('refs', 'locks', 'intents')`, func(r *spanner.Row) error {
		var table, column string
		err := r.Columns(&table, &column)
		found[table], found[column] = true, true
		return err
	})
	var missing []string
	for _, t := range []struct {
		name    string
		columns []string
	}{{"refs", refColumns}, {"locks", slices.Concat(lockColumns, []string{"waiting"})}, {"intents", slices.Concat(revocationColumns, []string{"reason"})}} {
		if !found[t.name] {
			missing = append(missing, "table "+t.name)
			continue
		}
		for _, column := range t.columns {
			if column = t.name + "." + column; !found[column] {
				missing = append(missing, "column "+column)
			}
		}
	}
	return missing, err
}

// catalogue queries the database's own description of itself.
func (c *client) catalogue(ctx context.Context, sql string, each func(*spanner.Row) error) error {
	return c.Single().QueryWithOptions(ctx, spanner.NewStatement(sql), spanner.QueryOptions{RequestTag: "refdb.schema"}).Do(each)
}
