package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/bench/internal/command"
	"github.com/globalrefdb/globalrefdb/bench/internal/machine"
	"github.com/globalrefdb/globalrefdb/bench/internal/places"
	"github.com/globalrefdb/globalrefdb/bench/internal/report"
	"github.com/globalrefdb/globalrefdb/bench/internal/site"
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
	programs, _, err := s.needSites(ctx)
	if err != nil {
		return workload{}, err
	}
	return workload{
		id:    "W11",
		title: "an idle site",
		setting: fmt.Sprintf("PostgreSQL %s: %sone site, whose repositories have a commit each, the database keeps their objects. CPU: of the daemon and the programs that it ran, from /proc. "+
			"A proxy without delay counts the daemon's statements. %s, beginning when the daemon has run no program of git for 15 s.", s.postgres.version, postgresSetting, idleTimes*s.d),
		less:    true,
		atMost:  1,
		metrics: []metric{{daemonCPU, "CPU s per minute", 2}, {statementRate, "statements/s", 1}, {tripRate, "round trips/s", 1}, {peakMemory, "peak memory MB", 0}},
		cases: []benchCase{{
			name: report.Number(idleRepositories, 0) + " repositories", baseline: string(refdbCarrier),
			contestants: []contestant{{string(refdbCarrier), func(ctx context.Context) (sample, error) { return s.idle(ctx, programs) }}},
		}},
	}, nil
}

func (s *servers) idle(ctx context.Context, programs string) (sample, error) {
	return places.With(ctx, places.Places{Sites: 1, Repos: idleRepositories, Others: 1}, s.dir, nil, func(p *places.Places) (sample, error) {
		return s.postgres.withDatabase(ctx, migratedTemplate, func(url string) (sample, error) {
			l, err := s.postgres.openSlowLink(0)
			if err != nil {
				return nil, err
			}
			defer l.Close()
			idle := &site.Site{Name: places.SiteNames[0], Dir: p.SiteDir(0), Programs: programs, URL: url, DaemonURL: s.postgres.through(l, url)}
			if err := errors.Join(idle.Configure(site.StoreAll), idle.Start(ctx)); err != nil {
				return nil, err
			}
			defer idle.Stop()
			if err := idle.Ready(ctx); err != nil {
				return nil, err
			}
			if err := idle.Enable(ctx, "--all"); err != nil {
				return nil, err
			}
			result, err := s.watchIdle(ctx, idle.Daemon.Process.Pid, l)
			return result, idle.Explain(err)
		})
	})
}

// watchIdle waits until the daemon has nothing left to do, and measures it. It has when it runs no program of git for 15
// seconds: it runs some for every repository that it brings up.
func (s *servers) watchIdle(ctx context.Context, pid int, l *slowLink) (sample, error) {
	for deadline := time.Now().Add(5 * time.Minute); ; {
		_, before, err := cpuTimesOf(pid)
		if err != nil {
			return nil, err
		}
		if err := pause(ctx, 15*time.Second); err != nil {
			return nil, err
		}
		_, after, err := cpuTimesOf(pid)
		switch {
		case err != nil:
			return nil, err
		case after == before:
			return s.measureIdle(ctx, pid, l)
		case time.Now().After(deadline):
			return nil, errors.New("the daemon is never idle")
		}
	}
}

func (s *servers) measureIdle(ctx context.Context, pid int, l *slowLink) (sample, error) {
	start, sent, waited := time.Now(), l.Statements.Load(), l.RoundTrips.Load()
	own, children, err := cpuTimesOf(pid)
	if err != nil {
		return nil, err
	}
	if err := pause(ctx, idleTimes*s.d); err != nil {
		return nil, err
	}
	took := time.Since(start)
	ownAfter, childrenAfter, err := cpuTimesOf(pid)
	if err != nil {
		return nil, err
	}
	peak, err := command.HighWater(pid)
	return sample{
		daemonCPU:     (ownAfter + childrenAfter - own - children).Seconds() / took.Minutes(),
		statementRate: float64(l.Statements.Load()-sent) / took.Seconds(),
		tripRate:      float64(l.RoundTrips.Load()-waited) / took.Seconds(),
		peakMemory:    machine.Megabytes(peak),
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

// cpuTimesOf returns the CPU time of a process, and of its children that have ended.
func cpuTimesOf(pid int) (own, children time.Duration, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	// The program's name, in parentheses, may have spaces.
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	const first, n = 11, 4 // utime, stime, cutime and cstime, counted from the state on
	if len(fields) < first+n {
		return 0, 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	var times [n]time.Duration
	for i, field := range fields[first : first+n] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, 0, err
		}
		times[i] = time.Duration(ticks) * time.Second / 100 // USER_HZ
	}
	return times[0] + times[1], times[2] + times[3], nil
}
