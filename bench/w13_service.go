package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/globalrefdb/globalrefdb/bench/internal/machine"
	"github.com/globalrefdb/globalrefdb/bench/internal/site"
	refdbv1 "github.com/globalrefdb/globalrefdb/proto/refdb/v1"
	"github.com/globalrefdb/globalrefdb/proto/refdb/v1/refdbv1connect"
	"github.com/globalrefdb/globalrefdb/service/access"
)

const (
	databaseCPU = "database_cpu_ms_per_op"
	serverCPU   = "server_cpu_ms_per_op"

	serviceLease = time.Minute
)

// serviceWorkload is W13: processes with one worker each, directly and by way of refdb-server.
func serviceWorkload(ctx context.Context, s *servers) (workload, error) {
	programs, err := s.needPrograms(ctx)
	if err == nil {
		err = s.needEtcd()
	}
	if err != nil {
		return workload{}, err
	}
	w := workload{
		id:    "W13",
		title: "lock + release by processes with one worker each: directly, by way of refdb-server, and of etcd's gateway",
		setting: fmt.Sprintf("PostgreSQL %s: %srefdb-server as it is released, on the same machine, without TLS; Connect's protocol with protobuf, HTTP/1.1; "+
			"each client is a subject of its own. etcd %s: one member in this process, default settings; JSON over HTTP/1.1, a lease for each client. "+
			"CPU: of all of PostgreSQL's processes, by their schedstat; of refdb-server and of etcd with its gateway, from /proc.", s.postgres.version, postgresSetting, etcdVersion()),
		metrics: append(rateMetrics("ops/s"), metric{databaseCPU, "database CPU ms per op", 3}, metric{serverCPU, "server CPU ms per op", 3}),
	}
	for _, n := range []int{1, 64} {
		name := "1 process"
		if n > 1 {
			name = fmt.Sprintf("%d processes", n)
		}
		w.cases = append(w.cases, benchCase{name: name, baseline: "direct", contestants: []contestant{
			{"direct", func(ctx context.Context) (sample, error) { return s.direct(ctx, n) }},
			{"refdb-server", func(ctx context.Context) (sample, error) { return s.served(ctx, programs, n) }},
			{"etcd's gateway", func(ctx context.Context) (sample, error) { return s.gateway(ctx, n) }},
		}})
	}
	return w, nil
}

// needPrograms makes ready PostgreSQL and the programs, and returns the directory of these.
func (s *servers) needPrograms(ctx context.Context) (string, error) {
	if err := s.needPostgres(ctx); err != nil {
		return "", err
	}
	return site.Build(ctx, s.dir)
}

// A serviceTask is what a child does: to lock and release, in turn, the refs of a worker.
type serviceTask struct {
	Worker int
	D      time.Duration
	URL    string // of the database; "" for a client of a server
	Server string
	Token  string
	// Of a client of etcd.
	Gateway string // its URL
	Prefix  string // of the keys
}

// serviceWork is what a child has done.
type serviceWork struct {
	Took []time.Duration // of the operations that were measured
	Ops  int64           // all, with those before
}

func serviceChild(ctx context.Context, in *json.Decoder, out *json.Encoder) error {
	var task serviceTask
	if err := in.Decode(&task); err != nil {
		return err
	}
	do, closeChild, err := task.open(ctx)
	if err != nil {
		return err
	}
	var ops atomic.Int64
	counted := inTurn(task.Worker, func(ctx context.Context, ref string) error {
		ops.Add(1)
		return do(ctx, ref)
	})
	err = counted(ctx) // connects
	if err == nil {
		err = out.Encode("ready")
	}
	var begin string
	if err == nil {
		err = in.Decode(&begin)
	}
	if err == nil {
		var took []time.Duration
		ops.Store(0)
		took, err = durations(ctx, task.D, []op{counted})
		if err == nil {
			err = out.Encode(serviceWork{took, ops.Load()})
		}
		_ = in.Decode(&begin) // the end: until then the database's processes are there to be looked at
	}
	return errors.Join(err, closeChild())
}

func (task serviceTask) open(ctx context.Context) (do func(context.Context, string) error, closeChild func() error, err error) {
	if task.URL != "" {
		db, err := openRefdb(ctx, task.URL, nil)
		if err != nil {
			return nil, nil, err
		}
		return func(ctx context.Context, ref string) error {
			lock, err := db.TryLock(ctx, project, ref)
			if err != nil {
				return err
			}
			return lock.Release(ctx)
		}, db.Close, nil
	}
	if task.Gateway != "" {
		g, err := openGateway(ctx, task.Gateway, task.Prefix)
		if err != nil {
			return nil, nil, err
		}
		return g.lockAndRelease, func() error { return nil }, nil
	}
	client := refdbv1connect.NewRefdbServiceClient(http.DefaultClient, task.Server)
	return func(ctx context.Context, ref string) error {
		acquire := connect.NewRequest(&refdbv1.AcquireRequest{Project: project, Refs: []string{ref}, LeaseTime: durationpb.New(serviceLease)})
		acquire.Header().Set("Authorization", "Bearer "+task.Token)
		acquired, err := client.Acquire(ctx, acquire)
		if err != nil {
			return err
		}
		if acquired.Msg.GetAcquired() == nil {
			return fmt.Errorf("not acquired: %v", acquired.Msg)
		}
		release := connect.NewRequest(&refdbv1.ReleaseRequest{Lock: acquired.Msg.GetAcquired().Lock})
		release.Header().Set("Authorization", "Bearer "+task.Token)
		released, err := client.Release(ctx, release)
		if err == nil && released.Msg.GetReleased() == nil {
			err = fmt.Errorf("not released: %v", released.Msg)
		}
		return err
	}, func() error { return nil }, nil
}

// direct measures n processes that are connected to the database.
func (s *servers) direct(ctx context.Context, n int) (sample, error) {
	return s.postgres.withDatabase(ctx, migratedTemplate, func(url string) (sample, error) {
		tasks := make([]serviceTask, n)
		for i := range tasks {
			tasks[i] = serviceTask{Worker: i, D: s.d, URL: url}
		}
		return s.work(ctx, url, tasks, 0)
	})
}

// served measures n clients of a server.
func (s *servers) served(ctx context.Context, programs string, n int) (sample, error) {
	return s.postgres.withDatabase(ctx, migratedTemplate, func(url string) (sample, error) {
		tasks, err := s.clients(ctx, url, n)
		if err != nil {
			return nil, err
		}
		return withServer(ctx, programs, url, func(server string, pid int) (sample, error) {
			for i := range tasks {
				tasks[i].Server = server
			}
			return s.work(ctx, url, tasks, pid)
		})
	})
}

// withServer calls do with the URL and the process of a refdb-server on the database at url.
func withServer(ctx context.Context, programs, url string, do func(server string, pid int) (sample, error)) (_ sample, err error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	server := exec.CommandContext(ctx, filepath.Join(programs, "refdb-server"), "--listen", address, "--stop-delay", "0", "--log-level", "error")
	server.Env = append(os.Environ(), "REFDB_URL="+url)
	if err := server.Start(); err != nil {
		return nil, err
	}
	defer func() {
		err = errors.Join(err, server.Process.Signal(syscall.SIGTERM), server.Wait())
	}()
	if err := awaitReady(ctx, "http://"+address); err != nil {
		return nil, err
	}
	return do("http://"+address, server.Process.Pid)
}

// clients creates n subjects with a token and the right to lock.
func (s *servers) clients(ctx context.Context, url string, n int) ([]serviceTask, error) {
	db, err := openRefdb(ctx, url, nil)
	if err != nil {
		return nil, err
	}
	tasks := make([]serviceTask, n)
	for i := range tasks {
		subject := fmt.Sprintf("client-%d", i)
		token, _, err := access.CreateToken(ctx, db, subject, time.Hour, "")
		if err == nil {
			_, _, err = access.AddRule(ctx, db, access.Rule{Subject: subject, Projects: project, Refs: access.All, Right: access.Lock})
		}
		if err != nil {
			return nil, errors.Join(err, db.Close())
		}
		tasks[i] = serviceTask{Worker: i, D: s.d, Token: token}
	}
	return tasks, db.Close()
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// awaitReady waits until a server has read the rules.
func awaitReady(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, stuckAfter)
	defer cancel()
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(r)
		if err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("refdb-server is not ready: %w", errors.Join(err, ctx.Err()))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// work measures children that do a task each. The process server is refdb-server; 0 if there is none.
func (s *servers) work(ctx context.Context, url string, tasks []serviceTask, server int) (_ sample, err error) {
	monitor, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, monitor.Close(ctx)) }()
	return s.measureWork(ctx, tasks, func() (consumption, error) { return consumed(ctx, monitor, server) })
}

// measureWork lets a child do each task, all at a time, and returns what that consumes by what used tells.
func (s *servers) measureWork(ctx context.Context, tasks []serviceTask, used func() (consumption, error)) (sample, error) {
	var children []*child
	defer func() {
		for _, c := range children {
			c.stop()
		}
	}()
	for _, task := range tasks {
		c, err := startChild(ctx, serviceRole, task)
		if err != nil {
			return nil, err
		}
		children = append(children, c)
	}
	for _, c := range children {
		var ready string
		if err := c.receive(&ready); err != nil {
			return nil, err
		}
	}
	before, err := used()
	if err != nil {
		return nil, err
	}
	for _, c := range children {
		if err := c.send("begin"); err != nil {
			return nil, err
		}
	}
	var all []time.Duration
	var ops int64
	for _, c := range children {
		var did serviceWork
		if err := c.receive(&did); err != nil {
			return nil, err
		}
		all, ops = append(all, did.Took...), ops+did.Ops
	}
	after, err := used()
	if err != nil {
		return nil, err
	}
	result := rates(all, s.d)
	after.since(before, ops, result)
	return result, nil
}

// A consumption is the CPU time that PostgreSQL and refdb-server have used so far.
type consumption struct{ database, server time.Duration }

// since adds what was consumed for each of so many operations.
func (c consumption) since(before consumption, ops int64, result sample) {
	result[databaseCPU] = milliseconds(c.database-before.database) / float64(ops)
	result[serverCPU] = milliseconds(c.server-before.server) / float64(ops)
}

func consumed(ctx context.Context, monitor *pgx.Conn, server int) (c consumption, err error) {
	u, err := machine.UsageOf(ctx, monitor)
	if err != nil || server == 0 {
		return consumption{database: u.CPU}, err
	}
	own, _, err := cpuTimesOf(server)
	return consumption{u.CPU, own}, err
}
