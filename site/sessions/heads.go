package sessions

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"strings"
	"sync"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/head"
	"github.com/globalrefdb/globalrefdb/site/packs"
)

// heads holds the targets to which guards have moved HEAD, by repository, until they are in the
// database. HEAD has no intent: targets that are not in the database when the daemon ends are lost.
type heads struct {
	mu    sync.Mutex
	moved map[string]movedHead
}

type movedHead struct {
	project string
	value   refdb.Value
}

// headMoved records the target to which a transaction that is over may have moved HEAD, if other
// sites follow the project.
func (gs *Guards) headMoved(t *transaction) {
	p, ok := gs.Projects.Get(t.repo.Project)
	if !ok || !packs.Stored(p.Project) || t.repo.Path == "" {
		return
	}
	for _, l := range t.lines {
		if target, symbolic := strings.CutPrefix(l.New, "ref:"); l.Ref == head.Ref && symbolic {
			gs.heads.mu.Lock()
			if gs.heads.moved == nil {
				gs.heads.moved = map[string]movedHead{}
			}
			gs.heads.moved[t.repo.Path] = movedHead{t.repo.Project, refdb.Value("ref: " + target)}
			gs.heads.mu.Unlock()
		}
	}
}

// RecordHeads writes the targets to which guards have moved HEAD to the database, which the other
// sites follow. If two sites move HEAD at the same time, the later one wins. Reconcile retries
// whatever fails here.
func (gs *Guards) RecordHeads(ctx context.Context) {
	gs.heads.mu.Lock()
	all := maps.Clone(gs.heads.moved)
	gs.heads.mu.Unlock()
	for path, moved := range all {
		if gs.Projects.Creating.Has(moved.project) {
			continue // that may come to nothing
		}
		err := gs.recordHead(ctx, path, moved)
		gs.logFailure(ctx, "what HEAD points to could not be recorded yet", err)
		gs.heads.mu.Lock()
		if err == nil && gs.heads.moved[path] == moved {
			delete(gs.heads.moved, path)
		}
		gs.heads.mu.Unlock()
	}
}

// recordHead records nothing if the guard's move has failed, or HEAD was moved again since.
func (gs *Guards) recordHead(ctx context.Context, path string, moved movedHead) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := errors.Join(gs.State.Presence.Lost(), gs.Witness.MayAct(ctx)); err != nil {
		return err
	}
	repo, err := gitrepo.OpenDir(path)
	if err != nil {
		return err
	}
	here, err := repo.Head(ctx)
	if err != nil || refdb.Value(here.Value) != moved.value {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, gs.State.Config().Timeout)
	defer cancel()
	known, err := gs.DB.Get(ctx, moved.project, head.Ref)
	if err == nil && known != moved.value {
		_, err = gs.DB.Put(ctx, moved.project, head.Ref, moved.value)
	}
	if err == nil {
		err = head.NoteAgreed(repo.Dir(), moved.value)
	}
	return err
}
