package spanner

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Diagnose checks what the database says about itself. Serializability, strong
// reads and durability need no check: Spanner has no setting that takes them away.
func (d *Driver) Diagnose(ctx context.Context) ([]refdb.Diagnosis, error) {
	var all []refdb.Diagnosis
	err := d.read(ctx, request{what: "look at the database"}, func(ctx context.Context, c *client) error {
		all = []refdb.Diagnosis{d.server()}
		for _, look := range []func(context.Context) ([]refdb.Diagnosis, error){
			c.diagnoseOptions, c.diagnoseColumns, c.diagnoseIndex,
		} {
			found, err := look(ctx)
			if err != nil {
				return err
			}
			all = append(all, found...)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

func (d *Driver) server() refdb.Diagnosis {
	if d.emulator == "" {
		return refdb.Diagnosis{Name: "server", OK: true, Detail: "Cloud Spanner, " + d.name}
	}
	return refdb.Diagnosis{Name: "server", OK: true,
		Detail: fmt.Sprintf("an emulator at %s: for tests only, it keeps everything in memory", d.emulator)}
}

func (c *client) diagnoseOptions(ctx context.Context) ([]refdb.Diagnosis, error) {
	options := map[string]string{"version_retention_period": "1h"} // Spanner's default
	err := c.catalogue(ctx, `SELECT OPTION_NAME, OPTION_VALUE FROM INFORMATION_SCHEMA.DATABASE_OPTIONS`, func(r *spanner.Row) error {
		var name, value string
		err := r.Columns(&name, &value)
		options[name] = value
		return err
	})
	dialect := refdb.Diagnosis{Name: "database_dialect", OK: true, Detail: options["database_dialect"]}
	if dialect.Detail != "GOOGLE_STANDARD_SQL" {
		dialect.OK = false
		dialect.Detail = fmt.Sprintf("%q: create a database of the dialect GOOGLE_STANDARD_SQL", dialect.Detail)
	}
	return []refdb.Diagnosis{dialect, {
		Name: "version_retention_period", OK: true,
		Detail: options["version_retention_period"] + ": how far back the data can be recovered, to any point in time",
	}}, err
}

// diagnoseColumns checks that our columns are there, and that those of times
// take the commit timestamp.
func (c *client) diagnoseColumns(ctx context.Context) ([]refdb.Diagnosis, error) {
	missing, err := c.missingColumns(ctx)
	if err != nil {
		return nil, err
	}
	columns := refdb.Diagnosis{Name: "columns", OK: len(missing) == 0, Detail: "all there"}
	if !columns.OK {
		columns.Detail = "there is no " + strings.Join(missing, " and no ") + ": " + repair
	}
	fixed := []string{"intents.decided_at", "intents.time", "intents.token", "locks.heartbeat", "locks.token", "refs.time"}
	err = c.catalogue(ctx, `
		SELECT CONCAT(TABLE_NAME, '.', COLUMN_NAME) FROM INFORMATION_SCHEMA.COLUMN_OPTIONS
		WHERE TABLE_SCHEMA = '' AND OPTION_NAME = 'allow_commit_timestamp' AND UPPER(OPTION_VALUE) = 'TRUE'`, func(r *spanner.Row) error {
		var name string
		err := r.Columns(&name)
		fixed = slices.DeleteFunc(fixed, func(f string) bool { return f == name })
		return err
	})
	times := refdb.Diagnosis{Name: "allow_commit_timestamp", OK: len(fixed) == 0, Detail: "set for all times"}
	if !times.OK {
		times.Detail = "not set for " + strings.Join(fixed, ", ") + ": set it with ALTER TABLE … ALTER COLUMN … SET OPTIONS (allow_commit_timestamp = true)"
	}
	return []refdb.Diagnosis{columns, times}, err
}

func (c *client) diagnoseIndex(ctx context.Context) ([]refdb.Diagnosis, error) {
	var columns []string
	err := c.catalogue(ctx, `
		SELECT COLUMN_NAME FROM INFORMATION_SCHEMA.INDEX_COLUMNS
		WHERE TABLE_SCHEMA = '' AND TABLE_NAME = 'refs' AND INDEX_NAME = 'project_time'
		ORDER BY ORDINAL_POSITION`, func(r *spanner.Row) error {
		var name string
		err := r.Columns(&name)
		columns = append(columns, name)
		return err
	})
	index := refdb.Diagnosis{Name: "index project_time", OK: slices.Equal(columns, []string{"project", "time"}), Detail: "there, as Gerrit's plugin has it"}
	if !index.OK {
		index.Detail = fmt.Sprintf("on columns %v, not [project time]: Gerrit's plugin creates it so", columns)
	}
	return []refdb.Diagnosis{index}, err
}
