package sessions

import (
	"fmt"

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

func creationsFile(state string) durable.State { return durable.In(state, "creations") }

// saveCreations notes the creations that have reserved a name, durably.
func (gs *Guards) saveCreations() error {
	gs.saving.Lock()
	defer gs.saving.Unlock()
	noted := []notedCreation{}
	gs.lock()
	for id, cr := range gs.creations {
		if cr.project != "" {
			noted = append(noted, notedCreation{id.Guard.String(), id.TX, cr.repo.Project, cr.repo.Path, cr.project})
		}
	}
	gs.creationsUnsaved = false
	gs.unlock()
	err := creationsFile(gs.State.Config().State).Save(noted)
	if err != nil {
		gs.lock()
		gs.creationsUnsaved = true
		gs.unlock()
	}
	return err
}

// LoadCreations gets to know the creations of earlier daemons. It is called before anything is decided, and before guards begin sessions.
func (gs *Guards) LoadCreations(state string) error {
	var noted []notedCreation
	if _, err := creationsFile(state).Load(&noted); err != nil {
		return err
	}
	for _, n := range noted {
		id, ok := pusher.ParseGuard(n.Guard)
		if !ok {
			return fmt.Errorf("the daemon's state %s names a guard %q", creationsFile(state), n.Guard)
		}
		gs.lock()
		var g *guard
		if !id.Ended(gs.State.Boot) {
			g = gs.get(id)
		}
		gs.addCreation(&creation{
			request: request{id: pusher.Transaction{Guard: id, TX: n.TX}, phase: granted}, repo: config.Repository{Project: n.Project, Path: n.Path}, project: n.ID,
		})
		gs.unlock()
		if g != nil {
			gs.watchGuard(g)
		}
	}
	return nil
}
