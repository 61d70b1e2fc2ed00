package site

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/globalrefdb/globalrefdb/site/internal/durable"
	"github.com/globalrefdb/globalrefdb/site/pusher"
)

// A daemon notes which guards it has met. The next one does not know what they were told before they have begun sessions with it: not
// all of that has intents.

func guardsFile(state string) string { return filepath.Join(state, "guards") }

// saveGuards notes all guards that are known, durably.
func (d *Daemon) saveGuards() error {
	gs := &d.guards
	gs.saving.Lock()
	defer gs.saving.Unlock()
	gs.lock()
	names := []string{}
	for _, g := range gs.list() {
		names = append(names, g.id.String())
	}
	gs.unlock()
	b, err := json.Marshal(names)
	if err != nil {
		return err
	}
	return durable.WriteState(guardsFile(d.config.Load().State), b)
}

// loadGuards gets to know the guards of earlier daemons that may live. It is called before anything is decided.
func (d *Daemon) loadGuards(state string) error {
	b, err := os.ReadFile(guardsFile(state))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var names []string
	if err == nil {
		err = json.Unmarshal(b, &names)
	}
	if err != nil {
		return fmt.Errorf("reading the daemon's state: %w", err)
	}
	for _, name := range names {
		id, ok := pusher.ParseGuard(name)
		if !ok || id.Ended(d.boot) {
			continue
		}
		d.guards.lock()
		g := d.guards.get(id)
		d.guards.unlock()
		d.watchGuard(g)
	}
	return nil
}
