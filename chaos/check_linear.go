package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/test/linearizability"
)

const (
	linearCheck = "linearizable (porcupine)"
	// linearWindow is how long the recorded work stays with a project: long
	// enough for locks to become stale, short enough to be checked.
	linearWindow = 8 * time.Second
	linearPrefix = "chaos/linear-"
	// checkLimit is how long checking the recorded histories of a database may take.
	checkLimit = 10 * time.Minute
)

// linearProject returns the project of the recorded work at that time.
func linearProject(t instant) string {
	return linearPrefix + strconv.FormatInt(int64(t)/int64(linearWindow), 10)
}

// windowOf returns when a project was worked on.
func windowOf(project string) span {
	n, _ := strconv.ParseInt(strings.TrimPrefix(project, linearPrefix), 10, 64)
	from := instant(n) * instant(linearWindow)
	return span{from, from.add(linearWindow + opLimit)}
}

// A historian is a small part of a site's load, with all answers recorded.
type historian struct {
	*site
	client *linearizability.Client
	file   *os.File
}

func (s *site) newHistorian(driver refdb.Driver) (*historian, error) {
	f, err := os.Create(filepath.Join(s.Dir, s.Name+".history"))
	if err != nil {
		return nil, err
	}
	c, err := linearizability.Open(linearizability.NewRecorder(f), driver, refdb.Options{Site: s.Site, StaleAfter: staleAfter, Heartbeat: beatEvery})
	return &historian{s, c, f}, err
}

// run works until ctx ends.
func (h *historian) run(ctx context.Context) {
	load := linearizability.Workload{
		Client: h.client, Rand: rand.New(rand.NewPCG(h.Seed, 1<<32)),
		Refs:  []string{"refs/heads/a", "refs/heads/b", "refs/heads/c", "refs/heads/d"},
		Pause: h.Pause, Hold: 20 * time.Millisecond, Patience: 50 * time.Millisecond,
		// No advisory updates, which heed no locks: together with lost replies they may
		// make an update under a lock happen twice (docs/PROTOCOL.md, R6).
	}
	for ctx.Err() == nil {
		h.work.RLock()
		load.Projects = []string{linearProject(now())}
		turn, cancel := context.WithTimeout(ctx, opLimit)
		load.Turn(turn)
		cancel()
		h.work.RUnlock()
		sleep(ctx, 5*h.Pause)
	}
}

func (h *historian) close() error {
	return errors.Join(h.client.Close(), h.file.Close())
}

// checkLinear checks what the sites recorded, and returns the projects that took
// too long to decide. It skips those during which all data was lost.
func checkLinear(dir string, d *disturbances) (looked int, found []violation, undecided []string, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.history"))
	if err != nil {
		return 0, nil, nil, err
	}
	var files []io.Reader
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return 0, nil, nil, err
		}
		defer f.Close()
		files = append(files, f)
	}
	ops, err := linearizability.Read(files...)
	if err != nil {
		return 0, nil, nil, err
	}
	for _, p := range linearizability.Check(ops, checkLimit).Projects {
		w := windowOf(p.Name)
		if d.losesData(w.from, w.to) {
			continue
		}
		switch p.Verdict {
		case linearizability.TimedOut:
			undecided = append(undecided, fmt.Sprintf("%s, with %d calls", p.Name, p.Calls))
			continue
		case linearizability.Illegal:
			found = append(found, violation{Text: p.Name + " is not linearizable", Evidence: []string{p.Fault}})
		}
		looked += p.Calls
	}
	return looked, found, undecided, nil
}
