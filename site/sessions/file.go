package sessions

import "github.com/globalrefdb/globalrefdb/site/pusher"

// saveGuards notes the guards that are to be, durably.
func (gs *Guards) saveGuards() error {
	gs.saving.Lock()
	defer gs.saving.Unlock()
	var ids []pusher.Guard
	var noted []*guard
	gs.lock()
	for _, g := range gs.list() {
		if g.toBeNoted() {
			ids, noted = append(ids, g.id), append(noted, g)
		} else {
			g.noted = false // before it is: what begins meanwhile has it noted again
		}
	}
	gs.unlock()
	if err := pusher.NoteGuards(gs.State.Config().State, ids); err != nil {
		return err
	}
	gs.lock()
	defer gs.unlock()
	for _, g := range noted {
		g.noted = true
	}
	return nil
}

// toBeNoted reports whether this guard may have got an OK that left no intent, so that a later daemon must know of it. The guards are locked.
func (g *guard) toBeNoted() bool {
	return !g.dead && (len(g.transactions) > 0 || g.unlisted() || g.noted && g.session != nil)
}

// note makes sure that the guard is noted, which has a transaction.
func (gs *Guards) note(g *guard) error {
	gs.lock()
	noted := g.noted
	gs.unlock()
	if noted {
		return nil
	}
	return gs.saveGuards()
}

// LoadGuards gets to know the guards of earlier daemons that may live. It is called before anything is decided.
func (gs *Guards) LoadGuards(state string) error {
	noted, err := pusher.NotedGuards(state)
	for _, id := range noted {
		if id.Ended(gs.State.Boot) {
			continue
		}
		gs.lock()
		g := gs.get(id)
		g.inherited, g.noted = true, true
		gs.unlock()
		gs.watchGuard(g)
	}
	return err
}
