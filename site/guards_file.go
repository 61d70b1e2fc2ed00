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

// A daemon notes which guards have transactions. The next one does not know what they were told before they have begun sessions with it:
// not all of that has intents.

func guardsFile(state string) string { return filepath.Join(state, "guards") }

// saveGuards notes the guards that are to be, durably.
func (d *Daemon) saveGuards() error {
	gs := &d.guards
	gs.saving.Lock()
	defer gs.saving.Unlock()
	gs.lock()
	names, noted := []string{}, []*guard{}
	for _, g := range gs.list() {
		if g.toBeNoted() {
			names, noted = append(names, g.id.String()), append(noted, g)
		} else {
			g.noted = false // before it is: what begins meanwhile has it noted again
		}
	}
	gs.unlock()
	b, err := json.Marshal(names)
	if err == nil {
		err = durable.WriteState(guardsFile(d.config.Load().State), b)
	}
	if err != nil {
		return err
	}
	gs.lock()
	defer gs.unlock()
	for _, g := range noted {
		g.noted = true
	}
	return nil
}

// toBeNoted reports whether a later daemon has to fear that this guard was let do what left no intent. The guards are locked.
func (g *guard) toBeNoted() bool {
	return !g.dead && (len(g.transactions) > 0 || g.unheard() || g.noted && g.session != nil)
}

// note makes sure that the guard is noted, which has a transaction.
func (d *Daemon) note(g *guard) error {
	d.guards.lock()
	noted := g.noted
	d.guards.unlock()
	if noted {
		return nil
	}
	return d.saveGuards()
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
		g.feared, g.noted = true, true
		d.guards.unlock()
		d.watchGuard(g)
	}
	return nil
}
