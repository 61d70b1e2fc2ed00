package follow

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/internal/durable"
)

// state is how far a follower has come: all changes before the cursor were dealt with, but for those of the projects that are
// behind.
type state struct {
	Cursor string            `json:"cursor"`
	Known  map[string]string `json:"known"`  // repositories that were compared as a whole before, by project
	Behind []string          `json:"behind"` // to be compared
}

func (f *Follower) file() string { return filepath.Join(f.o.Dir, "follow") }

// load goes on from what was saved. Without it, or if it can't be read, all repositories are compared.
func (f *Follower) load(ctx context.Context) {
	text, err := os.ReadFile(f.file())
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var s state
	var cursor refdb.Cursor
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err == nil {
		cursor, err = refdb.ParseCursor(s.Cursor)
	}
	if err != nil {
		f.o.Logger.WarnContext(ctx, "how far the site had followed can't be read: all repositories are compared")
		return
	}
	f.mu.Lock()
	f.cursor, f.saved = cursor, strings.TrimSpace(string(text))
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
	s.Behind = f.queue.projects() // after the cursor: what comes between is dealt with twice
	text, err := json.Marshal(s)
	if err != nil || s.Cursor == "" {
		return
	}
	f.mu.Lock()
	same := f.saved == string(text)
	f.mu.Unlock()
	if same {
		return
	}
	if err := durable.WriteState(f.file(), append(text, '\n')); err != nil {
		f.o.Logger.WarnContext(ctx, "how far the site has followed can't be recorded: after a restart it compares more than it needs")
		return
	}
	f.mu.Lock()
	f.saved = string(text)
	f.mu.Unlock()
	if len(s.Known) == 0 {
		return // nothing here waits for changes
	}
	f.log(ctx, "how far the site has followed can't be recorded in the database", f.db.PutFollower(ctx, f.o.Name, cursor))
}
