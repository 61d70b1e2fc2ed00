package sessions

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/durable"
	"github.com/globalrefdb/globalrefdb/site/maintenance"
	"github.com/globalrefdb/globalrefdb/site/projects"
)

// SettleCreations settles the creations that are over, and those of guards that are dead.
func (gs *Guards) SettleCreations(ctx context.Context) {
	gs.lock()
	var ended []*creation
	for id, cr := range gs.creations {
		if g := gs.all[id.Guard]; cr.phase != deciding && (g == nil || g.dead) {
			cr.finish()
		}
		if cr.phase == over {
			ended = append(ended, cr)
		}
	}
	unsaved := gs.creationsUnsaved
	gs.unlock()
	for _, cr := range ended {
		gs.settleCreation(ctx, cr)
	}
	if unsaved {
		gs.logFailure(ctx, "the creations could not be noted", gs.saveCreations())
	}
}

// settleCreation settles a creation that is over, by what is in the repository. Reconcile retries
// whatever fails here.
func (gs *Guards) settleCreation(ctx context.Context, cr *creation) {
	gs.lock()
	if cr.phase != over || cr.settling || gs.creations[cr.id] != cr {
		gs.unlock()
		return
	}
	cr.settling = true
	id, r := cr.project, cr.repo
	gs.unlock()
	err := error(nil)
	if id != "" {
		err = gs.completeOrUndo(ctx, r, id)
	}
	settled := err == nil
	gs.lock()
	cr.settling = false
	if settled {
		delete(gs.creations, cr.id)
		if cr.project != "" {
			gs.Projects.Creating.Remove(r.Project)
		}
	}
	gs.unlock()
	if settled && r.Path != "" {
		gs.logFailure(ctx, "the creations could not be noted", gs.saveCreations())
		gs.RecordHeads(ctx)
	}
	gs.lock()
	cr.tellSettled(nil)
	gs.unlock()
	if !settled && !errors.Is(err, projects.ErrNotYet) && ctx.Err() == nil {
		gs.Logger.InfoContext(ctx, "a creation can't be settled yet; trying again", "repository", gs.State.Digest(r.Project, ""), "class", refdb.ClassOf(err).String())
	}
}

// completeOrUndo leaves a repository alone that was created and has a ref. Otherwise it removes the
// repository and its project.
func (gs *Guards) completeOrUndo(ctx context.Context, r config.Repository, id string) error {
	if used, err := gs.isUsed(ctx, r, r.Path, id); err != nil || used {
		return err
	}
	if gs.OpenIn(r.Path) {
		return errors.New("a transaction is not settled there")
	}
	if err := errors.Join(gs.State.AwaitServing(ctx), gs.Witness.MayAct(ctx)); err != nil {
		return err
	}
	used, err := gs.removeUnused(ctx, r, id)
	if err != nil || used {
		return err
	}
	if gs.Follower.Knows(r.Project) {
		gs.Follower.Forget(ctx, r.Project)
	}
	c := gs.State.Config()
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	if err := projects.TakeBack(ctx, c, gs.DB, r.Project, id); err != nil {
		return err
	}
	gs.Logger.InfoContext(ctx, "the creation of a project has failed, and was undone", "project", gs.State.Digest(r.Project, ""))
	return nil
}

// removeUnused removes the repository that was created for the project with that ID, unless it has
// a ref, while nothing else works on it.
func (gs *Guards) removeUnused(ctx context.Context, r config.Repository, id string) (used bool, err error) {
	aside := filepath.Join(filepath.Dir(r.Path), config.Unfinished+"creation-"+id) // no clone of a daemon's begins so
	if used, err := gs.finishRemoval(ctx, r, aside, id); err != nil || used {
		return used, err
	}
	switch _, err := os.Lstat(r.Path); {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	}
	patience, cancel := context.WithTimeoutCause(ctx, maintenance.PruneWait, errors.New("a transaction was in progress all the time"))
	defer cancel()
	if err := gs.Pruning.AwaitInherited(patience, r.Path); err != nil {
		return false, err
	}
	release, err := gs.Pruning.Exclusive(patience, r.Path)
	if err != nil {
		return false, err
	}
	defer release()
	if used, err = gs.isUsed(ctx, r, r.Path, id); err != nil || used {
		return used, err
	}
	if err := os.Rename(r.Path, aside); err != nil {
		return false, err
	}
	return gs.finishRemoval(ctx, r, aside, id)
}

// finishRemoval removes the repository that was moved aside, if there is one. A process that had
// begun before the repository was moved may have created a ref; then finishRemoval moves the
// repository back.
func (gs *Guards) finishRemoval(ctx context.Context, r config.Repository, aside, id string) (used bool, err error) {
	switch _, err := os.Lstat(aside); {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	}
	if used, err = gs.isUsed(ctx, r, aside, id); err != nil {
		return false, err
	}
	if used {
		err = os.Rename(aside, r.Path)
	} else {
		err = os.RemoveAll(aside)
	}
	gs.Moves.Repository(r.Path) // a reader of the list may have looked while it was aside
	return used, errors.Join(err, durable.SyncDir(filepath.Dir(aside)))
}

// isUsed reports whether the repository in dir has a ref, or is a copy of another project than the
// one with that ID. The repository may be incomplete.
func (gs *Guards) isUsed(ctx context.Context, r config.Repository, dir, id string) (bool, error) {
	recorded, err := gs.Projects.IDs.Of(ctx, config.Repository{Project: r.Project, Path: dir})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		recorded, err = "", nil // half of a configuration
	}
	if err == nil && recorded != "" && recorded != id {
		return true, nil
	}
	packed, err := os.ReadFile(filepath.Join(dir, "packed-refs"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	for line := range bytes.Lines(packed) {
		if line[0] != '#' && line[0] != '\n' {
			return true, nil
		}
	}
	used := false
	err = filepath.WalkDir(filepath.Join(dir, "refs"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.HasSuffix(path, ".lock") {
			return err
		}
		used = true
		return fs.SkipAll
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("looking for refs: %w", err)
	}
	return used, err
}
