package site

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/durable"
	"github.com/globalrefdb/globalrefdb/site/pusher"
)

// A notedCreation is what a later daemon needs of a creation.
type notedCreation struct {
	Guard   string `json:"guard"`
	TX      string `json:"tx"`
	Project string `json:"project"`
	Path    string `json:"path"`
	ID      string `json:"id"`
}

func creationsFile(state string) string { return filepath.Join(state, "creations") }

// saveCreations notes the creations that have reserved a name, durably.
func (d *Daemon) saveCreations() error {
	gs := &d.guards
	gs.saving.Lock()
	defer gs.saving.Unlock()
	noted := []notedCreation{}
	gs.lock()
	for id, cr := range gs.creations {
		if cr.id != "" {
			noted = append(noted, notedCreation{id.Guard.String(), id.TX, cr.repo.Project, cr.repo.Path, cr.id})
		}
	}
	gs.creationsUnsaved = false
	gs.unlock()
	err := saveState(creationsFile(d.config.Load().State), noted)
	if err != nil {
		gs.lock()
		gs.creationsUnsaved = true
		gs.unlock()
	}
	return err
}

// loadCreations gets to know the creations of earlier daemons. It is called before anything is decided, and before guards begin sessions.
func (d *Daemon) loadCreations(state string) error {
	var noted []notedCreation
	if err := loadState(creationsFile(state), &noted); err != nil {
		return err
	}
	for _, n := range noted {
		id, ok := pusher.ParseGuard(n.Guard)
		if !ok {
			return fmt.Errorf("the daemon's state %s names a guard %q", creationsFile(state), n.Guard)
		}
		d.guards.lock()
		var g *guard
		if !id.Ended(d.boot) {
			g = d.guards.get(id)
		}
		d.guards.addCreation(&creation{
			transaction: pusher.Transaction{Guard: id, TX: n.TX}, repo: config.Repository{Project: n.Project, Path: n.Path}, id: n.ID, phase: granted,
		})
		d.guards.unlock()
		if g != nil {
			d.watchGuard(g)
		}
	}
	return nil
}

// saveState writes v to a file of the daemon's state, durably.
func saveState(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return durable.WriteState(path, append(b, '\n'))
}

// loadState reads what [saveState] wrote last, if anything.
func loadState(path string, v any) error {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		return fmt.Errorf("reading the daemon's state: %w", err)
	}
	return nil
}
