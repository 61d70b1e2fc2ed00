package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/bench/internal/command"
	"github.com/globalrefdb/globalrefdb/bench/internal/machine"
	"github.com/globalrefdb/globalrefdb/bench/internal/places"
	"github.com/globalrefdb/globalrefdb/bench/internal/report"
)

const peakMemory = "peak_mb"

// projectSizes returns the numbers of refs in W6.
func projectSizes() []int { return []int{100_000, 1_000_000} }

// importWorkload is W6's first half: refdbctl refs import.
func importWorkload(ctx context.Context, s *servers) (workload, error) {
	programs, _, err := s.needSites(ctx)
	if err != nil {
		return workload{}, err
	}
	refdbctl := filepath.Join(programs, "refdbctl")
	w := workload{
		id:    "W6",
		title: "refdbctl refs import of a whole project",
		setting: fmt.Sprintf("PostgreSQL %s: %sthe repository's refs are packed. COPY is the fastest way into an empty table of the same shape: no comparison, no batches. "+
			"At most 3 rounds. Peak memory: the process's VmHWM.", s.postgres.version, postgresSetting),
		atMost:  3,
		metrics: []metric{{perSecond, "refs/s", 0}, {peakMemory, "peak memory MB", 0}},
	}
	for _, n := range projectSizes() {
		repo := filepath.Join(s.dir, fmt.Sprintf("repository-%d.git", n))
		if err := places.MakeRepository(ctx, repo, n, places.Branch); err != nil {
			return workload{}, err
		}
		w.cases = append(w.cases, benchCase{
			name: report.Number(float64(n), 0) + " refs", baseline: "COPY",
			contestants: []contestant{
				{"COPY", func(ctx context.Context) (sample, error) { return s.copyRefs(ctx, n) }},
				{"refdbctl", func(ctx context.Context) (sample, error) { return s.importRefs(ctx, refdbctl, repo, n) }},
			},
		})
	}
	return w, nil
}

func (s *servers) importRefs(ctx context.Context, refdbctl, repo string, n int) (sample, error) {
	return s.postgres.withDatabase(ctx, migratedTemplate, func(url string) (sample, error) {
		cmd := exec.CommandContext(ctx, refdbctl, "refs", "import", project, "--repo", repo)
		cmd.Env = append(os.Environ(), "REFDB_URL="+url)
		var said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &said, &said
		start := time.Now()
		peak, err := command.Watch(cmd)
		took := time.Since(start)
		if err != nil {
			return nil, fmt.Errorf("refdbctl refs import: %w: %s", err, said.Bytes())
		}
		if !strings.Contains(said.String(), fmt.Sprintf("%d imported", n)) {
			return nil, fmt.Errorf("refdbctl refs import did not import %d refs: %s", n, said.Bytes())
		}
		return sample{perSecond: float64(n) / took.Seconds(), peakMemory: machine.Megabytes(peak)}, nil
	})
}

func (s *servers) copyRefs(ctx context.Context, n int) (sample, error) {
	return s.postgres.withDatabase(ctx, emptyTemplate, func(url string) (sample, error) {
		_, closeFloor, err := openFloor(ctx, url)
		if err != nil {
			return nil, err
		}
		closeFloor()
		c, err := pgx.Connect(ctx, url)
		if err != nil {
			return nil, err
		}
		defer c.Close(ctx)
		start := time.Now()
		i := 0
		copied, err := c.CopyFrom(ctx, pgx.Identifier{"floor_refs"}, []string{"project", "ref", "value", "time"},
			pgx.CopyFromFunc(func() ([]any, error) {
				if i == n {
					return nil, nil
				}
				i++
				return []any{project, places.Branch(i), objectID(0), start}, nil
			}))
		if err == nil && copied != int64(n) {
			err = fmt.Errorf("%d of %d refs were copied", copied, n)
		}
		return sample{perSecond: float64(n) / time.Since(start).Seconds()}, err
	})
}
