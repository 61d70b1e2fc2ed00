package site

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/hookdir"
	"github.com/globalrefdb/globalrefdb/site/install"
	"github.com/globalrefdb/globalrefdb/site/internal/pause"
)

// surveyEvery is how often a daemon that exports metrics surveys its site.
const surveyEvery = 5 * time.Minute

// States of a repository, for metrics.
const (
	repositoryGuarded  = "guarded"  // the daemon is asked about its pushes
	repositoryOpen     = "open"     // nobody has put it under guard
	repositoryDisabled = "disabled" // nothing is to guard it
	repositoryBypassed = "bypassed" // it is under guard, and its configuration does not lead git to the hooks
	repositoryUnknown  = "unknown"  // it can't be looked at
)

var repositoryStates = []string{repositoryGuarded, repositoryOpen, repositoryDisabled, repositoryBypassed, repositoryUnknown}

// A survey is what a daemon counts now and then: a forge makes repositories, and writes their configuration, at any time.
type survey struct {
	taking sync.Mutex // held while one is taken, so that no older one takes the place of a newer
	mu     sync.Mutex
	states map[string]int    // repositories by state; nil: not surveyed yet
	packs  *driver.PackUsage // of all projects; nil if the database has not said it, or keeps no packs
}

// results returns what was found last.
func (s *survey) results() (states map[string]int, packs *driver.PackUsage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.states, s.packs
}

// keep surveys the site until ctx ends.
func (s *survey) keep(ctx context.Context, d *Daemon) {
	for {
		s.take(ctx, d)
		if !pause.For(ctx, surveyEvery) {
			return
		}
	}
}

func (s *survey) take(ctx context.Context, d *Daemon) {
	s.taking.Lock()
	defer s.taking.Unlock()
	states := surveyRepositories(ctx, d.state.Config())
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	usage, err := d.db.Packs().Usage(limited, "")
	if !errors.Is(err, errors.ErrUnsupported) {
		d.logFailure(ctx, "the size of the packs in the database could not be read", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.states = states
	if err == nil { // else the metrics stay as old as they are, and RefdbDatabaseDown says so
		s.packs = &usage
	}
}

func surveyRepositories(ctx context.Context, c *config.Config) map[string]int {
	states := make(map[string]int, len(repositoryStates))
	for _, state := range repositoryStates {
		states[state] = 0
	}
	all, err := c.Repositories()
	if err != nil {
		states[repositoryUnknown]++ // any number of them
	}
	for _, r := range all {
		if c.GuardsProject(r.Project) {
			states[stateOf(ctx, c, r)]++
		}
	}
	return states
}

// stateOf returns the state of a repository. Only of one that is not under guard git reads the configuration.
func stateOf(ctx context.Context, c *config.Config, r config.Repository) string {
	text, err := os.ReadFile(filepath.Join(r.Path, "config"))
	switch {
	case err != nil:
		return repositoryUnknown
	case !install.IsGuardedBy(c, r) && install.IsDisabled(ctx, r):
		return repositoryDisabled
	case !install.IsGuardedBy(c, r):
		return repositoryOpen
	case bytes.Contains(text, []byte(hookdir.Dir(c.Hooks).HooksPath())):
		return repositoryGuarded
	}
	// An earlier version has put its hooks into the repository's own directory.
	if _, err := os.Lstat(filepath.Join(r.Path, "hooks", "reference-transaction")); !errors.Is(err, fs.ErrNotExist) {
		return repositoryGuarded
	}
	return repositoryBypassed
}
