package smarthttp

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/compare"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

const (
	// settlePatience is how long a request waits for a settled key. Most intents end sooner.
	// Without a settled key nothing is cached, and each reader compares the repository by itself.
	settlePatience = 50 * time.Millisecond
	settlePause    = 5 * time.Millisecond
	// fullEvery is the interval at which all refs are compared again, even if nothing shows that a
	// ref has moved past the hooks.
	fullEvery = 5 * time.Minute
)

// A knownProject is what the server remembers of a project and its repository.
type knownProject struct {
	repository config.Repository
	row        driver.Project // the project's row in the database
	config     *config.Config // the site's configuration with the rules of row
	file       fs.FileInfo    // the repository's config file, which differs if the repository was replaced
	applied    applied
	// complete is when the repository was last known to have all acknowledged pushes. It is zero if
	// the repository never was, or lacks some pushes.
	complete time.Time
}

// An applied records that a repository was found to have everything that a key stands for.
type applied struct {
	key         refdb.StateKey
	fingerprint string    // the fingerprint before the comparison
	full        time.Time // when all refs were last compared
}

// holds reports whether only refs that have changed in the database since need to be compared
// again.
func (a applied) holds(now state) bool {
	return now.local != localState{} && a.fingerprint == now.local.fingerprint && time.Since(a.full) < fullEvery
}

// find returns the guarded repository of a project, and its state. If this site guards no
// repository of that name, the error is errUnknown.
func (s *Server) find(ctx context.Context, project string) (knownProject, state, error) {
	r, err := s.o.Config.Repository(project)
	if err != nil || r.Project != project || !s.guards(r) {
		return knownProject{}, state{}, errUnknown
	}
	now, err := s.state(ctx, r)
	if err != nil {
		return knownProject{}, state{}, err
	}
	p, err := s.current(ctx, r, now.key)
	return p, now, err
}

// current returns what is known of a guarded repository, with the rules of the given key or later
// ones.
func (s *Server) current(ctx context.Context, r config.Repository, now refdb.StateKey) (knownProject, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Config.Timeout)
	defer cancel()
	p := s.known(r.Project)
	if p.row.Revision != now.Revision() { // the name may belong to another project by now
		s.forget(r.Project)
	}
	if now.Revision() == 0 {
		return knownProject{}, errUnknown
	}
	file, err := os.Stat(filepath.Join(r.Path, "config"))
	if err != nil {
		return knownProject{}, err
	}
	if p.row.Revision != now.Revision() || !unchanged(p.file, file) {
		if p, err = s.load(ctx, r, file); err != nil {
			return knownProject{}, err
		}
	}
	id, err := s.ids.Of(ctx, r)
	switch {
	case err != nil:
		return knownProject{}, err
	case id != p.row.ID: // a copy of another project's repository
		return knownProject{}, errUnknown
	}
	return p, nil
}

// guards reports whether the hooks of a repository connect to this site's daemon.
func (s *Server) guards(r config.Repository) bool {
	target, err := os.Readlink(filepath.Join(r.Path, "refdb", "socket"))
	return err == nil && target == s.o.Config.Socket
}

func (s *Server) known(project string) knownProject {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.projects[project]
}

func (s *Server) forget(project string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.projects, project)
}

func unchanged(before, now fs.FileInfo) bool {
	return before != nil && os.SameFile(before, now) && before.ModTime().Equal(now.ModTime()) && before.Size() == now.Size()
}

// load reads the row of a project. It forgets what was known of the refs of the project's
// repository.
func (s *Server) load(ctx context.Context, r config.Repository, file fs.FileInfo) (knownProject, error) {
	row, ok, err := s.o.DB.Projects().Get(ctx, r.Project)
	if err != nil {
		return knownProject{}, err
	}
	if !ok {
		return knownProject{}, errUnknown
	}
	withRules, err := projects.WithRulesOf(s.o.Config, row)
	if err != nil {
		return knownProject{}, err
	}
	p := knownProject{repository: r, row: row, config: withRules, file: file}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.projects[r.Project] = p
	return p, nil
}

// state reads a repository's state. If the daemon does not answer, the state is not cacheable.
func (s *Server) state(ctx context.Context, r config.Repository) (now state, err error) {
	asking, cancel := context.WithTimeout(ctx, s.o.Config.Timeout)
	defer cancel()
	if now.key, err = s.o.DB.StateKey(asking, r.Project); err != nil {
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			err = fmt.Errorf("%w: %w", errTimeout, err)
		}
		return state{}, err
	}
	if now.local, err = readLocalState(ctx, s.o.Config.Socket, r.Path, s.limits.daemon); err != nil {
		now.local = localState{}
	}
	return now, ctx.Err()
}

// fresh waits until the repository has everything that was acknowledged before the call, and
// returns a state that was read before the repository was found to have it. now is the latest state
// that the caller has read.
func (s *Server) fresh(ctx context.Context, p knownProject, now state) (state, error) {
	until := time.Now().Add(s.limits.settle)
	for !now.key.Settled() && time.Now().Before(until) {
		select {
		case <-ctx.Done():
			return now, context.Cause(ctx)
		case <-time.After(settlePause):
		}
		var err error
		if now, err = s.state(ctx, p.repository); err != nil {
			return now, err
		}
	}
	// A comparison under older rules proves nothing about this key.
	if p.row.Revision != now.key.Revision() {
		var err error
		if p, err = s.current(ctx, p.repository, now.key); err != nil {
			return now, err
		}
	}
	if !now.key.Settled() {
		_, err := s.await(ctx, p, now)
		return now, err
	}
	for _, a := range []applied{p.applied, s.known(p.repository.Project).applied} {
		if a.key == now.key && a.holds(now) {
			return now, nil
		}
	}
	_, err := s.waits.do(ctx, waitKey{now.key, now.local.fingerprint}, func(ctx context.Context) (none struct{}, err error) {
		found, err := s.await(ctx, p, now)
		if err == nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			if have := s.projects[p.repository.Project]; have.row.Revision == now.key.Revision() && have.file == p.file {
				have.applied = found
				s.projects[p.repository.Project] = have
			}
		}
		return none, err
	})
	return now, err
}

// await waits until the repository has everything that was acknowledged before the call, and
// returns what the repository was found to have. It compares only the refs that have changed in the
// database since the last comparison if these are known and no other refs may have moved; otherwise
// it compares all refs.
func (s *Server) await(ctx context.Context, p knownProject, now state) (found applied, err error) {
	s.counts.waits.Inc()
	ctx, cancel := context.WithTimeout(ctx, s.limits.compare)
	defer cancel()
	repo, err := gitrepo.OpenDir(p.repository.Path)
	if err != nil {
		return applied{}, err
	}
	found = applied{now.key, now.local.fingerprint, p.applied.full}
	var changed []string
	known := false
	if p.applied.holds(now) {
		if changed, known, err = s.o.DB.ChangedBetween(ctx, p.applied.key, now.key, compare.Chunk); err != nil {
			return applied{}, err
		}
	}
	var behind []string
	if known {
		behind, err = compare.WaitFor(ctx, p.config, s.o.DB, repo, p.repository.Project, changed, s.limits.wait)
	} else {
		found.full = time.Now()
		behind, err = compare.Wait(ctx, p.config, s.o.DB, repo, p.repository.Project, s.limits.wait)
	}
	switch {
	case err != nil:
		return applied{}, err
	case ctx.Err() != nil:
		return applied{}, context.Cause(ctx)
	case len(behind) == 1:
		return applied{}, fmt.Errorf("%w by one ref after %s, %s", errBehind, s.limits.wait, wire.Printable(behind[0]))
	case len(behind) > 0:
		return applied{}, fmt.Errorf("%w by %d refs after %s, %s among them", errBehind, len(behind), s.limits.wait, wire.Printable(behind[0]))
	}
	return found, nil
}
