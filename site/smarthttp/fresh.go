package smarthttp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/compare"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/projects"
)

const (
	// settlePatience is how long to wait for a key that is settled. Most intents end sooner, and without such a key nothing is kept
	// and each reader compares by itself.
	settlePatience = 50 * time.Millisecond
	settlePause    = 5 * time.Millisecond
)

// known is what the server knows of a project.
type known struct {
	repository config.Repository
	row        refdb.Project  // of the database
	ruled      *config.Config // with the rules of row
	file       fs.FileInfo    // of the repository's configuration: that of another repository in its place is another one
	applied    refdb.StateKey // the repository has all that this key stands for
}

// find returns the guarded repository of a project, and its state. The error is errUnknown for whatever else has that name.
func (s *Server) find(ctx context.Context, project string) (known, state, error) {
	r, err := s.o.Config.Repository(project)
	if err != nil || r.Project != project || !s.guards(r) {
		return known{}, state{}, errUnknown
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.Config.Timeout)
	defer cancel()
	now, err := s.state(ctx, r)
	if err != nil {
		return known{}, state{}, err
	}
	if now.key.Revision() == 0 {
		return known{}, state{}, errUnknown
	}
	file, err := os.Stat(filepath.Join(r.Path, "config"))
	if err != nil {
		return known{}, state{}, err
	}
	p := s.known(project)
	if p.row.Revision != now.key.Revision() || !unchanged(p.file, file) {
		if p, err = s.learn(ctx, r, file); err != nil {
			return known{}, state{}, err
		}
	}
	id, err := s.ids.Of(ctx, r)
	switch {
	case err != nil:
		return known{}, state{}, err
	case id != p.row.ID: // a copy of another project's repository
		return known{}, state{}, errUnknown
	}
	return p, now, nil
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

func unchanged(before, now fs.FileInfo) bool {
	return before != nil && os.SameFile(before, now) && before.ModTime().Equal(now.ModTime()) && before.Size() == now.Size()
}

// learn reads the row of a project. Nothing is known of its repository's refs any more.
func (s *Server) learn(ctx context.Context, r config.Repository, file fs.FileInfo) (known, error) {
	row, ok, err := s.o.DB.Project(ctx, r.Project)
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
func (s *Server) state(ctx context.Context, r config.Repository) (state, error) {
	key, err := s.o.DB.StateKey(ctx, r.Project)
	if err != nil {
		return state{}, err
	}
	own, err := ownState(ctx, s.o.Config.Socket, r.Path)
	if err != nil {
		own = ""
	}
	return state{key, own}, ctx.Err()
}

// fresh waits until the repository has all that was acknowledged before the call, and returns a state that was read before that was found.
// Now is the last one that was read.
func (s *Server) fresh(ctx context.Context, p known, now state) (state, error) {
	until := time.Now().Add(settlePatience)
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
	if !now.key.Settled() {
		return now, s.await(ctx, p, now.key)
	}
	if now.key == p.applied || now.key == s.known(p.repository.Project).applied {
		return now, nil
	}
	_, err := s.waits.do(ctx, now.key, func(ctx context.Context) (none struct{}, err error) {
		if err = s.await(ctx, p, now.key); err == nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			if have := s.projects[p.repository.Project]; have.row.Revision == now.key.Revision() && have.file == p.file {
				have.applied = now.key
				s.projects[p.repository.Project] = have
			}
		}
		return none, err
	})
	return now, err
}

// await waits until the repository has all that was acknowledged before the call. Of a settled key only what has changed since the
// last one is looked at, if that is known.
func (s *Server) await(ctx context.Context, p known, now refdb.StateKey) error {
	s.counts.waits.Inc()
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	repo, err := gitrepo.OpenDir(p.repository.Path)
	if err != nil {
		return err
	}
	changed, known, err := s.o.DB.ChangedBetween(ctx, p.applied, now, compare.Chunk)
	if err != nil {
		return err
	}
	var behind []string
	if known {
		behind, err = compare.WaitFor(ctx, p.ruled, s.o.DB, repo, p.repository.Project, changed, waitLimit)
	} else {
		behind, err = compare.Wait(ctx, p.ruled, s.o.DB, repo, p.repository.Project, waitLimit)
	}
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case len(behind) == 1:
		return fmt.Errorf("%w by one ref after %s", errBehind, waitLimit)
	case len(behind) > 0:
		return fmt.Errorf("%w by %d refs after %s", errBehind, len(behind), waitLimit)
	}
	return nil
}

// again is a reader of what was read of a body, and of the rest.
func again(head []byte, rest io.Reader) io.Reader {
	if rest == nil {
		return bytes.NewReader(head)
	}
	return io.MultiReader(bytes.NewReader(head), rest)
}
