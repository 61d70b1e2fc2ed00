package compare

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"

	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/pause"
)

const (
	// lagEvery is the shortest time between two comparisons of a repository with the database.
	lagEvery = 10 * time.Second
	// lagRest is how many times longer than a comparison the pause after it is: so comparisons keep
	// the database busy for at most a tenth of the time.
	lagRest = 9
)

// Lags are the lags of the repositories when they were last compared.
type Lags struct {
	mu        sync.Mutex
	byProject map[string]measured
}

// measured is how far one repository was behind when it was last compared.
type measured struct {
	Lag
	looked time.Time
	failed bool // it could not be compared
}

// A LagSummary sums lags up.
type LagSummary struct {
	Repositories, Behind, Failed, Refs int
	Longest                            time.Duration // since the database has had a value that is not here
	Looked                             time.Duration // since the comparison that is longest ago
}

// Sum sums the lags up.
func (ls *Lags) Sum() (s LagSummary) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	s.Repositories = len(ls.byProject)
	for _, l := range ls.byProject {
		s.Looked = max(s.Looked, time.Since(l.looked))
		s.Refs += l.Refs
		if l.failed {
			s.Failed++
		}
		if l.Refs > 0 {
			s.Behind++
		}
		if !l.Since.IsZero() {
			s.Longest = max(s.Longest, time.Since(l.Since))
		}
	}
	return s
}

// set records the lag of a repository. If it could not be compared, its last lag stays.
func (ls *Lags) set(project string, l measured) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.byProject == nil {
		ls.byProject = map[string]measured{}
	}
	if before := ls.byProject[project]; l.failed {
		l.Lag = before.Lag
	}
	ls.byProject[project] = l
}

// keep removes all repositories but these.
func (ls *Lags) keep(repositories []config.Repository) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	kept := make(map[string]measured, len(repositories))
	for _, r := range repositories {
		if l, ok := ls.byProject[r.Project]; ok {
			kept[r.Project] = l
		}
	}
	ls.byProject = kept
}

// Measure compares the repositories of a site with the database, one after the other, until ctx ends. Configured returns the
// configuration as it is now, digest what stands for a project in logs.
func (ls *Lags) Measure(ctx context.Context, configured func() *config.Config, db *refdb.DB, log *slog.Logger, digest func(project, ref string) string) {
	for {
		round := time.Now()
		c := configured()
		repositories, err := c.Repositories()
		if err != nil {
			log.WarnContext(ctx, "the repositories can't be listed: their lag is not measured")
		} else {
			ls.keep(repositories)
		}
		for _, r := range repositories {
			start := time.Now()
			now, err := LagOf(ctx, c, db, r)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				log.DebugContext(ctx, "a repository can't be compared with the database", "project", digest(r.Project, ""),
					"class", refdb.ClassOf(err).String())
			}
			ls.set(r.Project, measured{now, time.Now(), err != nil})
			if !pause.For(ctx, lagRest*time.Since(start)) {
				return
			}
		}
		if !pause.For(ctx, time.Until(round.Add(lagEvery))) {
			return
		}
	}
}
