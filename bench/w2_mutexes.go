package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"cirello.io/pglock"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// A mutexKind is a contestant of W2.
type mutexKind string

const (
	boundMutex   mutexKind = "the bound"
	refdbMutex   mutexKind = "refdb"
	pollingMutex mutexKind = "polling, 10 ms"
	etcdMutex    mutexKind = "etcd mutex"
	pglockMutex  mutexKind = "pglock, 1 s lease"
)

const (
	theRef      = "refs/heads/main"
	theKey      = 1 // of the bound's advisory lock
	pollEvery   = 10 * time.Millisecond
	pglockShort = time.Second
)

// A mutex is one worker's handle of the lock that all want.
type mutex interface {
	lock(context.Context) error
	unlock(context.Context) error
}

// mutexes are the mutexes of one process.
type mutexes struct {
	workers []mutex
	tally   *tally // nil: it isn't known how often the database is asked
	closers []func() error
}

// A tally counts how often a lock was asked for until it was granted.
type tally struct {
	attempts, granted atomic.Int64
}

func (t *tally) add(attempts int) {
	t.attempts.Add(int64(attempts))
	t.granted.Add(1)
}

func (m *mutexes) close() error {
	var err error
	for i := len(m.closers) - 1; i >= 0; i-- {
		err = errors.Join(err, m.closers[i]())
	}
	return err
}

// prepareMutex creates the tables that a contestant needs in an empty database.
func prepareMutex(ctx context.Context, kind mutexKind, url string) error {
	switch kind {
	case boundMutex, pollingMutex:
		_, closeFloor, err := openFloor(ctx, url)
		if err == nil {
			closeFloor()
		}
		return err
	case pglockMutex:
		client, closeClient, err := openPglock(url, pglockShort)
		if err != nil {
			return err
		}
		return errors.Join(client.TryCreateTable(), closeClient())
	}
	return nil
}

// openMutexes connects the workers of one process.
func openMutexes(ctx context.Context, task handOffTask) (_ *mutexes, err error) {
	m := &mutexes{}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.close())
		}
	}()
	switch task.Mutex {
	case boundMutex:
		return m, m.openBound(ctx, task)
	case refdbMutex:
		return m, m.openRefdb(ctx, task)
	case leaseMutex:
		return m, m.openLease(ctx, task)
	case pollingMutex:
		return m, m.openPolling(ctx, task)
	case etcdMutex:
		return m, m.openEtcd(ctx, task)
	case pglockMutex:
		return m, m.openPglock(task)
	}
	return m, fmt.Errorf("no mutex %q", task.Mutex)
}

// A boundLock waits for an advisory lock, which wakes its next waiter at once, and
// then writes the durable row.
type boundLock struct {
	floor *floor // on one connection
	tally *tally
	token time.Time
}

func (m *mutexes) openBound(ctx context.Context, task handOffTask) error {
	m.tally = &tally{}
	pool, err := floorPool(ctx, task.Database)
	if err != nil {
		return err
	}
	m.closers = append(m.closers, func() error { pool.Close(); return nil })
	for range task.Workers {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return err
		}
		m.closers = append(m.closers, func() error { conn.Release(); return nil })
		m.workers = append(m.workers, &boundLock{floor: &floor{conn}, tally: m.tally})
	}
	return nil
}

func (b *boundLock) lock(ctx context.Context) (err error) {
	if _, err := b.floor.db.Exec(ctx, "SELECT pg_advisory_lock($1)", theKey); err != nil {
		return err
	}
	if b.token, err = b.floor.lock(ctx, theRef); err == nil {
		b.tally.add(1)
	}
	return err
}

func (b *boundLock) unlock(ctx context.Context) error {
	if err := b.floor.release(ctx, theRef, b.token); err != nil {
		return err
	}
	_, err := b.floor.db.Exec(ctx, "SELECT pg_advisory_unlock($1)", theKey)
	return err
}

// A pollingLock tries to insert the floor's row until it succeeds.
type pollingLock struct {
	floor *floor
	tally *tally
	token time.Time
}

func (m *mutexes) openPolling(ctx context.Context, task handOffTask) error {
	pool, err := floorPool(ctx, task.Database)
	if err != nil {
		return err
	}
	m.closers = append(m.closers, func() error { pool.Close(); return nil })
	m.tally = &tally{}
	for range task.Workers {
		m.workers = append(m.workers, &pollingLock{floor: &floor{pool}, tally: m.tally})
	}
	return nil
}

func (p *pollingLock) lock(ctx context.Context) (err error) {
	for tries := 1; ; tries++ {
		p.token, err = p.floor.lock(ctx, theRef)
		if err == nil {
			p.tally.add(tries)
		}
		if !errors.Is(err, errTaken) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollEvery):
		}
	}
}

func (p *pollingLock) unlock(ctx context.Context) error {
	return p.floor.release(ctx, theRef, p.token)
}

type refdbLock struct {
	db   *refdb.DB // one for the process
	held *refdb.Lock
}

func (m *mutexes) openRefdb(ctx context.Context, task handOffTask) error {
	m.tally = &tally{}
	db, err := openRefdb(ctx, task.Database, func(e refdb.Event) {
		if e.Op == driver.OpLock && e.Outcome == "ok" {
			m.tally.add(e.Attempts)
		}
	})
	if err != nil {
		return err
	}
	m.closers = append(m.closers, db.Close)
	for range task.Workers {
		m.workers = append(m.workers, &refdbLock{db: db})
	}
	return nil
}

func (r *refdbLock) lock(ctx context.Context) (err error) {
	r.held, err = r.db.Lock(ctx, project, theRef)
	return err
}

func (r *refdbLock) unlock(ctx context.Context) error { return r.held.Release(ctx) }

type etcdLock struct{ *concurrency.Mutex }

// openEtcd gives each worker a session: mutexes of one session don't exclude each other.
func (m *mutexes) openEtcd(ctx context.Context, task handOffTask) error {
	client, err := dialEtcd(ctx, task.Etcd)
	if err != nil {
		return err
	}
	m.closers = append(m.closers, client.Close)
	for range task.Workers {
		session, err := concurrency.NewSession(client)
		if err != nil {
			return err
		}
		m.closers = append(m.closers, session.Close)
		m.workers = append(m.workers, etcdLock{concurrency.NewMutex(session, task.Prefix)})
	}
	return nil
}

func (e etcdLock) lock(ctx context.Context) error   { return e.Lock(ctx) }
func (e etcdLock) unlock(ctx context.Context) error { return e.Unlock(ctx) }

type pglockLock struct {
	client *pglock.Client
	held   *pglock.Lock
}

func (m *mutexes) openPglock(task handOffTask) error {
	client, closeClient, err := openPglock(task.Database, pglockShort)
	if err != nil {
		return err
	}
	m.closers = append(m.closers, closeClient)
	for range task.Workers {
		m.workers = append(m.workers, &pglockLock{client: client})
	}
	return nil
}

func (p *pglockLock) lock(ctx context.Context) (err error) {
	p.held, err = p.client.AcquireContext(ctx, theRef)
	return err
}

func (p *pglockLock) unlock(ctx context.Context) error {
	return p.client.ReleaseContext(ctx, p.held)
}
