// Bench measures the speed of refdb beside what its databases can do at best
// and beside its peers. It starts the servers that it needs, prints one table
// per workload, and removes what it made. It runs on Linux: it reads from /proc
// what processes consume.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/globalrefdb/globalrefdb/bench/internal/machine"
	"github.com/globalrefdb/globalrefdb/bench/internal/report"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	if len(os.Args) == 3 && os.Args[1] == childArgument {
		err = runChild(ctx, os.Args[2], os.Stdin, os.Stdout)
	} else {
		err = bench(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// A plan is the tables of one workload.
type plan struct {
	id, about string
	// Each of tables starts the servers that it needs and describes a table.
	tables []func(context.Context, *servers) (workload, error)
}

// workloads returns all workloads, in the order in which they run.
func workloads() []plan {
	type tables = []func(context.Context, *servers) (workload, error)
	return []plan{
		{"W1", "lock + release, distinct keys", tables{locksWorkload}},
		{"W2", "one lock, 16 workers in 4 processes", tables{handOffWorkload}},
		{"W3", "heartbeats of 1,000 to 100,000 locks, and what they leave behind", tables{beatsWorkload, bloatWorkload}},
		{"W4", "compare-and-put of distinct refs: one at a time, and many at once", tables{updatesWorkload, bulkWorkload}},
		{"W5", "lock, update, release over a line with 20 and 80 ms of round-trip time", tables{distanceWorkload}},
		{"W6", "listing and importing a project of 100,000 and 1,000,000 refs", tables{importWorkload, listWorkload}},
		{"W7", "git push into a guarded repository", tables{pushWorkload}},
		{"W8", "following changes: how fast they come, a backlog, what followers cost", tables{feedWorkload, backlogWorkload, followersWorkload}},
		{"W9", "one exclusive lease, 100 waiters in 10 processes", tables{leasesWorkload}},
		{"W10", "from a push at one site to the other: how soon, and after an absence", tables{crossingWorkload, catchUpWorkload}},
		{"W11", "what a site of 2,000 repositories costs while nothing happens", tables{idleWorkload}},
		{"W12", "lists of 100,000 refs over HTTP", tables{listsWorkload}},
		{"W13", "lock + release by way of refdb-server, beside direct connections and etcd's gateway; clients that keep locks", tables{serviceWorkload, extendWorkload}},
		{"SQLITE", "W1 and W4 on SQLite", tables{sqliteLocksWorkload, sqliteUpdatesWorkload}},
	}
}

func bench(ctx context.Context, args []string, out, messages io.Writer) (err error) {
	o, err := parseOptions(args, messages)
	if err != nil {
		return err
	}
	if machine.InMemory(o.dir) {
		fmt.Fprintf(messages, "bench: %s is in memory, where durability costs nothing: name a directory on a disk (-dir)\n", o.dir)
	}
	s, err := newServers(o.dir, o.d)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()

	if !o.json {
		fmt.Fprintf(out, "%s; medians of %d rounds, %s for each rate; ratio: the median of the rounds' ratios to the baseline, which has 1\n", machine.This(), o.rounds, o.d)
	}
	reports, err := runAll(ctx, s, o, out, messages)
	if err != nil {
		return err
	}
	if o.json {
		if err := json.NewEncoder(out).Encode(document(o, reports)); err != nil {
			return err
		}
	}
	if o.plot != "" {
		if err := report.PlotThroughput(o.plot, reports); err != nil {
			return fmt.Errorf("draw %s: %w", o.plot, err)
		}
	}
	return nil
}

// runAll runs the selected workloads, and prints each table as soon as it is measured.
func runAll(ctx context.Context, s *servers, o options, out, messages io.Writer) ([]report.Report, error) {
	var reports []report.Report
	for _, p := range workloads() {
		if !o.wants(p.id) {
			continue
		}
		for _, table := range p.tables {
			w, err := table(ctx, s)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", p.id, err)
			}
			r, err := run(ctx, w, o.rounds, messages)
			if err != nil {
				return nil, err
			}
			reports = append(reports, r)
			if !o.json {
				report.PrintTable(out, r)
			}
		}
	}
	return reports, nil
}
