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
	"github.com/globalrefdb/globalrefdb/test/history"
)

const (
	historyStale = 500 * time.Millisecond

	historians = 3 // goroutines of a process
)

var (
	historyProjects = []string{"company/one", "company/two", "company/three", "company/four"}
	historyRefs     = []string{"refs/heads/main", "refs/heads/next", "refs/tags/v1"}
)

// makeHistory records what some goroutines do until it is told to stop.
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
		d = &forgetful{Driver: d, rand: rand.New(rand.NewPCG(seed, uint64(number)))}
	}
	c, err := history.Open(history.NewRecorder(file), d, refdb.Options{
		Site: fmt.Sprint("site-", number), StaleAfter: historyStale, Heartbeat: historyStale / 5,
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var all sync.WaitGroup
	for i := range historians {
		w := history.Workload{
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
	err = obey(ctx, c, historyRefs[number%len(historyRefs)])
	stop()
	all.Wait()
	fmt.Println(answer(cmp.Or(err, c.Close())))
	return nil
}

// obey does what the test asks for, with a ref of each project, until that is to stop.
func obey(ctx context.Context, c *history.Client, ref string) error {
	var locks []*history.Lock
	for requests := bufio.NewScanner(os.Stdin); requests.Scan(); {
		switch requests.Text() {
		case "hold":
			for _, project := range historyProjects {
				lock, err := insist(ctx, c, project, ref)
				if err != nil {
					return err
				}
				locks = append(locks, lock)
			}
			fmt.Println("ok")
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

// insist locks a ref, in spite of faults.
func insist(ctx context.Context, c *history.Client, project, ref string) (*history.Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		lock, err := c.Lock(ctx, project, ref)
		if err == nil {
			return lock, nil
		}
		if ctx.Err() != nil {
			// Show what everybody waits for.
			return nil, errors.Join(err, pprof.Lookup("goroutine").WriteTo(os.Stderr, 1))
		}
	}
}

// use does what a holder does, also behind the back of its lock.
func use(ctx context.Context, c *history.Client, lock *history.Lock) error {
	ref := lock.Refs()[0]
	move := []refdb.Update{{Ref: ref, Old: lock.Value(ref), New: after}}
	return errors.Join(
		lock.Update(ctx, move),
		c.Update(ctx, lock.Project(), move, refdb.Under(lock.Owner(), lock.Token(), ref)),
		lock.Release(ctx),
	)
}
