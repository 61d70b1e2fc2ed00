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
	recorded "github.com/globalrefdb/globalrefdb/test/history"
)

const (
	linearCheck = "linearizable (porcupine)"
	// linearWindow is how long the recorded work stays with a project: long
	// enough for locks to become stale in it, short enough to be checked.
	linearWindow = 8 * time.Second
	linearPrefix = "chaos/linear-"
	// checkLimit is how long checking the recorded histories of a database may take.
	checkLimit = time.Minute
)

// linearProject is the project that recorded work is about at that time.
func linearProject(t instant) string {
	return linearPrefix + strconv.FormatInt(int64(t)/int64(linearWindow), 10)
}

// windowOf is the time that a project of recorded work had.
func windowOf(project string) span {
	n, _ := strconv.ParseInt(strings.TrimPrefix(project, linearPrefix), 10, 64)
	from := instant(n) * instant(linearWindow)
	return span{from, from.add(linearWindow + opLimit)}
}

// A historian is a small part of a site's load, with all answers recorded.
type historian struct {
	*site
	client *recorded.Client
	file   *os.File
}

func (s *site) newHistorian(driver refdb.Driver) (*historian, error) {
	f, err := os.Create(filepath.Join(s.Dir, s.Name+".history"))
	if err != nil {
		return nil, err
	}
	c, err := recorded.Open(recorded.NewRecorder(f), driver, refdb.Options{Site: s.Site, StaleAfter: staleAfter, Heartbeat: beatEvery})
	return &historian{s, c, f}, err
}

// run works until ctx ends.
func (h *historian) run(ctx context.Context) {
	load := recorded.Workload{
		Client: h.client, Rand: rand.New(rand.NewPCG(h.Seed, 1<<32)),
		Refs:  []string{"refs/heads/a", "refs/heads/b", "refs/heads/c", "refs/heads/d"},
		Pause: h.Pause, Hold: 20 * time.Millisecond, Patience: 50 * time.Millisecond,
		// None that heed no locks: where replies get lost, too, they may have an
		// update under a lock happen twice (docs/DESIGN.md, 5.8).
	}
	for ctx.Err() == nil {
		h.work.RLock()
		load.Projects = []string{linearProject(now())}
		turn, cancel := context.WithTimeout(ctx, opLimit)
		load.Turn(turn)
		cancel()
		h.work.RUnlock()
		rest(ctx, 5*h.Pause)
	}
}

func (h *historian) close() error {
	return errors.Join(h.client.Close(), h.file.Close())
}

// checkLinear checks what the sites recorded, and names the projects of which
// it took too long to decide. Where all data was lost there is nothing to say.
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
	ops, err := recorded.Read(files...)
	if err != nil {
		return 0, nil, nil, err
	}
	for _, p := range recorded.Check(ops, checkLimit).Projects {
		w := windowOf(p.Name)
		if d.losesData(w.from, w.to) {
			continue
		}
		switch p.Verdict {
		case recorded.TimedOut:
			undecided = append(undecided, fmt.Sprintf("%s, with %d calls", p.Name, p.Calls))
			continue
		case recorded.Illegal:
			found = append(found, violation{Text: p.Name + " is not linearizable", Evidence: []string{p.Fault}})
		}
		looked += p.Calls
	}
	return looked, found, undecided, nil
}
