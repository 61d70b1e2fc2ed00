package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// siteNames are the sites of each database.
var siteNames = []string{"eu-1", "us-1", "ap-1"}

// A cluster is the site processes on one database.
type cluster struct {
	program string
	dir     string // of journals and logs
	pause   time.Duration
	seed    uint64
	// configure fills in where a site finds its database.
	configure func(*siteConfig) error
	clock     func(site string) wallClock

	meter  *meter
	sites  map[string]*siteProcess // those that run
	starts map[string]int
	ended  []*siteProcess
}

// A siteProcess is one start of a site.
type siteProcess struct {
	*process
	name   string // eu-1.3
	in     io.WriteCloser
	killed bool
	read   sync.WaitGroup

	mu            sync.Mutex
	first, latest report
	quiet         []report // one for each pause
}

// start starts a site.
func (c *cluster) start(site string) error {
	c.starts[site]++
	config := siteConfig{
		Name: fmt.Sprintf("%s.%d", site, c.starts[site]), Site: site, Dir: c.dir,
		Seed: c.seed + uint64(c.starts[site])<<32 + uint64(slices.Index(siteNames, site)), Pause: c.pause,
	}
	if err := c.configure(&config); err != nil {
		return err
	}
	argument, err := json.Marshal(config)
	if err != nil {
		return err
	}
	cmd := exec.Command(c.program, siteRole, string(argument))
	cmd.Env = append(os.Environ(), c.clock(site).variable())
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	// Not StdoutPipe: Wait would close it before all is read.
	reports, out, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.Stdout = out
	p, err := spawn(cmd, filepath.Join(c.dir, config.Name+".log"))
	out.Close()
	if err != nil {
		reports.Close()
		return err
	}
	s := &siteProcess{process: p, name: config.Name, in: in}
	s.read.Go(func() {
		defer reports.Close()
		for lines := bufio.NewScanner(reports); lines.Scan(); {
			var r report
			if json.Unmarshal(lines.Bytes(), &r) == nil {
				c.receive(s, r)
			}
		}
	})
	c.sites[site] = s
	return nil
}

func (c *cluster) receive(s *siteProcess, r report) {
	s.mu.Lock()
	if s.first == (report{}) {
		s.first = r
	}
	s.latest = r
	s.mu.Unlock()
	c.meter.add(r.T, r.Ops)
}

func (s *siteProcess) report() report {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latest
}

func (s *siteProcess) send(command string) error {
	if _, err := fmt.Fprintln(s.in, command); err != nil {
		return fmt.Errorf("tell site %s to %s: %w", s.name, command, err)
	}
	return nil
}

// waitForState waits until the site reports that state.
func (s *siteProcess) waitForState(ctx context.Context, state string) error {
	return await(ctx, "site "+s.name+" to be "+state, func() error {
		select {
		case <-s.process.ended:
			return errEnded
		default:
		}
		if got := s.report().State; got != state {
			return fmt.Errorf("it is %s", got)
		}
		return nil
	})
}

// kill kills a site and leaves its journal.
func (c *cluster) kill(site string) {
	s := c.sites[site]
	s.killed = true
	s.kill()
	c.end(site)
}

func (c *cluster) end(site string) {
	s := c.sites[site]
	s.in.Close()
	s.read.Wait()
	c.ended = append(c.ended, s)
	delete(c.sites, site)
}

// running waits until all sites work.
func (c *cluster) running(ctx context.Context) error {
	for _, s := range c.sites {
		if err := s.waitForState(ctx, working); err != nil {
			return err
		}
	}
	return nil
}

// pauseAll lets the sites finish their operations, and notes what they use then.
func (c *cluster) pauseAll(ctx context.Context) error {
	for _, s := range c.sites {
		if err := s.send("pause"); err != nil {
			return err
		}
	}
	for _, s := range c.sites {
		if err := s.waitForState(ctx, paused); err != nil {
			return err
		}
	}
	// After a call that timed out the library cleans up for up to three seconds.
	sleep(ctx, 3*time.Second+5*reportEvery)
	for _, s := range c.sites {
		s.mu.Lock()
		s.quiet = append(s.quiet, s.latest)
		s.mu.Unlock()
	}
	return ctx.Err()
}

func (c *cluster) resumeAll(ctx context.Context) error {
	for _, s := range c.sites {
		if err := s.send("resume"); err != nil {
			return err
		}
	}
	return c.running(ctx)
}

// stop lets a site close its database and end.
func (c *cluster) stop(ctx context.Context, site string) error {
	s := c.sites[site]
	s.in.Close()
	err := await(ctx, "the end of site "+s.name, func() error {
		select {
		case <-s.process.ended:
			return nil
		default:
			return fmt.Errorf("it still runs")
		}
	})
	if err != nil {
		s.kill()
	} else if !s.ProcessState.Success() {
		err = fmt.Errorf("site %s ended with %s, see its log", s.name, s.ProcessState)
	}
	c.end(site)
	return err
}

// close kills what still runs.
func (c *cluster) close() {
	for site := range c.sites {
		c.kill(site)
	}
}
