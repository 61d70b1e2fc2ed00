package spanner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"time"

	"cloud.google.com/go/spanner"
	admin "cloud.google.com/go/spanner/admin/database/apiv1"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/migrations/spannermigrate"
	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	scheme = "spanner://"

	// openTime bounds Open. The client would wait for a server that isn't there
	// for as long as its context lasts.
	openTime = 10 * time.Second

	// emulatorVariable is what Google's client libraries obey.
	emulatorVariable = "SPANNER_EMULATOR_HOST"
)

// Open connects to the database at url, which is
//
//	spanner://projects/PROJECT/instances/INSTANCE/databases/DATABASE
//
// with Google's application default credentials, unless opts say otherwise. If
// SPANNER_EMULATOR_HOST is set it is the emulator at that address; [Emulator]
// names one explicitly. An error that is refdb.ErrSchema says how to bring the
// schema to the version needed; if no server answers within ten seconds, the
// error is refdb.ErrUnavailable.
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
	if err := d.checkSchema(ctx); err != nil {
		d.Close()
		return nil, failed("open "+url, err)
	}
	return d, nil
}

// Migrator returns what moves the schema of the database at url; it takes the
// same options as [Open].
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
		option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(watchUnary)),
		option.WithGRPCDialOption(grpc.WithChainStreamInterceptor(watchStream)),
	}, opts...)
	// Credentials are renewed under the context of their creation.
	client, err := spanner.NewClientWithConfig(context.WithoutCancel(ctx), name, spanner.ClientConfig{
		// They want a permission of their own, to write to Cloud Monitoring.
		DisableNativeMetrics: true,
		// It would print what it returns as errors too.
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
		// It is not repeated here: it may be another database's, with a password.
		return "", fmt.Errorf("%w database URL: it has to be spanner://projects/PROJECT/instances/INSTANCE/databases/DATABASE, and no more",
			refdb.ErrInvalid)
	}
	return name, nil
}

// Emulator returns the option to use the Spanner emulator at that address
// (host:port), whatever SPANNER_EMULATOR_HOST says. A driver spares an emulator
// what it can't do, and knows it for one by this option or that variable only.
func Emulator(address string) option.ClientOption {
	return emulatorOption{option.WithEndpoint("passthrough:///" + address), address}
}

type emulatorOption struct {
	option.ClientOption
	address string
}

// findEmulator returns the address of the emulator that is meant, if any, and
// opts in words that the client understands.
func findEmulator(opts []option.ClientOption) (address string, all []option.ClientOption) {
	address = os.Getenv(emulatorVariable)
	for _, o := range opts {
		all = append(all, o)
		if e, ok := o.(emulatorOption); ok {
			address = e.address
			all = append(all, option.WithoutAuthentication(),
				option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))
		}
	}
	return address, all
}
