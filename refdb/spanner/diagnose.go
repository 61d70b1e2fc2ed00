package spanner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"

	"github.com/globalrefdb/globalrefdb/migrations/spannermigrate"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// Diagnose checks what the database reports about itself. Serializability, strong reads and
// durability need no check: no setting of Spanner disables them.
func (d *Driver) Diagnose(ctx context.Context) ([]driver.Diagnosis, error) {
	var all []driver.Diagnosis
	err := d.read(ctx, request{what: "inspect the database"}, func(ctx context.Context, c *client) error {
		all = []driver.Diagnosis{d.server()}
		for _, look := range []func(context.Context) ([]driver.Diagnosis, error){
			c.diagnoseOptions,
			func(ctx context.Context) ([]driver.Diagnosis, error) {
				return c.diagnoseTables(ctx, uint(d.version.Load()))
			},
			c.diagnosePrivileges,
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

func (d *Driver) server() driver.Diagnosis {
	if d.emulator == "" {
		return driver.Diagnosis{Name: "server", OK: true, Detail: "Cloud Spanner, " + d.name}
	}
	return driver.Diagnosis{Name: "server", OK: true, Note: true,
		Detail: fmt.Sprintf("an emulator at %s: for tests only, it keeps everything in memory", d.emulator)}
}

func (c *client) diagnoseOptions(ctx context.Context) ([]driver.Diagnosis, error) {
	options := map[string]string{"version_retention_period": "1h"} // Spanner's default
	err := c.catalogue(ctx, `SELECT OPTION_NAME, OPTION_VALUE FROM INFORMATION_SCHEMA.DATABASE_OPTIONS`, func(r *spanner.Row) error {
		var name, value string
		err := r.Columns(&name, &value)
		options[name] = value
		return err
	})
	dialect := driver.Diagnosis{Name: "database_dialect", OK: true, Detail: options["database_dialect"]}
	if dialect.Detail != "GOOGLE_STANDARD_SQL" {
		dialect.OK = false
		dialect.Detail = fmt.Sprintf("%q: create a database of the dialect GOOGLE_STANDARD_SQL", dialect.Detail)
	}
	return []driver.Diagnosis{dialect, {
		Name: "version_retention_period", OK: true,
		Detail: options["version_retention_period"] + ": how far back the data can be recovered, to any point in time",
	}}, err
}

// diagnoseTables checks that our tables have the given version, and that columns of times accept
// the commit timestamp.
func (c *client) diagnoseTables(ctx context.Context, version uint) ([]driver.Diagnosis, error) {
	found, err := spannermigrate.Catalogue(ctx, c.Single)
	if err != nil {
		return nil, err
	}
	tables := driver.Diagnosis{Name: "tables"}
	tables.Detail, tables.OK = found.Examine(version)
	fixed := []string{"intents.decided_at", "intents.time", "intents.token", "locks.heartbeat", "locks.token", "refs.time"}
	if found.Has("history") {
		fixed = append(fixed, "history.position", "history_state.pruned", "followers.seen")
	}
	err = c.catalogue(ctx, `
		SELECT CONCAT(TABLE_NAME, '.', COLUMN_NAME) FROM INFORMATION_SCHEMA.COLUMN_OPTIONS
		WHERE TABLE_SCHEMA = '' AND OPTION_NAME = 'allow_commit_timestamp' AND UPPER(OPTION_VALUE) = 'TRUE'`, func(r *spanner.Row) error {
		var name string
		err := r.Columns(&name)
		fixed = slices.DeleteFunc(fixed, func(f string) bool { return f == name })
		return err
	})
	times := driver.Diagnosis{Name: "allow_commit_timestamp", OK: len(fixed) == 0, Detail: "set for all columns that need it"}
	if !times.OK {
		times.Detail = "not set for " + strings.Join(fixed, ", ") + ": set it with ALTER TABLE … ALTER COLUMN … SET OPTIONS (allow_commit_timestamp = true)"
	}
	return []driver.Diagnosis{tables, times}, err
}

// errRollback rolls back the statements that test the privileges.
var errRollback = errors.New("rolled back")

// diagnosePrivileges executes statements that change no row, in a transaction that is rolled back.
// It can't determine whether the account may commit.
func (c *client) diagnosePrivileges(ctx context.Context) ([]driver.Diagnosis, error) {
	d := driver.Diagnosis{Name: "privileges", OK: true, Detail: "refs, locks, intents and history can be read and written, as far as can be determined without a commit"}
	var table string
	_, err := c.ReadWriteTransactionWithOptions(ctx, func(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
		for _, table = range []string{"refs", "locks", "intents", "history"} {
			if _, err := txn.Update(ctx, spanner.NewStatement(`DELETE FROM `+table+` WHERE FALSE`)); err != nil {
				return err
			}
		}
		return errRollback
	}, spanner.TransactionOptions{TransactionTag: "refdb.diagnose"})
	switch {
	case errors.Is(err, errRollback):
		err = nil
	case spanner.ErrCode(err) == codes.PermissionDenied:
		d.OK, d.Detail = false, table+" can't be written: only refdbctl refs list, refs verify, project list and locks list work: "+errDenied.Error()
		err = nil
	case spanner.ErrCode(err) == codes.InvalidArgument, spanner.ErrCode(err) == codes.NotFound:
		// The check of the tables reports what is missing.
		d.Detail, err = "not checked: there is no table "+table, nil
	}
	return []driver.Diagnosis{d}, err
}
