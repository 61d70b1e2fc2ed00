package site

import (
	"context"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/compare"
	"github.com/globalrefdb/globalrefdb/site/config"
)

const (
	// lagEvery is the shortest time between two comparisons of a repository with the database.
	lagEvery = 10 * time.Second
	// lagRest is how many times longer than a comparison the pause after it is: so comparisons keep
	// the database busy for at most a tenth of the time.
	lagRest = 9
)

// lags are the lags of the repositories when they were last compared.
type lags struct {
	mu        sync.Mutex
	byProject map[string]lag
}

// A lag is how far one repository was behind when it was last compared.
type lag struct {
	compare.Lag
	looked time.Time
	failed bool // it could not be compared
}

// A lagSummary sums lags up.
type lagSummary struct {
	repositories, behind, failed, refs int
	longest                            time.Duration // since the database has had a value that is not here
	looked                             time.Duration // since the comparison that is longest ago
}

func (ls *lags) sum() (s lagSummary) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	s.repositories = len(ls.byProject)
	for _, l := range ls.byProject {
		s.looked = max(s.looked, time.Since(l.looked))
		s.refs += l.Refs
		if l.failed {
			s.failed++
		}
		if l.Refs > 0 {
			s.behind++
		}
		if !l.Since.IsZero() {
			s.longest = max(s.longest, time.Since(l.Since))
		}
	}
	return s
}

// set records the lag of a repository. If it could not be compared, its last lag stays.
func (ls *lags) set(project string, l lag) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.byProject == nil {
		ls.byProject = map[string]lag{}
	}
	if before := ls.byProject[project]; l.failed {
		l.Lag = before.Lag
	}
	ls.byProject[project] = l
}

// keep removes all repositories but these.
func (ls *lags) keep(repositories []config.Repository) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	kept := make(map[string]lag, len(repositories))
	for _, r := range repositories {
		if l, ok := ls.byProject[r.Project]; ok {
			kept[r.Project] = l
		}
	}
	ls.byProject = kept
}

// measureLag compares the repositories with the database, one after the other, until ctx ends.
func (d *Daemon) measureLag(ctx context.Context) {
	for {
		round := time.Now()
		c := d.config.Load()
		repositories, err := c.Repositories()
		if err != nil {
			d.o.Logger.WarnContext(ctx, "the repositories can't be listed: how far they lag is not measured")
		} else {
			d.lags.keep(repositories)
		}
		for _, r := range repositories {
			start := time.Now()
			now, err := compare.LagOf(ctx, c, d.db, r)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				d.o.Logger.DebugContext(ctx, "a repository can't be compared with the database", "project", d.digest(r.Project, ""),
					"class", refdb.ClassOf(err).String())
			}
			d.lags.set(r.Project, lag{now, time.Now(), err != nil})
			if !pauseFor(ctx, lagRest*time.Since(start)) {
				return
			}
		}
		if !pauseFor(ctx, time.Until(round.Add(lagEvery))) {
			return
		}
	}
}

// pauseFor waits for t. It reports false if ctx ended first.
func pauseFor(ctx context.Context, t time.Duration) bool {
	select {
	case <-time.After(t):
		return true
	case <-ctx.Done():
		return false
	}
}
