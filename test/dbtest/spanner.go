package dbtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	client "cloud.google.com/go/spanner"
	databaseadmin "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	instanceadmin "cloud.google.com/go/spanner/admin/instance/apiv1"
	"cloud.google.com/go/spanner/admin/instance/apiv1/instancepb"
	"google.golang.org/api/option"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/globalrefdb/globalrefdb/internal/testserver"
	"github.com/globalrefdb/globalrefdb/refdb/spanner"
	"github.com/globalrefdb/globalrefdb/test/dbtest/internal/testdb"
)

const (
	// Google's client libraries read emulatorVariable, too.
	emulatorVariable = "SPANNER_EMULATOR_HOST"
	spannerProject   = "projects/refdb-test"
)

// A spannerServer is an instance of our own on an emulator.
type spannerServer struct {
	instance string // projects/P/instances/I
	// template returns what a migrated database begins with.
	template func() (spannerTemplate, error)
	log      testdb.ServerLog // nil if it is unknown
}

// A spannerTemplate is the schema and the rows of a migrated database: the emulator has made them long before it has gone through
// all migrations.
type spannerTemplate struct {
	schema []string
	rows   []*client.Mutation
}

var theSpanner = sync.OnceValues(findSpanner)

// Spanner returns a new migrated database on the package's Spanner emulator. It
// is dropped at the test's end.
func Spanner(tb testing.TB) *testdb.Database {
	tb.Helper()
	s, err := theSpanner()
	if err != nil {
		testdb.ExplainFailure(tb, nil, testdb.EveryLine)
		tb.Fatal(err)
	}
	template, err := s.template()
	if err != nil {
		testdb.ExplainFailure(tb, s.log, testdb.EveryLine)
		tb.Fatalf("prepare a Spanner database: %v", err)
	}
	return s.newDatabase(tb, template)
}

// SpannerEmpty returns the address of a new database without a schema. It is
// dropped at the test's end.
func SpannerEmpty(tb testing.TB) string {
	tb.Helper()
	return emptySpanner(tb).URL()
}

func emptySpanner(tb testing.TB) *testdb.Database {
	tb.Helper()
	s, err := theSpanner()
	if err != nil {
		testdb.ExplainFailure(tb, nil, testdb.EveryLine)
		tb.Fatal(err)
	}
	return s.newDatabase(tb, spannerTemplate{})
}

func (s *spannerServer) newDatabase(tb testing.TB, template spannerTemplate) *testdb.Database {
	tb.Helper()
	testdb.ExplainFailure(tb, s.log, testdb.EveryLine)
	name, err := s.create(testdb.Within(tb), testdb.UniqueName("test"), template.schema)
	if err != nil {
		tb.Fatalf("create a Spanner database: %v", err)
	}
	tb.Cleanup(func() {
		if err := drop(testdb.Within(tb), name); err != nil {
			tb.Errorf("drop a Spanner database: %v", err)
		}
	})
	c, err := connect(testdb.Within(tb), name)
	if err != nil {
		tb.Fatalf("connect to a new Spanner database: %v", err)
	}
	d := testdb.New(tb, spannerKind(), "spanner://"+name, &spannerRows{client: c, name: name})
	if len(template.rows) > 0 {
		if _, err := c.Apply(testdb.Within(tb), template.rows); err != nil {
			tb.Fatalf("prepare a Spanner database: %v", err)
		}
	}
	return d
}

func (s *spannerServer) newTemplate() (t spannerTemplate, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), testdb.Timeout)
	defer cancel()
	name, err := s.create(ctx, testdb.UniqueName("template"), nil)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, drop(ctx, name)) }()
	m, err := spanner.Migrator(ctx, "spanner://"+name)
	if err := testdb.Up(ctx, m, err); err != nil {
		return t, err
	}
	err = administer(ctx, func(ctx context.Context, a *databaseadmin.DatabaseAdminClient) error {
		ddl, err := a.GetDatabaseDdl(ctx, &databasepb.GetDatabaseDdlRequest{Database: name})
		t.schema = ddl.GetStatements()
		return err
	})
	if err != nil {
		return t, err
	}
	c, err := connect(ctx, name)
	if err != nil {
		return t, err
	}
	defer c.Close()
	t.rows, err = allRows(ctx, c, true)
	return t, err
}

// SpannerCopy returns a new database with all rows of another, as of one moment. So does a backup that is restored, which the
// emulator can't do.
func SpannerCopy(tb testing.TB, of *testdb.Database) *testdb.Database {
	tb.Helper()
	s, err := theSpanner()
	if err != nil {
		tb.Fatal(err)
	}
	t, err := s.template()
	if err != nil {
		tb.Fatal(err)
	}
	c, err := connect(testdb.Within(tb), strings.TrimPrefix(of.URL(), "spanner://"))
	if err != nil {
		tb.Fatalf("connect to a Spanner database: %v", err)
	}
	defer c.Close()
	if t.rows, err = allRows(testdb.Within(tb), c, false); err != nil {
		tb.Fatalf("copy a Spanner database: %v", err)
	}
	return s.newDatabase(tb, t)
}

// allRows returns what inserts the rows of all tables, as of one moment. If the copy begins when it is made, times of a commit are those
// of the commit that inserts them.
func allRows(ctx context.Context, c *client.Client, begins bool) (inserts []*client.Mutation, err error) {
	one := c.ReadOnlyTransaction()
	defer one.Close()
	commits := map[[2]string]bool{} // table and column
	err = one.Query(ctx, client.NewStatement(`SELECT table_name, column_name FROM information_schema.column_options
		WHERE table_schema = '' AND option_name = 'allow_commit_timestamp'`)).Do(func(r *client.Row) error {
		var table, column string
		err := r.Columns(&table, &column)
		commits[[2]string{table, column}] = true
		return err
	})
	var tables []string
	err = errors.Join(err, one.Query(ctx, client.NewStatement(`SELECT table_name FROM information_schema.tables WHERE table_schema = ''`)).Do(func(r *client.Row) error {
		var table string
		err := r.Columns(&table)
		tables = append(tables, table)
		return err
	}))
	for _, table := range tables {
		err = errors.Join(err, one.Query(ctx, client.NewStatement("SELECT * FROM `"+table+"`")).Do(func(r *client.Row) error {
			values := make([]any, r.Size())
			for i, column := range r.ColumnNames() {
				var v client.GenericColumnValue
				if err := r.Column(i, &v); err != nil {
					return err
				}
				values[i] = v
				if _, null := v.Value.GetKind().(*structpb.Value_NullValue); begins && commits[[2]string{table, column}] && !null {
					values[i] = client.CommitTimestamp
				}
			}
			inserts = append(inserts, client.Insert(table, r.ColumnNames(), values))
			return nil
		}))
	}
	return inserts, err
}

// create returns the name of a new database.
func (s *spannerServer) create(ctx context.Context, id string, schema []string) (name string, err error) {
	err = administer(ctx, func(ctx context.Context, a *databaseadmin.DatabaseAdminClient) error {
		op, err := a.CreateDatabase(ctx, &databasepb.CreateDatabaseRequest{
			Parent: s.instance, CreateStatement: "CREATE DATABASE `" + id + "`", ExtraStatements: schema,
		})
		if err != nil {
			return err
		}
		_, err = op.Wait(ctx)
		return err
	})
	return s.instance + "/databases/" + id, err
}

func drop(ctx context.Context, name string) error {
	return administer(ctx, func(ctx context.Context, a *databaseadmin.DatabaseAdminClient) error {
		return a.DropDatabase(ctx, &databasepb.DropDatabaseRequest{Database: name})
	})
}

// connect opens a single connection, which the first request waits for: of several, some would still be connecting when a test looks
// which goroutines there are.
func connect(ctx context.Context, name string) (*client.Client, error) {
	return client.NewClientWithConfig(ctx, name, client.ClientConfig{DisableNativeMetrics: true}, option.WithGRPCConnectionPool(1))
}

// administer connects for one use: an idle connection would look like a leak.
func administer(ctx context.Context, f func(context.Context, *databaseadmin.DatabaseAdminClient) error) error {
	a, err := databaseadmin.NewDatabaseAdminClient(ctx)
	if err != nil {
		return err
	}
	defer a.Close()
	return f(ctx, a)
}

func findSpanner() (*spannerServer, error) {
	if address := os.Getenv(emulatorVariable); address != "" {
		return connectSpanner(address, emulatorVariable)
	}
	e, err := testserver.StartEmulator(context.Background(), testserver.EmulatorOptions{})
	var missing testserver.NotInstalledError
	if errors.As(err, &missing) {
		return containerSpanner(fmt.Errorf("%w, or set %s to the address of one", err, emulatorVariable))
	}
	if err != nil {
		return nil, err
	}
	testdb.StopAtEnd(e)
	s, err := connectSpanner(e.Address, e.Program())
	if err != nil {
		return nil, err
	}
	s.log = e
	return s, nil
}

// connectSpanner uses the emulator at address; where says what it is. Child
// processes find it too.
func connectSpanner(address, where string) (*spannerServer, error) {
	if err := os.Setenv(emulatorVariable, address); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), testdb.Timeout)
	defer cancel()
	admin, err := instanceadmin.NewInstanceAdminClient(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", where, err)
	}
	defer admin.Close()
	// Each process creates an instance of its own, so that several processes can
	// share an emulator.
	id := "i" + strings.ReplaceAll(testdb.UniqueName("test"), "_", "-")
	op, err := admin.CreateInstance(ctx, &instancepb.CreateInstanceRequest{
		Parent:     spannerProject,
		InstanceId: id,
		Instance:   &instancepb.Instance{Config: spannerProject + "/instanceConfigs/emulator-config", DisplayName: id, NodeCount: 1},
	})
	if err == nil {
		_, err = op.Wait(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("create an instance on %s: %w", where, err)
	}
	instance := spannerProject + "/instances/" + id
	if where == emulatorVariable {
		testdb.StopAtEnd(testdb.StopFunc(func() error { return dropInstance(instance) }))
	}
	testdb.Served("Spanner emulator at %s (%s)", address, where)
	s := &spannerServer{instance: instance}
	s.template = sync.OnceValues(s.newTemplate)
	return s, nil
}

func dropInstance(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), testdb.Timeout)
	defer cancel()
	admin, err := instanceadmin.NewInstanceAdminClient(ctx)
	if err != nil {
		return err
	}
	defer admin.Close()
	if err := admin.DeleteInstance(ctx, &instancepb.DeleteInstanceRequest{Name: name}); err != nil {
		return fmt.Errorf("drop instance %s: %w", name, err)
	}
	return nil
}
