package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	// Short leases, so that much happens in little time.
	staleAfter = 3 * time.Second
	beatEvery  = 500 * time.Millisecond
	// leaseTime is how long a holder trusts a lock that is not renewed: stale-after less a fifth.
	leaseTime = staleAfter * 4 / 5

	reportEvery = 100 * time.Millisecond
	openLimit   = 60 * time.Second

	project = "chaos/project"
)

// What a site is doing.
const (
	opening = "opening"
	working = "working"
	paused  = "paused"
	closed  = "closed"
)

// A siteConfig tells a process which site to be.
type siteConfig struct {
	Name    string // the site with the number of its start: eu-1.3
	Site    string // eu-1
	URL     string
	Spanner string // the emulator's address, if the database is on one
	Dir     string // of the journals
	Seed    uint64
	Pause   time.Duration // of each worker, between two operations
}

// A report is what a site tells the nemesis, line by line.
type report struct {
	T          instant
	State      string
	Ops        int // how many succeeded since the last report
	Goroutines int
	Files      int
	Wall       int64 // the time of day, in seconds
}

// A site works on the database from its own process.
type site struct {
	siteConfig
	db       *refdb.DB
	loss     *messageLoss
	history  *historian
	journal  *journal
	sections *journal
	number   atomic.Int64 // number of the last update or holding
	ops      atomic.Int64
	state    atomic.Value

	// work is read-locked by each worker during an operation, and locked to pause them.
	work    sync.RWMutex
	pausing atomic.Bool // work is about to be locked
}

// runSite is the main of a site. It ends when its standard input does.
func runSite(argument string) error {
	s := &site{loss: &messageLoss{}}
	if err := json.Unmarshal([]byte(argument), &s.siteConfig); err != nil {
		return fmt.Errorf("read the site's configuration: %w", err)
	}
	s.state.Store(opening)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var reporter sync.WaitGroup
	reporting, silence := context.WithCancel(context.Background())
	reporter.Go(func() { s.reports(reporting) })
	defer reporter.Wait()
	defer silence()

	before := runtime.NumGoroutine() + 1 // with the reader of commands
	commands := make(chan string)
	go func() { // ends with the process
		defer close(commands)
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			commands <- lines.Text()
		}
	}()
	if err := s.open(ctx); err != nil {
		return err
	}
	var workers sync.WaitGroup
	for i := range slowWorkers + quickWorkers {
		w := &worker{site: s, random: rand.New(rand.NewPCG(s.Seed, uint64(i)))}
		workers.Go(func() { w.run(ctx, i < slowWorkers) })
	}
	workers.Go(func() { s.history.run(ctx) })
	s.state.Store(working)
	for command := range commands {
		s.execute(command)
	}
	cancel()
	if s.state.Load() == paused {
		s.work.Unlock()
	}
	workers.Wait()
	return s.close(before)
}

// open opens the journals and the database. The database may be down just now.
func (s *site) open(ctx context.Context) (err error) {
	if s.journal, err = openJournal(filepath.Join(s.Dir, s.Name+".journal")); err != nil {
		return err
	}
	if s.sections, err = openJournal(filepath.Join(s.Dir, sectionsFile)); err != nil {
		return err
	}
	driver, err := s.driver(ctx)
	if err != nil {
		return err
	}
	if s.db, err = refdb.New(driver, refdb.Options{Site: s.Site, StaleAfter: staleAfter, Heartbeat: beatEvery}); err != nil {
		return err
	}
	if driver, err = s.driver(ctx); err != nil {
		return err
	}
	s.history, err = s.newHistorian(driver)
	return err
}

// driver opens the database. It retries until openLimit.
func (s *site) driver(ctx context.Context) (refdb.Driver, error) {
	deadline := now().add(openLimit)
	for {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		driver, err := openDriver(attempt, s.URL, s.Spanner, s.loss)
		cancel()
		if err == nil {
			return driver, nil
		}
		if now() > deadline {
			return nil, fmt.Errorf("open the database: %w", err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// close closes the database and waits until there are as many goroutines as
// before. If there are more, it writes them to a file.
func (s *site) close(before int) error {
	err := errors.Join(s.db.Close(), s.history.close())
	// Goroutines need a moment to end.
	for deadline := now().add(3 * time.Second); now() < deadline && runtime.NumGoroutine() > before; {
		time.Sleep(20 * time.Millisecond)
	}
	s.state.Store(closed)
	time.Sleep(2 * reportEvery) // for a last report
	if runtime.NumGoroutine() > before {
		f, createErr := os.Create(filepath.Join(s.Dir, s.Name+".goroutines"))
		err = errors.Join(err, createErr)
		if createErr == nil {
			err = errors.Join(err, pprof.Lookup("goroutine").WriteTo(f, 1), f.Close())
		}
	}
	return errors.Join(err, s.journal.close(), s.sections.close())
}

// execute executes a command of the nemesis.
func (s *site) execute(command string) {
	verb, argument, _ := strings.Cut(command, " ")
	switch verb {
	case "pause":
		s.pausing.Store(true)
		s.work.Lock()
		s.state.Store(paused)
	case "resume":
		s.pausing.Store(false)
		s.state.Store(working)
		s.work.Unlock()
	case "lose":
		if p, err := strconv.ParseFloat(argument, 64); err == nil {
			s.loss.lose(p)
		}
	}
}

// reports writes a report to standard output again and again.
func (s *site) reports(ctx context.Context) {
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for {
		files, _ := os.ReadDir("/proc/self/fd")
		line, err := json.Marshal(report{
			T: now(), State: s.state.Load().(string), Ops: int(s.ops.Swap(0)),
			Goroutines: runtime.NumGoroutine(), Files: len(files), Wall: time.Now().Unix(),
		})
		if err == nil {
			_, err = fmt.Println(string(line))
		}
		if err != nil {
			return // nobody listens
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// id returns a name for an update or a holding that is unique among all sites.
func (s *site) id() string { return s.Name + "-" + strconv.FormatInt(s.number.Add(1), 10) }
