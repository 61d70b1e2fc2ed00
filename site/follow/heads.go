package follow

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/catchup"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/head"
	"github.com/globalrefdb/globalrefdb/site/mover"
)

// headsEvery is how often the files are looked at that hold HEAD: git before 2.46 runs no hook when HEAD changes.
const headsEvery = 5 * time.Second

// A watchedHead is HEAD of a repository that is followed.
type watchedHead struct {
	path string
	seen string // what the files were when it was last read; "" if it was not
}

// headFiles tells one state of the files that hold HEAD from another.
func headFiles(path string) (which string) {
	for _, name := range []string{"HEAD", "reftable/tables.list"} {
		info, err := os.Lstat(filepath.Join(path, name))
		if err != nil {
			continue
		}
		node := uint64(0)
		if s, ok := info.Sys().(*syscall.Stat_t); ok {
			node = s.Ino
		}
		which += fmt.Sprintf("%d-%d-%d ", node, info.Size(), info.ModTime().UnixNano())
	}
	return which
}

// watchHead has HEAD of a repository looked at from now on.
func (f *Follower) watchHead(r config.Repository) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.heads[r.Project].path != r.Path {
		f.heads[r.Project] = watchedHead{path: r.Path}
	}
}

// watchHeads finds HEADs that have changed here, until ctx ends. It asks the database nothing while they have not.
func (f *Follower) watchHeads(ctx context.Context) {
	for {
		f.mu.Lock()
		all := maps.Clone(f.heads)
		f.mu.Unlock()
		for project, h := range all {
			now := headFiles(h.path)
			if now == h.seen || ctx.Err() != nil {
				continue
			}
			if f.headChanged(ctx, h.path) {
				f.queue.add(project, head.Ref)
			}
			f.sawHead(project, h.path, now)
		}
		select {
		case <-time.After(headsEvery):
		case <-ctx.Done():
			return
		}
	}
}

// headChanged reports whether HEAD of a bare repository is not what was agreed on. What can't be read is left to git's next user.
func (f *Follower) headChanged(ctx context.Context, path string) bool {
	repo, err := gitrepo.OpenDir(path)
	if err != nil || !repo.IsBare() {
		return false
	}
	here, err := repo.Head(ctx)
	if err != nil {
		return false
	}
	agreed, err := head.ReadAgreed(path)
	return err == nil && here.Value != string(agreed)
}

// sawHead records that HEAD was dealt with when its files were in that state.
func (f *Follower) sawHead(project, path, files string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.heads[project].path == path {
		f.heads[project] = watchedHead{path, files}
	}
}

// settleHead lets HEAD point to what the database says, or the database take over what HEAD was changed to here.
func (f *Follower) settleHead(ctx context.Context, repo *gitrepo.Repo, r config.Repository) error {
	files := headFiles(r.Path)
	// In this order: a guard moves HEAD here, then in the database, and then records that.
	agreed, err := head.ReadAgreed(repo.Dir())
	if err != nil {
		return err
	}
	here, err := repo.Head(ctx)
	if err != nil {
		return err
	}
	global, err := f.db.Get(ctx, r.Project, head.Ref)
	if err != nil {
		return err
	}
	s := head.State{Here: refdb.Value(here.Value), Global: global, Agreed: agreed, Bare: repo.IsBare()}
	if err := f.settle(ctx, repo, r, s); err != nil {
		return err
	}
	f.sawHead(r.Project, r.Path, files)
	return nil
}

// settle takes the step that a state of HEAD asks for. What was agreed on is recorded last: after a crash the same step is found again,
// or that both are equal.
func (f *Follower) settle(ctx context.Context, repo *gitrepo.Repo, r config.Repository, s head.State) error {
	switch s.Step() {
	case head.Agree:
		return head.NoteAgreed(repo.Dir(), s.Here)
	case head.Follow:
		if now, err := repo.Head(ctx); err != nil || now.Value != string(s.Here) {
			return err // it has just changed here, and is looked at again
		}
		target, _ := s.Global.Target()
		if err := f.moveHead(ctx, repo, r, target); err != nil {
			return err
		}
		return head.NoteAgreed(repo.Dir(), s.Global)
	case head.Announce:
		if f.o.Projects.Creating.Has(r.Project) {
			return nil // that may come to nothing
		}
		err := f.db.Update(ctx, r.Project, []refdb.Update{{Ref: head.Ref, Old: s.Global, New: s.Here}})
		switch {
		case errors.Is(err, refdb.ErrInvalid):
			return nil // the database can't hold that name
		case errors.Is(err, refdb.ErrFrozen):
			return nil // HEAD is looked at again once the project's row has changed: see FindProjects
		case err != nil:
			return fmt.Errorf("telling the database what HEAD points to: %w", err)
		}
		return head.NoteAgreed(repo.Dir(), s.Here)
	case head.Differ:
		f.o.Logger.WarnContext(ctx, "HEAD here is not what the database says, and nobody knows which one counts: see `refdbctl site check`", "project", f.o.Digest(r.Project, ""))
	}
	return nil
}

// moveHead makes HEAD point to a ref.
func (f *Follower) moveHead(ctx context.Context, repo *gitrepo.Repo, r config.Repository, target string) error {
	defer f.o.Moves.About(r.Path, head.Ref).End()
	err := f.o.Mover.Head(context.WithoutCancel(ctx), repo, target, catchup.Message)
	if refused := (*gitrepo.RefusedError)(nil); err != nil && !errors.As(err, &refused) && !errors.Is(err, mover.ErrNotStarted) {
		f.o.Killed(r.Path, nil) // its lock file may be left
	}
	return err
}
