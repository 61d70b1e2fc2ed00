//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/testserver"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/drivers"
	"github.com/globalrefdb/globalrefdb/refdb/drivers/schema"
)

// Three processes work on the targets. One is killed, one frozen for longer than stale-after, all lose
// their database, and one more is killed. Each of those happens in the middle of a quarter of the targets.
func TestProcessesThatDieFreezeAndLoseTheDatabaseDoEveryStepOnceAndInOrder(t *testing.T) {
	targets := 2000
	if testing.Short() {
		targets = 240
	}
	c := newCluster(t)
	names := make([]string, targets)
	for i := range names {
		names[i] = fmt.Sprintf("target-%04d", i)
	}
	// A target that the test itself holds: the processes wait for it, and don't end before.
	gate := "target-held"
	c.submit(gate)
	lock, err := c.queue.DB.TryLock(t.Context(), c.queue.Project, prefix+gate)
	if err != nil {
		t.Fatal(err)
	}
	c.start()
	c.start()
	c.start()

	quarter, all := targets/4, targets/4*steps
	for i, fault := range []func(){
		func() { c.kill(c.processes[0]) },
		func() {
			frozen := c.freezeOneWithLocks()
			c.waitFor("the locks of a frozen process to be stale", func() bool { return !c.holders()[frozen] })
			frozen.signal(syscall.SIGCONT)
		},
		func() {
			if err := errors.Join(c.server.Kill(), c.server.Start(t.Context())); err != nil {
				t.Fatal(err)
			}
		},
		func() { c.kill(c.processes[1]) },
	} {
		c.submit(names[i*quarter : (i+1)*quarter]...)
		c.waitFor("a part of the steps", func() bool { return c.steps() > i*all+all/5 })
		fault()
		c.waitFor("the rest of the steps", func() bool { return c.steps() == (i+1)*all })
	}
	if err := lock.Release(t.Context()); err != nil && refdb.ClassOf(err) != refdb.StaleOwner {
		t.Fatal(err)
	}
	names = append(names, gate)

	for _, p := range c.processes {
		if err := p.Wait(); err != nil && !slices.Contains(c.killed, p) {
			t.Errorf("%v: %s", err, p.log.String())
		}
		if strings.Contains(p.log.String(), "target-") {
			t.Errorf("a log names a target: %s", p.log.String())
		}
	}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(c.dir, name))
		if err == nil {
			err = inOrder(string(text), steps)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	rows := 0
	for ref, err := range c.queue.DB.Refs(t.Context(), c.queue.Project, "", refdb.IncludeDeleted()) {
		if rows++; err != nil || ref.Value != refdb.Value(Done) {
			t.Errorf("%s holds %q, %v", ref.Name, ref.Value, err)
		}
	}
	if rows != len(names) {
		t.Errorf("%d rows of %d targets", rows, len(names))
	}
}

// A cluster is a PostgreSQL server of the test's own, and processes that work.
type cluster struct {
	*testing.T
	server    *testserver.Postgres
	url, dir  string // of the database; of the journal
	queue     *Queue // of the test itself
	processes []*process
	killed    []*process
}

// A process is this test binary as the program.
type process struct {
	*exec.Cmd
	t   *testing.T
	log bytes.Buffer
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	dir, err := os.MkdirTemp("", "work")                           // short: a socket is in it
	if err := errors.Join(err, os.Chmod(dir, 0o711)); err != nil { // for the server's account
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	server, err := testserver.StartPostgres(t.Context(), testserver.PostgresOptions{Dir: dir, Durability: testserver.NoFsync})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	c := &cluster{T: t, server: server, url: server.URL("work"), dir: t.TempDir()}
	if err := errors.Join(server.Exec(t.Context(), "postgres", "CREATE DATABASE work"), schema.Up(t.Context(), c.url)); err != nil {
		t.Fatal(err)
	}
	driver, err := drivers.Open(t.Context(), c.url)
	if err != nil {
		t.Fatal(err)
	}
	db, err := refdb.New(driver, refdb.Options{StaleAfter: time.Hour}) // of the target that keeps the processes from ending
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	c.queue = &Queue{DB: db, Project: "work"}
	return c
}

// start starts a process, which is killed at the test's end if it still runs then.
func (c *cluster) start() *process {
	c.Helper()
	p := &process{Cmd: exec.Command(os.Args[0], "run", c.dir), t: c.T}
	p.Env = append(os.Environ(), processVariable+"=1", "REFDB_URL="+c.url)
	p.Stdout, p.Stderr = &p.log, &p.log
	if err := p.Start(); err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() {
		p.Process.Kill()
		p.Process.Signal(syscall.SIGCONT)
		p.Wait()
	})
	c.processes = append(c.processes, p)
	return p
}

// kill kills a process, and starts another one.
func (c *cluster) kill(p *process) {
	c.Helper()
	p.signal(syscall.SIGKILL)
	c.killed = append(c.killed, p)
	c.start()
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// until repeats a request while the database can't be reached, as after its crash.
func (c *cluster) until(done func() error) {
	c.Helper()
	for err := done(); err != nil; err = done() {
		if refdb.ClassOf(err) != refdb.Retryable {
			c.Fatal(err)
		}
		if err := pause(c.Context(), retryWait); err != nil {
			c.Fatal(err)
		}
	}
}

func (c *cluster) submit(names ...string) {
	c.Helper()
	c.until(func() error { return c.queue.Submit(c.Context(), names...) })
}

// steps returns how many steps have a checkpoint.
func (c *cluster) steps() (n int) {
	c.Helper()
	c.until(func() error {
		n = 0
		for ref, err := range c.queue.DB.Refs(c.Context(), c.queue.Project, prefix) {
			if err != nil {
				return err
			}
			switch p := parse(ref.Value); p.State {
			case Done:
				n += steps
			case Active:
				done, _ := strconv.Atoi(p.Note)
				n += done
			}
		}
		return nil
	})
	return n
}

// holders returns the processes that have locks, other than stale ones.
func (c *cluster) holders() (holders map[*process]bool) {
	c.Helper()
	c.until(func() error {
		holders = map[*process]bool{}
		for l, err := range c.queue.DB.Locks(c.Context(), refdb.LockFilter{Project: c.queue.Project}) {
			if err != nil {
				return err
			}
			for _, p := range c.processes {
				if !l.Stale() && strings.Contains(l.Owner, fmt.Sprint(":", p.Process.Pid, ":")) {
					holders[p] = true
				}
			}
		}
		return nil
	})
	return holders
}

// freezeOneWithLocks freezes a process at a moment at which it has locks.
func (c *cluster) freezeOneWithLocks() (frozen *process) {
	c.Helper()
	c.waitFor("a process to have locks", func() bool {
		for p := range c.holders() {
			if slices.Contains(c.killed, p) {
				continue
			}
			p.signal(syscall.SIGSTOP)
			if c.holders()[p] {
				frozen = p
				return true
			}
			p.signal(syscall.SIGCONT)
		}
		return false
	})
	return frozen
}

func (c *cluster) waitFor(what string, until func() bool) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), 5*time.Minute)
	defer cancel()
	for {
		start := time.Now()
		if until() {
			return
		}
		// Most of the time is for the processes.
		if err := pause(ctx, max(20*time.Millisecond, 4*time.Since(start))); err != nil {
			c.Fatalf("waiting for %s: %v", what, err)
		}
	}
}
