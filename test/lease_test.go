package test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/globalrefdb/globalrefdb/lease"
	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

const (
	leaseName = "deploy: prod/eu"

	// How long processes take leases while one is killed or frozen every now and then. If it holds the
	// lease or has the turn, nobody gets any further until its row is stale.
	leaseStorm      = 8 * time.Second
	leaseStormLong  = 20 * time.Second
	leaseStormShort = 2 * time.Second
	leaseTrouble    = 500 * time.Millisecond
	leaseStale      = time.Second
)

// A stint is the time for which a process certainly had a lease: from when it had it until it last
// called Err, which returned nil, by a clock that all processes share.
type stint struct {
	mode        lease.Mode
	ticket      refdb.Token
	from, until int64
	process     string
}

func (s stint) conflicts(o stint) bool { return s.mode == lease.Exclusive || o.mode == lease.Exclusive }

// Each process writes down its stints. Nothing else says who had a lease.
func TestP1ConflictingLeasesAreNeverHeldTogetherWhoeverDiesOrFreezes(t *testing.T) {
	onEach(t, func(t *testing.T, d *dbtest.Database) {
		count := map[migrations.Dialect]int{migrations.Postgres: 40, migrations.SQLite: 10, migrations.Spanner: 4}[d.Kind().Dialect]
		if testing.Short() {
			count = min(count, 10)
		}
		stints := leaseProcesses(t, d, count, "mixed", func(stints []stint) error {
			modes := make(map[lease.Mode]int)
			for _, s := range stints {
				modes[s.mode]++
			}
			if few := 5; modes[lease.Shared] < few || modes[lease.Exclusive] < few {
				return fmt.Errorf("%d shared stints and %d exclusive ones are too few to show anything", modes[lease.Shared], modes[lease.Exclusive])
			}
			return nil
		})
		checkStints(t, stints)
		t.Logf("%d stints in %d processes", len(stints), count)
	})
}

func TestSharedLeasesOfTheDeadAreRemovedByThoseWhoShare(t *testing.T) {
	onEach(t, func(t *testing.T, d *dbtest.Database) {
		checkStints(t, leaseProcesses(t, d, 4, "shared", func(stints []stint) error {
			for i, s := range stints {
				for _, o := range stints[:i] {
					if s.process != o.process && s.from <= o.until && o.from <= s.until {
						return nil
					}
				}
			}
			return errors.New("no two were held together")
		}))
	})
}

// leaseProcesses lets processes take leases while some are killed and others frozen, until their stints are enough, and checks that
// they leave nothing behind. It returns their stints.
func leaseProcesses(t *testing.T, d *dbtest.Database, count int, modes string, enough func([]stint) error) []stint {
	t.Helper()
	storm := leaseStorm
	switch {
	case testing.Short():
		storm = leaseStormShort
	case os.Getenv("REFDB_TEST_LONG") != "":
		storm = leaseStormLong
	}
	dir := t.TempDir()
	started := 0
	begin := func() *process {
		started++
		p := start(t, d, "lessee", filepath.Join(dir, strconv.Itoa(started)), modes)
		return p
	}
	all := make([]*process, count)
	for i := range all {
		all[i] = begin()
	}
	for _, p := range all {
		if line := p.receive(t); line != "ready" {
			t.Fatal(line)
		}
	}
	begun := time.Now()
	for {
		time.Sleep(leaseTrouble)
		if took := time.Since(begun); took > storm {
			err := enough(readStints(t, dir, started))
			if err == nil {
				break
			}
			if took > patience {
				t.Fatalf("after %s: %v", took, err)
			}
		}
		i := rand.IntN(count)
		if rand.IntN(2) == 0 {
			all[i].Process.Kill()
			all[i].Wait()
			all[i] = begin()
			continue
		}
		signal(t, all[i], syscall.SIGSTOP)
		frozen := all[i]
		time.AfterFunc(rand.N(2*leaseStale), func() { frozen.Process.Signal(syscall.SIGCONT) })
	}
	for _, p := range all {
		signal(t, p, syscall.SIGCONT)
		p.in.Close()
	}
	for _, p := range all {
		for p.out.Scan() {
			if line := p.out.Text(); line != "ready" {
				t.Error(line)
			}
		}
		if err := p.Wait(); err != nil {
			t.Error(err)
		}
	}
	clearRows(t, d)
	return readStints(t, dir, started)
}

// clearRows checks that in the end nothing is left if nobody asks but one that shares. What is kept
// for nobody is no lock.
func clearRows(t *testing.T, d *dbtest.Database) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	db := site(t, d)
	for {
		l, err := lease.Acquire(ctx, db, project, leaseName, lease.Shared)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Release(ctx); err != nil {
			t.Fatal(err)
		}
		var left []string
		for lock, err := range db.Locks(ctx, refdb.LockFilter{}) {
			if err != nil {
				t.Fatalf("%q are left: %v", left, err)
			}
			if !lock.Idle() {
				left = append(left, lock.Ref)
			}
		}
		if len(left) == 0 {
			return
		}
	}
}

// checkStints checks that conflicting ones don't overlap, and follow their tickets.
func checkStints(t *testing.T, stints []stint) {
	t.Helper()
	slices.SortFunc(stints, func(a, b stint) int { return cmp.Compare(a.ticket, b.ticket) })
	for i, later := range stints {
		for _, earlier := range stints[:i] {
			switch {
			case earlier.ticket == later.ticket:
				t.Errorf("two have the ticket %d", later.ticket)
			case earlier.conflicts(later) && earlier.until >= later.from:
				t.Errorf("%+v has a smaller ticket and is not over when %+v begins", earlier, later)
			}
		}
	}
}

func readStints(t *testing.T, dir string, processes int) (all []stint) {
	t.Helper()
	for i := 1; i <= processes; i++ {
		name := filepath.Join(dir, strconv.Itoa(i))
		f, err := os.Open(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // it was killed before it began
		}
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		byTicket := make(map[refdb.Token]stint)
		for lines := bufio.NewScanner(f); lines.Scan(); {
			s := stint{process: strconv.Itoa(i)}
			if n, err := fmt.Sscan(lines.Text(), &s.mode, &s.ticket, &s.from, &s.until); n != 4 {
				t.Errorf("the line %q: %v", lines.Text(), err)
				continue
			}
			byTicket[s.ticket] = s
		}
		for _, s := range byTicket {
			all = append(all, s)
		}
	}
	return all
}

// lessee takes one lease after the other until its input ends.
func lessee(db *refdb.DB) error {
	log, err := os.OpenFile(os.Args[1], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		bufio.NewReader(os.Stdin).ReadByte() // it ends
		cancel()
	}()
	fmt.Println("ready")
	for ctx.Err() == nil {
		mode := lease.Shared
		if os.Args[2] == "mixed" && rand.IntN(2) == 0 {
			mode = lease.Exclusive
		}
		acquire := lease.Acquire
		if rand.IntN(4) == 0 {
			acquire = lease.TryAcquire
		}
		if err := haveLease(ctx, db, mode, acquire, log); err != nil && refdb.ClassOf(err) == refdb.Permanent {
			return err
		}
	}
	return nil
}

func haveLease(ctx context.Context, db *refdb.DB, mode lease.Mode, acquire func(context.Context, *refdb.DB, string, string, lease.Mode) (*lease.Lease, error), log *os.File) error {
	l, err := acquire(ctx, db, project, leaseName, mode)
	if err != nil {
		return err
	}
	from, looks := clock(), 1+rand.IntN(8)
	if mode == lease.Shared {
		looks *= 8 // so that some are held together
	}
	for range looks {
		// Read before Err: it has the lease at least until then.
		until := clock()
		if l.Err() != nil {
			break
		}
		if _, err := fmt.Fprintln(log, int(mode), int64(l.Ticket()), from, until); err != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
	return l.Release(ctx)
}

// clock returns the time since the machine started, which is the same for all processes.
func clock() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // this system has no such clock
	}
	return t.Nano()
}
