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
	// settlePatience is how long to wait for a key that is settled. Most intents end sooner, and without such a key nothing is kept
	// and each reader compares by itself.
	settlePatience = 50 * time.Millisecond
	settlePause    = 5 * time.Millisecond
	// fullEvery is after how long all refs are compared again, also if nothing shows that any moved past the hooks.
	fullEvery = 5 * time.Minute
)

// known is what the server knows of a project.
type known struct {
	repository config.Repository
	row        driver.Project // of the database
	ruled      *config.Config // with the rules of row
	file       fs.FileInfo    // of the repository's configuration: that of another repository in its place is another one
	applied    applied
	complete   time.Time // when the repository was last known to have all acknowledged pushes; zero: never, or it lacks some
}

// An applied is what a repository was found to have: all that the key stands for.
type applied struct {
	key  refdb.StateKey
	past string    // as it was before
	full time.Time // when all refs were compared last
}

// holds reports whether the refs that have not changed in the database since need not be looked at again.
func (a applied) holds(now state) bool {
	return now.own != own{} && a.past == now.own.past && time.Since(a.full) < fullEvery
}

// find returns the guarded repository of a project, and its state. The error is errUnknown for whatever else has that name.
func (s *Server) find(ctx context.Context, project string) (known, state, error) {
	r, err := s.o.Config.Repository(project)
	if err != nil || r.Project != project || !s.guards(r) {
		return known{}, state{}, errUnknown
	}
	now, err := s.state(ctx, r)
	if err != nil {
		return known{}, state{}, err
	}
	p, err := s.ruled(ctx, r, now.key)
	return p, now, err
}

// ruled returns what is known of a guarded repository, with the rules of a key or later ones.
func (s *Server) ruled(ctx context.Context, r config.Repository, now refdb.StateKey) (known, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Config.Timeout)
	defer cancel()
	p := s.known(r.Project)
	if p.row.Revision != now.Revision() { // it may be another project's name by now
		s.forget(r.Project)
	}
	if now.Revision() == 0 {
		return known{}, errUnknown
	}
	file, err := os.Stat(filepath.Join(r.Path, "config"))
	if err != nil {
		return known{}, err
	}
	if p.row.Revision != now.Revision() || !unchanged(p.file, file) {
		if p, err = s.learn(ctx, r, file); err != nil {
			return known{}, err
		}
	}
	id, err := s.ids.Of(ctx, r)
	switch {
	case err != nil:
		return known{}, err
	case id != p.row.ID: // a copy of another project's repository
		return known{}, errUnknown
	}
	return p, nil
}

// guards reports whether the hooks of a repository ask this site's daemon.
func (s *Server) guards(r config.Repository) bool {
	target, err := os.Readlink(filepath.Join(r.Path, "refdb", "socket"))
	return err == nil && target == s.o.Config.Socket
}

func (s *Server) known(project string) known {
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

// learn reads the row of a project. Nothing is known of its repository's refs any more.
func (s *Server) learn(ctx context.Context, r config.Repository, file fs.FileInfo) (known, error) {
	row, ok, err := s.o.DB.Projects().Get(ctx, r.Project)
	if err != nil {
		return known{}, err
	}
	if !ok {
		return known{}, errUnknown
	}
	ruled, err := projects.WithRulesOf(s.o.Config, row)
	if err != nil {
		return known{}, err
	}
	p := known{repository: r, row: row, ruled: ruled, file: file}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.projects[r.Project] = p
	return p, nil
}

// state reads a repository's state. If the daemon does not answer it is one from which nothing is kept.
func (s *Server) state(ctx context.Context, r config.Repository) (now state, err error) {
	asking, cancel := context.WithTimeout(ctx, s.o.Config.Timeout)
	defer cancel()
	if now.key, err = s.o.DB.StateKey(asking, r.Project); err != nil {
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			err = fmt.Errorf("%w: %w", errSilent, err)
		}
		return state{}, err
	}
	if now.own, err = ownState(ctx, s.o.Config.Socket, r.Path, s.limits.daemon); err != nil {
		now.own = own{}
	}
	return now, ctx.Err()
}

// fresh waits until the repository has all that was acknowledged before the call, and returns a state that was read before that was found.
// Now is the last one that was read.
func (s *Server) fresh(ctx context.Context, p known, now state) (state, error) {
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
	if p.row.Revision != now.key.Revision() { // what is found under older rules proves nothing about this key
		var err error
		if p, err = s.ruled(ctx, p.repository, now.key); err != nil {
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
	_, err := s.waits.do(ctx, waitKey{now.key, now.own.past}, func(ctx context.Context) (none struct{}, err error) {
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

// await waits until the repository has all that was acknowledged before the call, and returns what it was found to have. Of a settled
// key only what has changed since the last one is looked at, if that is known, and if nothing else may have moved.
func (s *Server) await(ctx context.Context, p known, now state) (found applied, err error) {
	s.counts.waits.Inc()
	ctx, cancel := context.WithTimeout(ctx, s.limits.ask)
	defer cancel()
	repo, err := gitrepo.OpenDir(p.repository.Path)
	if err != nil {
		return applied{}, err
	}
	found = applied{now.key, now.own.past, p.applied.full}
	var changed []string
	known := false
	if p.applied.holds(now) {
		if changed, known, err = s.o.DB.ChangedBetween(ctx, p.applied.key, now.key, compare.Chunk); err != nil {
			return applied{}, err
		}
	}
	var behind []string
	if known {
		behind, err = compare.WaitFor(ctx, p.ruled, s.o.DB, repo, p.repository.Project, changed, s.limits.wait)
	} else {
		found.full = time.Now()
		behind, err = compare.Wait(ctx, p.ruled, s.o.DB, repo, p.repository.Project, s.limits.wait)
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
