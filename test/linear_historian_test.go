package test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/pprof"
	"strconv"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/drivers"
	"github.com/globalrefdb/globalrefdb/test/linearizability"
)

const (
	// historyStale is the leases' length at first. A process takes longer ones if requests take so long that locks are
	// granted too late to be kept.
	historyStale = time.Second

	historians = 3 // goroutines of a process
)

var (
	historyProjects = []string{"company/one", "company/two", "company/three", "company/four"}
	historyRefs     = []string{"refs/heads/main", "refs/heads/next", "refs/tags/v1"}
)

// makeHistory records the calls of some goroutines until it is told to stop.
func makeHistory(d refdb.Driver) error {
	name, faults := os.Args[1], os.Args[4] == "true"
	seed, err := strconv.ParseUint(os.Args[2], 10, 64)
	if err != nil {
		return err
	}
	number, err := strconv.Atoi(os.Args[3])
	if err != nil {
		return err
	}
	stale, err := time.ParseDuration(os.Args[5])
	if err != nil {
		return err
	}
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	dialect, err := drivers.DialectOf(os.Getenv(urlVariable))
	if err != nil {
		return err
	}
	if faults && dialect == migrations.SQLite {
		d = &lossyDriver{Driver: d, rand: rand.New(rand.NewPCG(seed, uint64(number)))}
	}
	recorder := linearizability.NewRecorder(file)
	open := func(stale time.Duration) (*linearizability.Client, error) {
		return linearizability.Open(recorder, d, refdb.Options{Site: fmt.Sprint("site-", number), StaleAfter: stale, Heartbeat: stale / 5})
	}
	c, err := open(stale)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var all sync.WaitGroup
	for i := range historians {
		w := linearizability.Workload{
			Client: c, Rand: rand.New(rand.NewPCG(seed, uint64(number*historians+i))),
			Projects: historyProjects, Refs: historyRefs,
			Pause: 20 * time.Millisecond, Hold: 20 * time.Millisecond,
		}
		if faults {
			w.Patience = 20 * time.Millisecond
		} else {
			w.Advisory = true
		}
		all.Go(func() { w.Run(ctx) })
	}
	err = execute(ctx, &locker{c, stale, open}, historyRefs[number%len(historyRefs)])
	stop()
	all.Wait()
	fmt.Println(answer(cmp.Or(err, c.Close())))
	return nil
}

// execute executes the test's commands, with a ref of each project, until the test says stop.
func execute(ctx context.Context, l *locker, ref string) error {
	c := l.client
	var locks []*linearizability.Lock
	for requests := bufio.NewScanner(os.Stdin); requests.Scan(); {
		switch requests.Text() {
		case "hold":
			for _, project := range historyProjects {
				lock, err := l.lock(ctx, project, ref)
				if err != nil {
					return err
				}
				locks = append(locks, lock)
			}
			fmt.Println("ok", l.stale)
		case "use":
			var errs []error
			for _, lock := range locks {
				errs = append(errs, use(ctx, c, lock))
			}
			fmt.Println(answer(errors.Join(errs...)))
		case "stop":
			return nil
		}
	}
	return errors.New("nobody said stop")
}

// A locker takes locks for as long leases as the machine needs.
type locker struct {
	client *linearizability.Client
	stale  time.Duration
	open   func(stale time.Duration) (*linearizability.Client, error)
}

// lock locks a ref. It retries despite faults, with longer leases after each second failure: that is hardly a fault, but locks
// that are granted too late to be kept.
func (l *locker) lock(ctx context.Context, project, ref string) (*linearizability.Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for failures := 1; ; failures++ {
		lock, err := l.client.Lock(ctx, project, ref)
		if err == nil {
			return lock, nil
		}
		if ctx.Err() != nil {
			// Print the lock that everybody waits for.
			return nil, errors.Join(err, pprof.Lookup("goroutine").WriteTo(os.Stderr, 1))
		}
		if failures%2 == 0 {
			// The client before ends with the process: it may hold locks.
			l.stale *= 2
			if l.client, err = l.open(l.stale); err != nil {
				return nil, err
			}
		}
	}
}

// use does what a holder does, and also writes without its lock.
func use(ctx context.Context, c *linearizability.Client, lock *linearizability.Lock) error {
	ref := lock.Refs()[0]
	old, err := lock.Value(ref)
	if err != nil {
		return errors.Join(err, lock.Release(ctx))
	}
	move := []refdb.Update{{Ref: ref, Old: old, New: after}}
	return errors.Join(
		lock.Update(ctx, move),
		c.Update(ctx, lock.Project(), move, refdb.Under(lock.Owner(), lock.Token(), ref)),
		lock.Release(ctx),
	)
}
