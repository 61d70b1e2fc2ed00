package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	client "cloud.google.com/go/spanner"
	databaseadmin "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	instanceadmin "cloud.google.com/go/spanner/admin/instance/apiv1"
	"cloud.google.com/go/spanner/admin/instance/apiv1/instancepb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/spanner"
)

const (
	spannerProject  = "projects/chaos"
	spannerInstance = spannerProject + "/instances/chaos"
	spannerDatabase = spannerInstance + "/databases/refdb"
	spannerURL      = "spanner://" + spannerDatabase

	// lossShare is the part of requests, and of replies, that are lost in that fault.
	lossShare = 0.15
)

// An emulator is a Spanner emulator of our own. It keeps all data in memory.
type emulator struct {
	path, address, log string
	process            *process
}

func newEmulator(log string) (*emulator, error) {
	path, err := exec.LookPath("emulator_main")
	if err != nil {
		path = "/usr/lib/google-cloud-sdk/bin/cloud_spanner_emulator/emulator_main"
		if _, statErr := os.Stat(path); statErr != nil {
			return nil, errors.Join(err, errors.New("no Spanner emulator: install it (`make deps`)"))
		}
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	return &emulator{path: path, address: "127.0.0.1:" + strconv.Itoa(port), log: log}, nil
}

// options lead a client of Google's to it.
func (e *emulator) options() []option.ClientOption {
	return []option.ClientOption{
		option.WithEndpoint("passthrough:///" + e.address), option.WithoutAuthentication(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())),
	}
}

// start starts it, with an empty, migrated database.
func (e *emulator) start(ctx context.Context) error {
	cmd := exec.Command(e.path, "--host_port", e.address)
	p, err := spawn(cmd, e.log)
	if err != nil {
		return err
	}
	e.process = p
	if err := await(ctx, "the Spanner emulator's instance", func() error { return e.createInstance(ctx) }); err != nil {
		return err
	}
	if err := e.createDatabase(ctx); err != nil {
		return fmt.Errorf("create a Spanner database: %w", err)
	}
	m, err := spanner.Migrator(ctx, spannerURL, spanner.Emulator(e.address))
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
	if e.process != nil {
		e.process.kill()
		e.process = nil
	}
	return nil
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

// newSpannerBed makes an emulator, and a proxy between it and each site. Its
// clock is left alone: Spanner's own is never set, and the emulator, which times its
// threads by the same clock, stops answering when a library steps it.
func newSpannerBed(ctx context.Context, b *bed, _ string) error {
	e, err := newEmulator(filepath.Join(b.dir, "emulator.log"))
	if err != nil {
		return err
	}
	b.closers = append(b.closers, e.kill)
	if err := e.start(ctx); err != nil {
		return err
	}
	n := newNetwork()
	b.closers = append(b.closers, func() error { n.close(); return nil })
	addresses := make(map[string]string)
	for _, site := range siteNames {
		if addresses[site], err = n.connect(site, e.address); err != nil {
			return err
		}
	}
	b.configure = func(c *siteConfig) error {
		c.URL, c.Spanner = spannerURL, addresses[c.Site]
		return nil
	}
	b.open = func(ctx context.Context) (*refdb.DB, error) { return openForNemesis(ctx, spannerURL, e.address) }
	b.lockRows = e.countLocks
	b.faults = append(networkFaults(b, n),
		killSites(b), freezeSites(b), stepSite(b), loseMessages(b),
		freezeEmulator(e), loseEmulator(b, e))
	return nil
}

// loseMessages makes sites lose requests before they are sent, and replies to what was done.
func loseMessages(b *bed) fault {
	return fault{"requests and replies lost", func(ctx context.Context, random *rand.Rand) (string, error) {
		sites, length := b.some(random), within(random, shortest, longest)
		for _, s := range sites {
			if err := b.sites[s].tell(fmt.Sprintf("lose %f", lossShare)); err != nil {
				return "", err
			}
		}
		rest(ctx, length)
		for _, s := range sites {
			if err := b.sites[s].tell("lose 0"); err != nil {
				return "", err
			}
		}
		return described(sites, length), nil
	}}
}

func freezeEmulator(e *emulator) fault {
	return fault{"emulator frozen", func(ctx context.Context, random *rand.Rand) (string, error) {
		if err := e.process.Process.Signal(syscall.SIGSTOP); err != nil {
			return "", err
		}
		length := within(random, shortest, longest)
		rest(ctx, length)
		return "for " + length.Round(time.Millisecond).String(), e.process.Process.Signal(syscall.SIGCONT)
	}}
}

// loseEmulator kills the emulator and all data with it, and starts another.
func loseEmulator(b *bed, e *emulator) fault {
	return fault{"kill -9 of the emulator, all data lost", func(ctx context.Context, random *rand.Rand) (string, error) {
		lost := span{from: now()}
		if err := e.kill(); err != nil {
			return "", err
		}
		rest(ctx, within(random, 0, staleAfter))
		if err := e.start(ctx); err != nil {
			return "", err
		}
		lost.to = now()
		b.dataLost = append(b.dataLost, lost)
		return "", b.plant(ctx)
	}}
}
