package site

import (
	"fmt"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/pusher"
)

// unsettledIn returns an error while a push, a guard's transaction or the follower may still move refs
// in a repository, or while one of the first two is not settled.
func (d *Daemon) unsettledIn(r config.Repository) error {
	if d.hooks.Unsettled(r.Project) {
		return fmt.Errorf("a push to %s is not settled yet", r.Project)
	}
	if d.guards.OpenIn(r.Path) {
		return fmt.Errorf("a guard's transaction in %s is not settled yet", r.Project)
	}
	if d.claims.Followed(r.Project) {
		return fmt.Errorf("refs of %s are being brought to the database's values", r.Project)
	}
	return nil
}

// mayMove reports whether the process that announced a move may still make it.
func (d *Daemon) mayMove(k driver.Known) bool {
	if t, ok := pusher.ParseTransaction(k.Agent); ok {
		return d.guards.MayMove(t, d.state.Boot)
	}
	return d.hooks.MayMove(k)
}
