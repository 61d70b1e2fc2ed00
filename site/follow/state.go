package follow

import (
	"context"
	"maps"
	"reflect"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/internal/durable"
)

// state is the progress of a follower: all changes before the cursor were applied, except those of the projects that
// are behind.
type state struct {
	Cursor string            `json:"cursor"`
	Known  map[string]string `json:"known"`  // repositories that were compared as a whole before, by project
	Behind []string          `json:"behind"` // to be compared
}

func (f *Follower) file() durable.State { return durable.In(f.o.Dir, "follow") }

// load resumes from the saved state. If there is none, or it can't be read, all repositories are compared.
func (f *Follower) load(ctx context.Context) {
	var s state
	found, err := f.file().Load(&s)
	if err == nil && !found {
		return
	}
	var cursor refdb.Cursor
	if err == nil {
		cursor, err = refdb.ParseCursor(s.Cursor)
	}
	if err != nil {
		f.o.Logger.WarnContext(ctx, "how far the site had followed can't be read: all repositories are compared")
		return
	}
	f.mu.Lock()
	f.cursor, f.saved = cursor, s
	maps.Copy(f.known, s.Known)
	f.mu.Unlock()
	for _, project := range s.Behind {
		f.queue.addAll(project)
	}
}

// save records how far the site has come, here and, so that no change it has not read is pruned, in the database.
func (f *Follower) save(ctx context.Context) {
	f.saving.Lock()
	defer f.saving.Unlock()
	f.mu.Lock()
	cursor := f.cursor
	s := state{Cursor: cursor.String(), Known: maps.Clone(f.known)}
	f.mu.Unlock()
	s.Behind = f.queue.Keys() // after the cursor: what comes between is dealt with twice
	f.mu.Lock()
	same := reflect.DeepEqual(f.saved, s)
	f.mu.Unlock()
	if same || s.Cursor == "" {
		return
	}
	if err := f.file().Save(s); err != nil {
		f.o.Logger.WarnContext(ctx, "how far the site has followed can't be recorded: after a restart it compares more than it needs")
		return
	}
	f.mu.Lock()
	f.saved = s
	f.mu.Unlock()
	if len(s.Known) == 0 {
		return // nothing here waits for changes
	}
	f.log(ctx, "how far the site has followed can't be recorded in the database", f.db.Followers().Put(ctx, f.o.Name, cursor))
}
