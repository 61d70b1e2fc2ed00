package spanner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"strings"
	"time"

	"cloud.google.com/go/spanner"
	admin "cloud.google.com/go/spanner/admin/database/apiv1"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/migrations/spannermigrate"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

const (
	scheme = "spanner://"

	// openTimeout bounds Open. The client would wait for a missing server until its context ends.
	openTimeout = 10 * time.Second
)

// Open connects to the database at url, which is
//
//	spanner://projects/PROJECT/instances/INSTANCE/databases/DATABASE
//
// with Google's application default credentials, unless opts say otherwise. If
// SPANNER_EMULATOR_HOST is set, it connects to the emulator at that address; [Emulator] names one
// explicitly. If the error is driver.ErrSchema, it says how to bring the schema to the required
// version; if no server answers within ten seconds, the error is driver.ErrUnavailable.
func Open(ctx context.Context, url string, opts ...option.ClientOption) (*Driver, error) {
	name, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	emulator, opts := findEmulator(opts)
	connect := func() (*spanner.Client, error) { return newClient(ctx, name, opts) }
	d, err := newDriver(connect, name, emulator)
	if err != nil {
		return nil, failed("open "+url, err)
	}
	if err := d.CheckSchema(ctx); err != nil {
		d.Close()
		return nil, failed("open "+url, err)
	}
	return d, nil
}

// Migrator returns a migrator of the schema of the database at url. It takes the same options as
// [Open].
func Migrator(ctx context.Context, url string, opts ...option.ClientOption) (*migrations.Migrator, error) {
	name, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	_, opts = findEmulator(opts)
	ddl, err := admin.NewDatabaseAdminClient(context.WithoutCancel(ctx), opts...)
	if err != nil {
		return nil, failed("open "+url, failed("set up the client", oneLine{err}))
	}
	rows, err := newClient(ctx, name, opts)
	if err != nil {
		return nil, errors.Join(failed("open "+url, err), ddl.Close())
	}
	return spannermigrate.New(ddl, rows, name)
}

// newClient returns a client of the database. It does not wait for the server.
func newClient(ctx context.Context, name string, opts []option.ClientOption) (*spanner.Client, error) {
	opts = append([]option.ClientOption{
		option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(interceptUnary)),
		option.WithGRPCDialOption(grpc.WithChainStreamInterceptor(interceptStream)),
	}, opts...)
	// The client renews credentials under the context of their creation.
	client, err := spanner.NewClientWithConfig(context.WithoutCancel(ctx), name, spanner.ClientConfig{
		// Writing the metrics requires a permission for Cloud Monitoring.
		DisableNativeMetrics: true,
		// The client would print errors that it also returns.
		Logger: log.New(io.Discard, "", 0),
	}, opts...)
	if err != nil {
		return nil, failed("set up the client", oneLine{err})
	}
	return client, nil
}

// parseURL returns the name of the database that url addresses.
func parseURL(url string) (name string, err error) {
	name, ok := strings.CutPrefix(url, scheme)
	parts := strings.Split(name, "/")
	if !ok || len(parts) != 6 || parts[0] != "projects" || parts[2] != "instances" || parts[4] != "databases" ||
		parts[1] == "" || parts[3] == "" || parts[5] == "" || strings.ContainsAny(name, "?#%@ \t\r\n") {
		// The URL is not repeated here: it may be that of another database, with a password.
		return "", fmt.Errorf("%w database URL: it has to be spanner://projects/PROJECT/instances/INSTANCE/databases/DATABASE, and nothing else",
			driver.ErrInvalid)
	}
	return name, nil
}

// CheckSchema implements driver.SchemaChecker.
func (d *Driver) CheckSchema(ctx context.Context) error {
	var recorded migrations.Record
	var missing error
	r := request{tag: "refdb.open", what: "read the schema's version", timeout: openTimeout}
	err := d.read(ctx, r, func(ctx context.Context, c *client) (err error) {
		missing = nil
		recorded, err = c.version(ctx, r, migrations.Table)
		if spanner.ErrCode(err) != codes.NotFound {
			return err
		}
		// Either the table or the whole database is missing. Every database has a catalogue.
		found, err := spannermigrate.Catalogue(ctx, c.Single)
		if err != nil {
			return err
		}
		if table := found.VersionTable(); table != "" {
			recorded, err = c.version(ctx, r, table)
			return err
		}
		missing = found.Missing()
		return nil
	})
	if err != nil {
		return err
	}
	if err = cmp.Or(missing, migrations.Check(migrations.Spanner, recorded)); err != nil {
		return fmt.Errorf("%w: %w", driver.ErrSchema, err)
	}
	d.version.Store(uint64(recorded.Version))
	return d.checkAdmission(ctx)
}

// version reads a table of schema versions. Only our own table has the oldest version that programs
// must support.
func (c *client) version(ctx context.Context, r request, table string) (recorded migrations.Record, err error) {
	var version int64
	var oldest spanner.NullInt64
	columns, into := []string{"Version", "Dirty", "Oldest"}, []any{&version, &recorded.Dirty, &oldest}
	if table != migrations.Table {
		columns, into = columns[:2], into[:2]
	}
	rows := c.Single().ReadWithOptions(ctx, table, spanner.AllKeys(), columns, &spanner.ReadOptions{Limit: 1, RequestTag: r.tag})
	err = rows.Do(func(row *spanner.Row) error {
		err := row.Columns(into...)
		recorded.Version, recorded.Oldest, recorded.Exists = uint(max(version, 0)), uint(max(oldest.Int64, 0)), true
		return err
	})
	return recorded, err
}

// explainMissing determines what the server may not have found. It returns ErrSchema if a table or
// column that the driver needs is missing, ErrUnavailable if the session is, another error if the
// database is, and nil if nothing is missing or the cause is unknown.
func (c *client) explainMissing(ctx context.Context) error {
	found, err := spannermigrate.Catalogue(ctx, c.Single)
	switch {
	case sessionLost(err):
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, oneLine{err})
	case errors.Is(err, spannermigrate.ErrDialect):
		return err
	case spanner.ErrCode(err) == codes.NotFound:
		return fmt.Errorf("%w: %w", errNoDatabase, oneLine{err})
	case err != nil:
		return nil
	}
	version := migrations.Latest(migrations.Spanner)
	if recorded, err := c.version(ctx, request{tag: "refdb.schema"}, migrations.Table); err == nil && recorded.Exists {
		version = recorded.Version
	}
	if detail, ok := found.Examine(version); !ok {
		return fmt.Errorf("%w: %s", driver.ErrSchema, detail)
	}
	return nil
}

// catalogue queries the database's own description of itself.
func (c *client) catalogue(ctx context.Context, sql string, each func(*spanner.Row) error) error {
	return c.Single().QueryWithOptions(ctx, spanner.NewStatement(sql), spanner.QueryOptions{RequestTag: "refdb.schema"}).Do(each)
}
