package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/globalrefdb/globalrefdb/bench/internal/report"
	refdbv1 "github.com/globalrefdb/globalrefdb/proto/refdb/v1"
	"github.com/globalrefdb/globalrefdb/proto/refdb/v1/refdbv1connect"
)

const (
	// extendTick is how often a client extends its lock.
	extendTick = 10 * time.Second
	// extendSubjects is how many subjects the clients are, in equal shares.
	extendSubjects = 100

	clientMemory   = "kb_per_client"
	tickTrips      = "round_trips_per_tick"
	tickStatements = "statements_per_tick"
)

// extendWorkload is the part of W13 with clients that keep their locks, each by a connection of its own.
func extendWorkload(ctx context.Context, s *servers) (workload, error) {
	programs, err := s.needPrograms(ctx)
	if err != nil {
		return workload{}, err
	}
	w := workload{
		id:    "W13",
		title: fmt.Sprintf("clients of refdb-server that extend a lock every %s", extendTick),
		setting: fmt.Sprintf("PostgreSQL %s: %srefdb-server as in the table above; each client has a lock and a connection of its own, all in one process, and extends in turn with the others. "+
			"One tick. Memory: what the server's resident memory grows by, from when it is ready until after the tick. Statements and round trips to the database: counted by a proxy.",
			s.postgres.version, postgresSetting),
		less:    true,
		metrics: []metric{{clientMemory, "server KB per client", 1}, {p50, "p50 ms", 2}, {p99, "p99 ms", 2}, {tickStatements, "statements per tick", 0}, {tickTrips, "round trips per tick", 0}, {databaseCPU, "database CPU ms per op", 3}, {serverCPU, "server CPU ms per op", 3}},
		atMost:  3,
	}
	const server = "refdb-server"
	for _, n := range []int{1000, 10_000} {
		w.cases = append(w.cases, benchCase{name: report.Number(float64(n), 0) + " clients", baseline: server, contestants: []contestant{
			{server, func(ctx context.Context) (sample, error) { return s.extending(ctx, programs, n) }},
		}})
	}
	return w, nil
}

// extending measures one tick of n clients.
func (s *servers) extending(ctx context.Context, programs string, n int) (sample, error) {
	return s.postgres.withDatabase(ctx, migratedTemplate, func(url string) (_ sample, err error) {
		subjects, err := s.clients(ctx, url, extendSubjects)
		if err != nil {
			return nil, err
		}
		link, err := s.postgres.openSlowLink(0)
		if err != nil {
			return nil, err
		}
		defer link.Close()
		monitor, err := pgx.Connect(ctx, url)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, monitor.Close(ctx)) }()
		return withServer(ctx, programs, s.postgres.through(link, url), func(server string, pid int) (sample, error) {
			idle, err := residentMemory(pid)
			if err != nil {
				return nil, err
			}
			task := extendTask{Server: server, Clients: n}
			for _, subject := range subjects {
				task.Tokens = append(task.Tokens, subject.Token)
			}
			c, err := startChild(ctx, extendRole, task)
			if err != nil {
				return nil, err
			}
			defer c.stop()
			var ready string
			if err := c.receive(&ready); err != nil {
				return nil, err
			}
			before, err := consumed(ctx, monitor, pid)
			if err != nil {
				return nil, err
			}
			statements, trips := link.Statements.Load(), link.RoundTrips.Load()
			if err := c.send("begin"); err != nil {
				return nil, err
			}
			var took []time.Duration
			if err := c.receive(&took); err != nil {
				return nil, err
			}
			statements, trips = link.Statements.Load()-statements, link.RoundTrips.Load()-trips
			after, err := consumed(ctx, monitor, pid)
			if err != nil {
				return nil, err
			}
			full, err := residentMemory(pid)
			if err != nil {
				return nil, err
			}
			result := rates(took, extendTick)
			result[clientMemory] = float64(full-idle) / 1024 / float64(n)
			result[tickStatements], result[tickTrips] = float64(statements), float64(trips)
			after.since(before, int64(n), result)
			return result, nil
		})
	})
}

// An extendTask is what a child does: to be so many clients.
type extendTask struct {
	Server  string
	Tokens  []string // of the subjects that they are
	Clients int
}

// An extender is a client with a lock.
type extender struct {
	refdbv1connect.RefdbServiceClient
	token string
	lock  *refdbv1.Lock
}

func extendChild(ctx context.Context, in *json.Decoder, out *json.Encoder) error {
	var task extendTask
	if err := in.Decode(&task); err != nil {
		return err
	}
	clients, refs := make([]*extender, task.Clients), numbered("refs/locks/client", task.Clients)
	acquiring, running := errgroup.WithContext(ctx)
	acquiring.SetLimit(50)
	for i := range clients {
		clients[i] = &extender{refdbv1connect.NewRefdbServiceClient(&http.Client{Transport: &http.Transport{}}, task.Server), task.Tokens[i%len(task.Tokens)], nil}
		acquiring.Go(func() error { return clients[i].acquire(running, refs[i]) })
	}
	err := acquiring.Wait()
	if err == nil {
		err = out.Encode("ready")
	}
	var begin string
	if err == nil {
		err = in.Decode(&begin)
	}
	if err != nil {
		return err
	}
	took := make([]time.Duration, len(clients))
	extending, running := errgroup.WithContext(ctx)
	began := time.Now()
	for i, c := range clients {
		extending.Go(func() error {
			time.Sleep(time.Until(began.Add(extendTick / time.Duration(len(clients)) * time.Duration(i))))
			start := time.Now()
			err := c.extend(running)
			for connect.CodeOf(err) == connect.CodeResourceExhausted && running.Err() == nil {
				time.Sleep(100 * time.Millisecond) // the server is behind, and does not take more calls
				err = c.extend(running)
			}
			took[i] = time.Since(start)
			return err
		})
	}
	if err := extending.Wait(); err != nil {
		return err
	}
	if err := out.Encode(took); err != nil {
		return err
	}
	_ = in.Decode(&begin) // the end: until then the connections stay
	return nil
}

func (c *extender) acquire(ctx context.Context, ref string) error {
	r := connect.NewRequest(&refdbv1.AcquireRequest{Project: project, Refs: []string{ref}, LeaseTime: durationpb.New(time.Hour)})
	r.Header().Set("Authorization", "Bearer "+c.token)
	got, err := c.Acquire(ctx, r)
	if err != nil {
		return err
	}
	if c.lock = got.Msg.GetAcquired().GetLock(); c.lock == nil {
		return fmt.Errorf("not acquired: %v", got.Msg)
	}
	return nil
}

func (c *extender) extend(ctx context.Context) error {
	r := connect.NewRequest(&refdbv1.ExtendRequest{Lock: c.lock})
	r.Header().Set("Authorization", "Bearer "+c.token)
	got, err := c.Extend(ctx, r)
	if err == nil && got.Msg.GetExtended() == nil {
		err = fmt.Errorf("not extended: %v", got.Msg)
	}
	return err
}

// residentMemory returns how many bytes of a process are in memory.
func residentMemory(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(value, "kB")), 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.New("the process has no memory any more")
}
