package test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

const (
	// One in so many requests is lost, or its reply.
	lossRate = 40
	// The first requests of a connection are spared: opening a driver is no part of the test.
	spared = 10
)

const emulatorVariable = "SPANNER_EMULATOR_HOST"

// cuttingProxy puts a proxy in front of a database's server, which cuts connections.
// It returns the variables that make processes use the proxy. SQLite has no
// connections: there a lossyDriver does the same.
func cuttingProxy(t *testing.T, d *dbtest.Database, r *rand.Rand) []string {
	t.Helper()
	switch d.Kind().Dialect {
	case migrations.Postgres:
		to, err := pgx.ParseConfig(d.URL())
		if err != nil {
			t.Fatal(err)
		}
		network, address := pgconn.NetworkAddress(to.Host, to.Port)
		through := url.URL{
			Scheme: "postgres", Host: newCutter(t, network, address, r), Path: "/" + to.Database,
			User: url.UserPassword(to.User, to.Password), RawQuery: "sslmode=disable",
		}
		return []string{urlVariable + "=" + through.String()}
	case migrations.Spanner:
		return []string{emulatorVariable + "=" + newCutter(t, "tcp", os.Getenv(emulatorVariable), r)}
	}
	return nil
}

// A cutter is a proxy that cuts connections when a request comes: before it
// passes it on, or right after.
type cutter struct {
	network, address string

	mu    sync.Mutex
	rand  *rand.Rand
	conns map[net.Conn]bool // nil at the end
	done  sync.WaitGroup
}

// newCutter starts a cutter, and returns its address.
func newCutter(t *testing.T, network, address string, r *rand.Rand) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{network: network, address: address, rand: r, conns: make(map[net.Conn]bool)}
	c.done.Go(func() { c.accept(ln) })
	t.Cleanup(func() {
		ln.Close()
		c.mu.Lock()
		for conn := range c.conns {
			conn.Close()
		}
		c.conns = nil
		c.mu.Unlock()
		c.done.Wait()
	})
	return ln.Addr().String()
}

func (c *cutter) accept(ln net.Listener) {
	for {
		client, err := ln.Accept()
		if err != nil {
			return
		}
		c.done.Go(func() { c.serve(client) })
	}
}

// keep notes a connection for the end, unless that has come.
func (c *cutter) keep(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conns == nil {
		return false
	}
	c.conns[conn] = true
	return true
}

func (c *cutter) drop(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.conns, conn)
	conn.Close()
}

func (c *cutter) serve(client net.Conn) {
	defer c.drop(client)
	server, err := net.Dial(c.network, c.address)
	if err != nil {
		return
	}
	defer c.drop(server)
	if !c.keep(client) || !c.keep(server) {
		return
	}
	var back sync.WaitGroup
	defer back.Wait()
	back.Go(func() {
		_, _ = io.Copy(client, server)
		client.Close()
	})
	c.requests(client, server)
	client.Close()
	server.Close()
}

// requests passes requests on until one is to be lost.
func (c *cutter) requests(client io.Reader, server io.Writer) {
	request := make([]byte, 64<<10)
	for i := 0; ; i++ {
		n, err := client.Read(request)
		if err != nil {
			return
		}
		lost := i >= spared && c.chance(lossRate)
		if lost && c.chance(2) {
			return
		}
		if _, err := server.Write(request[:n]); err != nil || lost {
			return
		}
	}
}

// chance is true once in so many times.
func (c *cutter) chance(of int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rand.IntN(of) == 0
}

// A lossyDriver loses requests and replies.
type lossyDriver struct {
	refdb.Driver

	mu   sync.Mutex
	rand *rand.Rand
}

// ask makes a request of the driver, unless the request is to be lost.
func (f *lossyDriver) ask(do func() error) error {
	f.mu.Lock()
	n := f.rand.IntN(lossRate)
	f.mu.Unlock()
	switch {
	case n == 0:
		return fmt.Errorf("a test lost the request: %w", refdb.ErrOutcomeUnknown)
	case n == 1:
		return fmt.Errorf("a test refused the connection: %w", refdb.ErrUnavailable)
	}
	err := do()
	if n == 2 {
		return fmt.Errorf("a test lost the reply: %w", refdb.ErrOutcomeUnknown)
	}
	return err
}

func (f *lossyDriver) Update(ctx context.Context, r driver.UpdateRequest) error {
	return f.ask(func() error { return f.Driver.Update(ctx, r) })
}

func (f *lossyDriver) Acquire(ctx context.Context, r driver.AcquireRequest) (a driver.Acquired, err error) {
	err = f.ask(func() (err error) {
		a, err = f.Driver.Acquire(ctx, r)
		return err
	})
	return a, err
}

func (f *lossyDriver) Release(ctx context.Context, r driver.ReleaseRequest) (released driver.Released, err error) {
	err = f.ask(func() (err error) {
		released, err = f.Driver.Release(ctx, r)
		return err
	})
	return released, err
}

func (f *lossyDriver) Abandon(ctx context.Context, r driver.AbandonRequest) error {
	return f.ask(func() error { return f.Driver.Abandon(ctx, r) })
}
