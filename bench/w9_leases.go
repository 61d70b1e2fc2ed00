package main

import (
	"context"
	"fmt"
	"time"

	"github.com/globalrefdb/globalrefdb/lease"
)

const (
	leaseMutex mutexKind = "lease"

	leaseProcesses = 10
	leaseWorkers   = 11 // per process: one of all holds the lease, and who has released waits a moment; 100 wait
	leaseHold      = 2 * time.Millisecond
	leaseWindow    = 5 * time.Second // at least: hand-offs are rare
)

// leasesWorkload is W9: everybody wants the same lease alone.
func leasesWorkload(ctx context.Context, s *servers) (workload, error) {
	if err := s.needPostgres(ctx); err != nil {
		return workload{}, err
	}
	d := max(s.d, leaseWindow)
	w := workload{
		id:    "W9",
		title: fmt.Sprintf("one exclusive lease, %d workers in %d processes", leaseProcesses*leaseWorkers, leaseProcesses),
		setting: fmt.Sprintf("PostgreSQL %s: %seach measurement takes %s. As W2, with more workers. A waiter for a lease looks again after 10 to 250 ms, "+
			"the sooner the fewer are ahead of it; the lock of the same size wakes its waiters.", s.postgres.version, postgresSetting, d),
		metrics: []metric{{p50, "p50 ms", 1}, {p99, "p99 ms", 1}, {perSecond, "hand-offs/s", 1}, {longest, "longest wait ms", 0}},
		less:    true,
	}
	c := benchCase{name: fmt.Sprintf("held %d ms", leaseHold.Milliseconds()), baseline: string(refdbMutex)}
	for _, kind := range []mutexKind{refdbMutex, leaseMutex} {
		c.contestants = append(c.contestants, contestant{string(kind), func(ctx context.Context) (sample, error) {
			return s.handOffs(ctx, kind, leaseHold, leaseProcesses, leaseWorkers, d)
		}})
	}
	w.cases = []benchCase{c}
	return w, nil
}

// A leaseLock is an exclusive lease as a mutex.
type leaseLock struct {
	*refdbLock
	held *lease.Lease
}

func (m *mutexes) openLease(ctx context.Context, task handOffTask) error {
	if err := m.openRefdb(ctx, task); err != nil {
		return err
	}
	for i, w := range m.workers {
		m.workers[i] = &leaseLock{refdbLock: w.(*refdbLock)}
	}
	return nil
}

func (l *leaseLock) lock(ctx context.Context) (err error) {
	l.held, err = lease.Acquire(ctx, l.db, project, theRef, lease.Exclusive)
	return err
}

func (l *leaseLock) unlock(ctx context.Context) error { return l.held.Release(ctx) }
