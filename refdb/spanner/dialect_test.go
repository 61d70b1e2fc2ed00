package spanner_test

import (
	"context"
	"strings"
	"testing"

	databaseadmin "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"

	"github.com/globalrefdb/globalrefdb/refdb/spanner"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

func TestADatabaseOfTheOtherDialectIsRefusedByItsName(t *testing.T) {
	empty := dbtest.SpannerEmpty(t)
	instance, _, _ := strings.Cut(strings.TrimPrefix(empty, "spanner://"), "/databases/")
	a, err := databaseadmin.NewDatabaseAdminClient(t.Context())
	must(t, err)
	defer a.Close()
	op, err := a.CreateDatabase(t.Context(), &databasepb.CreateDatabaseRequest{
		Parent: instance, CreateStatement: `CREATE DATABASE other_dialect`, DatabaseDialect: databasepb.DatabaseDialect_POSTGRESQL,
	})
	must(t, err)
	_, err = op.Wait(t.Context())
	must(t, err)
	name := instance + "/databases/other_dialect"
	defer a.DropDatabase(context.WithoutCancel(t.Context()), &databasepb.DropDatabaseRequest{Database: name})

	const want = "PostgreSQL dialect: create one of the dialect GOOGLE_STANDARD_SQL"
	if _, err := spanner.Open(t.Context(), "spanner://"+name); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("opening: %v", err)
	}
	m, err := spanner.Migrator(t.Context(), "spanner://"+name)
	if err == nil {
		err = m.Up(t.Context())
		m.Close()
	}
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("migrating: %v", err)
	}
}
