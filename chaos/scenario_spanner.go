package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"time"

	client "cloud.google.com/go/spanner"
	databaseadmin "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	instanceadmin "cloud.google.com/go/spanner/admin/instance/apiv1"
	"cloud.google.com/go/spanner/admin/instance/apiv1/instancepb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/globalrefdb/globalrefdb/internal/testserver"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/spanner"
)

const (
	spannerProject  = "projects/chaos"
	spannerInstance = spannerProject + "/instances/chaos"
	spannerDatabase = spannerInstance + "/databases/refdb"
	spannerURL      = "spanner://" + spannerDatabase

	// lossShare is the share of requests, and of replies, that are lost in that fault.
	lossShare = 0.15
)

// An emulator is a Spanner emulator of our own, which may be killed and started
// again at the same address. It keeps all data in memory.
type emulator struct {
	port, log string
	server    *testserver.Emulator // nil while it is down
}

func newEmulator(log string) (*emulator, error) {
	port, err := testserver.FreePort()
	return &emulator{port: strconv.Itoa(port), log: log}, err
}

func (e *emulator) address() string { return "127.0.0.1:" + e.port }

// options returns the options of Google's client for the emulator.
func (e *emulator) options() []option.ClientOption {
	return []option.ClientOption{
		option.WithEndpoint("passthrough:///" + e.address()), option.WithoutAuthentication(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())),
	}
}

// start starts the emulator, with an empty, migrated database.
func (e *emulator) start(ctx context.Context) error {
	var err error
	e.server, err = testserver.StartEmulator(ctx, testserver.EmulatorOptions{Port: e.port, Log: e.log})
	if err != nil {
		return err
	}
	if err := await(ctx, "the Spanner emulator's instance", func() error { return e.createInstance(ctx) }); err != nil {
		return err
	}
	if err := e.createDatabase(ctx); err != nil {
		return fmt.Errorf("create a Spanner database: %w", err)
	}
	m, err := spanner.Migrator(ctx, spannerURL, spanner.Emulator(e.address()))
	if err != nil {
		return err
	}
	return errors.Join(m.Up(ctx), m.Close())
}

func (e *emulator) createInstance(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	admin, err := instanceadmin.NewInstanceAdminClient(ctx, e.options()...)
	if err != nil {
		return err
	}
	defer admin.Close()
	op, err := admin.CreateInstance(ctx, &instancepb.CreateInstanceRequest{
		Parent: spannerProject, InstanceId: "chaos",
		Instance: &instancepb.Instance{Config: spannerProject + "/instanceConfigs/emulator-config", DisplayName: "chaos", NodeCount: 1},
	})
	if err == nil {
		_, err = op.Wait(ctx)
	}
	return err
}

func (e *emulator) createDatabase(ctx context.Context) error {
	admin, err := databaseadmin.NewDatabaseAdminClient(ctx, e.options()...)
	if err != nil {
		return err
	}
	defer admin.Close()
	op, err := admin.CreateDatabase(ctx, &databasepb.CreateDatabaseRequest{Parent: spannerInstance, CreateStatement: "CREATE DATABASE `refdb`"})
	if err == nil {
		_, err = op.Wait(ctx)
	}
	return err
}

func (e *emulator) kill() error {
	if e.server == nil {
		return nil
	}
	server := e.server
	e.server = nil
	return server.Kill()
}

// countLocks counts the rows of the table of locks.
func (e *emulator) countLocks(ctx context.Context) (int, error) {
	c, err := client.NewClientWithConfig(ctx, spannerDatabase, client.ClientConfig{DisableNativeMetrics: true}, e.options()...)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	var n int64
	err = c.Single().Query(ctx, client.NewStatement("SELECT COUNT(*) FROM locks")).Do(func(r *client.Row) error { return r.Column(0, &n) })
	return int(n), err
}

// newSpannerScenario makes an emulator, and a proxy between it and each site. It
// does not step the emulator's clock: Spanner's own is never set, and the emulator,
// which times its threads by that clock, stops answering when a library steps it.
func newSpannerScenario(ctx context.Context, sc *scenario, _ string) error {
	e, err := newEmulator(filepath.Join(sc.dir, "emulator.log"))
	if err != nil {
		return err
	}
	sc.closers = append(sc.closers, e.kill)
	if err := e.start(ctx); err != nil {
		return err
	}
	n := make(network)
	sc.closers = append(sc.closers, func() error { n.close(); return nil })
	addresses, err := n.connectSites(e.address())
	if err != nil {
		return err
	}
	sc.configure = func(c *siteConfig) error {
		c.URL, c.Spanner = spannerURL, addresses[c.Site]
		return nil
	}
	sc.open = func(ctx context.Context) (*refdb.DB, error) { return openForNemesis(ctx, spannerURL, e.address()) }
	sc.lockRows = e.countLocks
	sc.faults = append(networkFaults(sc, n),
		killSites(sc), freezeSites(sc), stepSite(sc), loseMessages(sc),
		freezeServer("emulator", func() (func(), error) { return e.server.Freeze() }), loseEmulator(sc, e))
	return nil
}

// loseMessages makes sites lose requests before they are sent, and replies to requests that were carried out.
func loseMessages(sc *scenario) fault {
	return fault{"requests and replies lost", func(ctx context.Context, random *rand.Rand) (string, error) {
		sites, length := sc.someSites(random), randomDuration(random, shortest, longest)
		for _, s := range sites {
			if err := sc.sites[s].send(fmt.Sprintf("lose %f", lossShare)); err != nil {
				return "", err
			}
		}
		sleep(ctx, length)
		for _, s := range sites {
			if err := sc.sites[s].send("lose 0"); err != nil {
				return "", err
			}
		}
		return described(sites, length), nil
	}}
}

// loseEmulator kills the emulator and all data with it, and starts another.
func loseEmulator(sc *scenario, e *emulator) fault {
	return fault{"kill -9 of the emulator, all data lost", func(ctx context.Context, random *rand.Rand) (string, error) {
		lost := span{from: now()}
		if err := e.kill(); err != nil {
			return "", err
		}
		sleep(ctx, randomDuration(random, 0, staleAfter))
		if err := e.start(ctx); err != nil {
			return "", err
		}
		lost.to = now()
		sc.dataLost = append(sc.dataLost, lost)
		return "", sc.createRefs(ctx)
	}}
}
