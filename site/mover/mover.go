// Package mover moves refs of a repository for the site itself: to what the database holds, or to
// what an operator has decided. Its git runs no hooks and does not wait for lock files of refs. That git
// inherits a lock of the repository, by which the next daemon waits for a git that outlives this
// one.
package mover

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/site/internal/filelock"
	"github.com/globalrefdb/globalrefdb/site/internal/pause"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

const (
	// hooksFor is how long the hooks in git's configuration are cached: the configuration's files
	// are not known, so that they can't be watched.
	hooksFor = time.Minute
	// earlierPatience is how long a move waits for a git of an earlier daemon. Such a git ends
	// within milliseconds, unless it is stopped or its disk hangs.
	earlierPatience = time.Second
	// pollEvery is how often the lock that such a git holds is tried.
	pollEvery = 50 * time.Millisecond
)

// A Mover moves refs. Its zero value is ready to use.
type Mover struct {
	withoutEarlier sync.Map // the repositories in which no git of an earlier daemon runs any more
	hooks          sync.Map // [configured], by repository
}

// configured are the hooks that git's configuration defines for a repository.
type configured struct {
	names []string
	at    time.Time
}

// lockFile is locked, in the repository whose Git directory is dir, while a git of this package
// runs there.
func lockFile(dir string) string { return filepath.Join(dir, "refdb", "moving") }

// Refs moves refs from exactly their present values. The error is a [*gitrepo.RefusedError] if git
// refuses. LockWait is as in [gitrepo.Unhooked].
func (m *Mover) Refs(ctx context.Context, repo *gitrepo.Repo, moves []gitrepo.Move, message string, lockWait time.Duration) error {
	return m.with(ctx, repo, message, func(how gitrepo.Unhooked) error {
		how.LockWait = lockWait
		return repo.MoveRefs(ctx, moves, how)
	})
}

// Head makes HEAD point to a ref.
func (m *Mover) Head(ctx context.Context, repo *gitrepo.Repo, target, message string) error {
	return m.with(ctx, repo, message, func(how gitrepo.Unhooked) error { return repo.SetHead(ctx, target, how) })
}

// Try makes git prepare what [Mover.Refs] would do, and moves nothing.
func Try(ctx context.Context, repo *gitrepo.Repo, moves []gitrepo.Move) error {
	hooks, err := repo.ConfiguredHooks(ctx)
	if err != nil {
		return err
	}
	return repo.TryMoves(ctx, moves, gitrepo.Unhooked{Hooks: hooks})
}

// ErrNotStarted says that no git was started to move refs.
var ErrNotStarted = errors.New("git was not started")

func (m *Mover) with(ctx context.Context, repo *gitrepo.Repo, message string, run func(gitrepo.Unhooked) error) error {
	hooks, err := m.configured(ctx, repo)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotStarted, err)
	}
	lock, err := filelock.Shared(ctx, lockFile(repo.Dir()))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotStarted, err)
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

// HasEarlier reports whether a git of an earlier daemon may still move refs of the repository whose
// Git directory is dir. It is called before this Mover moves any there.
func (m *Mover) HasEarlier(dir string) (bool, error) { return filelock.IsHeld(lockFile(dir)) }

// AwaitEarlier waits until no git of an earlier daemon can move refs of the repository whose Git
// directory is dir. It does not wait long: the error then is a refusal. It is called before this
// Mover moves any refs there.
func (m *Mover) AwaitEarlier(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, earlierPatience)
	defer cancel()
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
		if !pause.For(ctx, pollEvery) {
			return refusal.Because(refusal.Locked, refusal.Lines{wire.EarlierFollower})
		}
	}
}
