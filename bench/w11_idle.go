package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	idleRepositories = 2000
	// idleTimes is how many times -d a measurement takes.
	idleTimes = 60

	daemonCPU     = "cpu_s_per_minute"
	statementRate = "statements_per_second"
	tripRate      = "trips_per_second"
)

// idleWorkload is W11: what a site costs in which nothing happens.
func idleWorkload(ctx context.Context, s *servers) (workload, error) {
	if err := s.needPostgres(ctx); err != nil {
		return workload{}, err
	}
	programs, err := buildPrograms(ctx, s.dir)
	if err != nil {
		return workload{}, err
	}
	return workload{
		id:    "W11",
		title: "an idle site",
		setting: fmt.Sprintf("PostgreSQL %s: %sone site, whose repositories have a commit each, the database keeps their objects. CPU: of the daemon and the programs that it ran, from /proc. "+
			"A proxy without delay counts the daemon's statements. %s, beginning when the daemon has nothing left to do.", s.postgres.version, postgresSetting, idleTimes*s.d),
		less:    true,
		atMost:  1,
		metrics: []metric{{daemonCPU, "CPU s per minute", 2}, {statementRate, "statements/s", 1}, {tripRate, "round trips/s", 1}, {peakMemory, "peak memory MB", 0}},
		cases: []benchCase{{
			name: number(idleRepositories, 0) + " repositories", baseline: string(refdbCarrier),
			contestants: []contestant{{string(refdbCarrier), func(ctx context.Context) (sample, error) { return s.idle(ctx, programs) }}},
		}},
	}, nil
}

func (s *servers) idle(ctx context.Context, programs string) (sample, error) {
	return places{sites: 1, repos: idleRepositories, others: 1}.with(ctx, s.dir, nil, func(p *places) (sample, error) {
		return s.postgres.withDatabase(ctx, migratedTemplate, func(url string) (sample, error) {
			l, err := s.postgres.openSlowLink(0)
			if err != nil {
				return nil, err
			}
			defer l.Close()
			idle := &site{name: siteNames[0], dir: p.siteDir(0), programs: programs, url: url, daemonURL: s.postgres.through(l, url)}
			if err := errors.Join(idle.configure(storeAll), idle.start(ctx)); err != nil {
				return nil, err
			}
			defer idle.stop()
			if err := idle.ready(ctx); err != nil {
				return nil, err
			}
			if err := idle.enable(ctx, "--all"); err != nil {
				return nil, err
			}
			result, err := s.watchIdle(ctx, idle.daemon.Process.Pid, l)
			return result, idle.explain(err)
		})
	})
}

// calm is how little CPU time a daemon consumes in a second once it has nothing left to do.
const calm = 100 * time.Millisecond

// watchIdle waits until the daemon has nothing left to do, and measures it.
func (s *servers) watchIdle(ctx context.Context, pid int, l *slowLink) (sample, error) {
	var before time.Duration
	for deadline := time.Now().Add(5 * time.Minute); ; {
		now, err := familyTimeOf(pid)
		switch {
		case err != nil:
			return nil, err
		case before > 0 && now-before < calm:
			return s.measureIdle(ctx, pid, l)
		case time.Now().After(deadline):
			return nil, errors.New("the daemon is never idle")
		}
		before = now
		if err := pause(ctx, 5*time.Second); err != nil {
			return nil, err
		}
	}
}

func (s *servers) measureIdle(ctx context.Context, pid int, l *slowLink) (sample, error) {
	start, sent, waited := time.Now(), l.Statements.Load(), l.RoundTrips.Load()
	before, err := familyTimeOf(pid)
	if err != nil {
		return nil, err
	}
	if err := pause(ctx, idleTimes*s.d); err != nil {
		return nil, err
	}
	took := time.Since(start)
	after, err := familyTimeOf(pid)
	if err != nil {
		return nil, err
	}
	peak, err := highWater(pid)
	return sample{
		daemonCPU:     (after - before).Seconds() / took.Minutes(),
		statementRate: float64(l.Statements.Load()-sent) / took.Seconds(),
		tripRate:      float64(l.RoundTrips.Load()-waited) / took.Seconds(),
		peakMemory:    megabytes(peak),
	}, err
}

// pause sleeps, unless ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// familyTimeOf returns the CPU time of a process and of its children that have ended.
func familyTimeOf(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The program's name, in parentheses, may have spaces.
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	const first, last = 11, 14 // utime, stime, cutime and cstime, from the state on
	if len(fields) <= last {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	var ticks int64
	for _, field := range fields[first : last+1] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100, nil // USER_HZ is 100
}
