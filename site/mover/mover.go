// Package mover moves refs of a repository for the site itself: to what the database holds, or to what an operator has
// decided. The git that does it runs no hooks and does not wait for lock files. It inherits a lock of the repository, by
// which the next daemon waits for a git that this one has left.
package mover

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/site/internal/filelock"
)

const (
	// hooksFor is for how long the hooks in git's configuration are known: they are on no path that this package could watch.
	hooksFor = time.Minute
	// pollEvery is how often a lock that a git of an earlier daemon has is looked at.
	pollEvery = 50 * time.Millisecond
)

// ErrEarlier: a git of an earlier daemon may still move refs of the repository.
var ErrEarlier = errors.New("a git that an earlier daemon has started still runs")

// A Mover moves refs. Its zero value is ready to use.
type Mover struct {
	withoutEarlier sync.Map // repositories in which no git of an earlier daemon runs any more
	hooks          sync.Map // [configured], by repository
}

// configured are the hooks of a repository in git's configuration.
type configured struct {
	names []string
	at    time.Time
}

// lockFile is locked, in the repository whose Git directory is dir, while a git of this package runs there.
func lockFile(dir string) string { return filepath.Join(dir, "refdb", "moving") }

// Refs moves refs from exactly their present values. The error is a [*gitrepo.RefusedError] if git refuses, and it has moved none of them then.
func (m *Mover) Refs(ctx context.Context, repo *gitrepo.Repo, moves []gitrepo.Move, message string) error {
	return m.with(ctx, repo, message, func(how gitrepo.Unhooked) error { return repo.MoveRefs(ctx, moves, how) })
}

// Head lets HEAD point to a ref.
func (m *Mover) Head(ctx context.Context, repo *gitrepo.Repo, target, message string) error {
	return m.with(ctx, repo, message, func(how gitrepo.Unhooked) error { return repo.SetHead(ctx, target, how) })
}

// Try lets git prepare what [Mover.Refs] would do, and moves nothing.
func Try(ctx context.Context, repo *gitrepo.Repo, moves []gitrepo.Move) error {
	hooks, err := repo.ConfiguredHooks(ctx)
	if err != nil {
		return err
	}
	return repo.TryMoves(ctx, moves, gitrepo.Unhooked{Hooks: hooks})
}

func (m *Mover) with(ctx context.Context, repo *gitrepo.Repo, message string, run func(gitrepo.Unhooked) error) error {
	hooks, err := m.configured(ctx, repo)
	if err != nil {
		return err
	}
	lock, err := filelock.Shared(ctx, lockFile(repo.Dir()))
	if err != nil {
		return err
	}
	defer lock.Close()
	return run(gitrepo.Unhooked{Message: message, Hooks: hooks, Inherits: lock})
}

func (m *Mover) configured(ctx context.Context, repo *gitrepo.Repo) ([]string, error) {
	if known, ok := m.hooks.Load(repo.Dir()); ok && time.Since(known.(configured).at) < hooksFor {
		return known.(configured).names, nil
	}
	names, err := repo.ConfiguredHooks(ctx)
	if err == nil {
		m.hooks.Store(repo.Dir(), configured{names, time.Now()})
	}
	return names, err
}

// HasEarlier reports whether a git of an earlier daemon may still move refs of the repository whose Git directory is dir. It is
// called before this Mover moves any there.
func (m *Mover) HasEarlier(dir string) (bool, error) { return filelock.IsHeld(lockFile(dir)) }

// AwaitEarlier waits until no git of an earlier daemon can move refs of the repository whose Git directory is dir, at most until ctx
// ends: then the error wraps [ErrEarlier]. It is called before this Mover moves any there.
func (m *Mover) AwaitEarlier(ctx context.Context, dir string) error {
	for {
		if _, none := m.withoutEarlier.Load(dir); none {
			return nil
		}
		runs, err := m.HasEarlier(dir)
		if err != nil {
			return err
		}
		if !runs {
			m.withoutEarlier.Store(dir, true)
			return nil
		}
		select {
		case <-time.After(pollEvery):
		case <-ctx.Done():
			return errors.Join(ErrEarlier, context.Cause(ctx))
		}
	}
}
