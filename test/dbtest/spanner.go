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

	"github.com/globalrefdb/globalrefdb/internal/testserver"
	"github.com/globalrefdb/globalrefdb/refdb/drivers/schema"
)

const (
	// Google's client libraries read emulatorVariable, too.
	emulatorVariable = "SPANNER_EMULATOR_HOST"
	spannerProject   = "projects/refdb-test"
)

// A spannerServer is an instance of our own on an emulator.
type spannerServer struct {
	instance string // projects/P/instances/I
}

var theSpanner = sync.OnceValues(findSpanner)

// Spanner returns a new migrated database on the package's Spanner emulator. It
// is dropped at the test's end.
func Spanner(tb testing.TB) *Database {
	tb.Helper()
	d := newSpanner(tb)
	if err := schema.Up(within(tb), d.url); err != nil {
		tb.Fatalf("prepare a Spanner database: %v", err)
	}
	return d
}

// SpannerEmpty returns the address of a new database without a schema. It is
// dropped at the test's end.
func SpannerEmpty(tb testing.TB) string {
	tb.Helper()
	return newSpanner(tb).URL()
}

func newSpanner(tb testing.TB) *Database {
	tb.Helper()
	s, err := theSpanner()
	if err != nil {
		tb.Fatal(err)
	}
	id := uniqueName("test")
	name := s.instance + "/databases/" + id
	err = administer(within(tb), func(ctx context.Context, a *databaseadmin.DatabaseAdminClient) error {
		op, err := a.CreateDatabase(ctx, &databasepb.CreateDatabaseRequest{
			Parent: s.instance, CreateStatement: "CREATE DATABASE `" + id + "`",
		})
		if err != nil {
			return err
		}
		_, err = op.Wait(ctx)
		return err
	})
	if err != nil {
		tb.Fatalf("create a Spanner database: %v", err)
	}
	tb.Cleanup(func() {
		if err := administer(within(tb), func(ctx context.Context, a *databaseadmin.DatabaseAdminClient) error {
			return a.DropDatabase(ctx, &databasepb.DropDatabaseRequest{Database: name})
		}); err != nil {
			tb.Errorf("drop a Spanner database: %v", err)
		}
	})
	c, err := client.NewClientWithConfig(within(tb), name, client.ClientConfig{DisableNativeMetrics: true})
	if err != nil {
		tb.Fatalf("connect to a new Spanner database: %v", err)
	}
	return newDatabase(tb, spannerKind(), "spanner://"+name, &spannerRows{client: c, name: name})
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
	started.add(e)
	return connectSpanner(e.Address, e.Program())
}

// connectSpanner uses the emulator at address; where says what it is. Child
// processes find it too.
func connectSpanner(address, where string) (*spannerServer, error) {
	if err := os.Setenv(emulatorVariable, address); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	admin, err := instanceadmin.NewInstanceAdminClient(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", where, err)
	}
	defer admin.Close()
	// Each process creates an instance of its own, so that several processes can
	// share an emulator.
	id := "i" + strings.ReplaceAll(uniqueName("test"), "_", "-")
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
		started.add(stopFunc(func() error { return dropInstance(instance) }))
	}
	served("Spanner emulator at %s (%s)", address, where)
	return &spannerServer{instance: instance}, nil
}

func dropInstance(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
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
