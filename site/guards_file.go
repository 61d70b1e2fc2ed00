package site

import "github.com/globalrefdb/globalrefdb/site/pusher"

// saveGuards notes all guards that are known, durably.
func (d *Daemon) saveGuards() error {
	gs := &d.guards
	gs.saving.Lock()
	defer gs.saving.Unlock()
	var all []pusher.Guard
	gs.lock()
	for _, g := range gs.list() {
		all = append(all, g.id)
	}
	gs.unlock()
	return pusher.NoteGuards(d.config.Load().State, all)
}

// loadGuards gets to know the guards of earlier daemons that may live. It is called before anything is decided.
func (d *Daemon) loadGuards(state string) error {
	noted, err := pusher.NotedGuards(state)
	for _, id := range noted {
		if id.Ended(d.boot) {
			continue
		}
		d.guards.lock()
		g := d.guards.get(id)
		d.guards.unlock()
		d.watchGuard(g)
	}
	return err
}
